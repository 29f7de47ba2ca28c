// penstock info: what a dataset holds, what is wrong with it, and the shapes it would get.
#include <algorithm>
#include <array>
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/pack_table.h"
#include "cli/terminal.h"
#include "penstock/core/error.h"
#include "penstock/feed/dataset.h"

namespace penstock::cli {
namespace {

using nlohmann::json;

struct Arguments {
  std::unique_ptr<ConfigFlags> flags;
  bool rescan = false;
  bool json = false;
};

struct Problem {
  std::string id, reason;
};

struct Summary {
  std::int64_t clips = 0, train = 0, validation = 0;
  double hours = 0, min_seconds = 1e300, max_seconds = 0;
  std::vector<double> seconds;
  std::vector<Problem> unreadable, rejected;
};

Summary summarize(const Dataset& dataset, const Config& config) {
  Summary s{.clips = dataset.index.size()};
  for (std::int64_t i = 0; i < dataset.index.size(); ++i) {
    const Utterance u = dataset.index.utterance(i);
    ++(u.validation ? s.validation : s.train);
    if (!u.problem.empty()) {
      s.unreadable.push_back({std::string(u.id), std::string(u.problem)});
      continue;
    }
    s.seconds.push_back(static_cast<double>(u.audio.samples) / u.audio.sample_rate);
    s.hours += s.seconds.back() / 3600;
    s.min_seconds = std::min(s.min_seconds, s.seconds.back());
    s.max_seconds = std::max(s.max_seconds, s.seconds.back());
  }
  const auto over = [](std::int32_t n, std::int32_t limit) { return limit > 0 && n > limit; };
  for (std::size_t m = 0; m < dataset.members.size(); ++m) {
    const Lengths l = dataset.lengths[m];
    std::string reason;
    if (l.frames == 0) reason = "shorter than one frame";
    if (l.tokens == 0) reason = "no text";
    if (over(l.frames, config.max_mel_frames))
      reason = fmt::format("{} frames, max_mel_frames is {}", l.frames, config.max_mel_frames);
    if (over(l.tokens, config.max_text_length))
      reason = fmt::format("{} tokens, max_text_length is {}", l.tokens, config.max_text_length);
    if (!reason.empty())
      s.rejected.push_back({std::string(dataset.index.utterance(dataset.members[m]).id), reason});
  }
  return s;
}

struct ShapeChoice {
  int count = 0;
  std::vector<Shape> shapes;
  double padding = 0;
  std::int64_t dropped = 0;
};

std::vector<ShapeChoice> shape_choices(const Dataset& dataset, Config config) {
  std::vector<ShapeChoice> choices;
  if (admitted(dataset.lengths, config).empty()) return choices;
  for (const int k : {1, 2, 4, 8}) {
    config.shapes = k;
    config.pad_to_fixed_length = config.pad_to_fixed_length && k == 1;
    const auto shapes = configured_shapes(dataset.lengths, config);
    try {
      const Plan plan = make_plan(dataset, config, shapes, config.seed);
      choices.push_back({k, shapes, plan.padding(), plan.dropped()});
    } catch (const Error&) {
      // Fewer utterances than rows: no batch with this number of shapes.
    }
  }
  return choices;
}

std::string printable(std::uint32_t c) {
  if (c < 0x20 || c == 0x7f || c == ' ' || (c >= 0x80 && c < 0xa0) || (c >= 0x200b && c <= 0x200f) ||
      c == 0xfeff)
    return fmt::format("U+{:04X}", c);
  std::string out;
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xc0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 63));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xe0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 63));
    out += static_cast<char>(0x80 | (c & 63));
  } else {
    out += static_cast<char>(0xf0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 63));
    out += static_cast<char>(0x80 | (c >> 6 & 63));
    out += static_cast<char>(0x80 | (c & 63));
  }
  return out;
}

json batch_json(const Config& config) {
  if (config.batch_size > 0) return {{"batch_size", config.batch_size}, {"world", config.world}};
  return {{"batch_size", "auto"},
          {"world", config.world},
          {"device_memory", config.device_memory},
          {"frame_memory", config.frame_memory},
          {"frames_budget", frames_budget(config)}};
}

json as_json(const Dataset& dataset, const Config& config, const Summary& s,
             const std::vector<ShapeChoice>& choices, const std::vector<ListedPack>& packs) {
  const auto problems = [](const std::vector<Problem>& list) {
    json out = json::array();
    for (const Problem& p : list) out.push_back({{"id", p.id}, {"reason", p.reason}});
    return out;
  };
  json shapes = json::array();
  for (const ShapeChoice& c : choices) {
    json list = json::array();
    for (const Shape& shape : c.shapes)
      list.push_back({{"rows", shape.rows}, {"tokens", shape.tokens}, {"frames", shape.frames}});
    shapes.push_back({{"count", c.count}, {"shapes", list}, {"padding", c.padding}, {"dropped", c.dropped}});
  }
  json characters = json::object();
  for (const CharacterCount& c : dataset.index.characters())
    characters[fmt::format("U+{:04X}", c.character)] = c.count;
  const bool any = !s.seconds.empty();
  return {{"clips", s.clips},
          {"train", s.train},
          {"validation", s.validation},
          {"hours", s.hours},
          {"seconds", {{"min", any ? s.min_seconds : 0}, {"max", s.max_seconds}}},
          {"speakers", dataset.index.speakers().size()},
          {"unreadable", problems(s.unreadable)},
          {"rejected", problems(s.rejected)},
          {"characters", characters},
          {"batch", batch_json(config)},
          {"shapes", shapes},
          {"cache", packs_json(packs)}};
}

void print_histogram(const std::vector<double>& seconds, double longest) {
  constexpr std::size_t rows = 10;
  const double width = std::max(longest, 1e-3) / rows * (1 + 1e-9);
  std::array<std::size_t, rows> counts{};
  for (const double s : seconds) ++counts[std::min(rows - 1, static_cast<std::size_t>(s / width))];
  const auto most = static_cast<double>(*std::max_element(counts.begin(), counts.end()));
  for (std::size_t i = 0; i < rows; ++i)
    fmt::print("  {:5.1f} to {:5.1f} s  {} {}\n", static_cast<double>(i) * width,
               static_cast<double>(i + 1) * width, bar(static_cast<double>(counts[i]) / most, 40), counts[i]);
}

void print_problems(const char* what, const std::vector<Problem>& problems) {
  constexpr std::size_t most = 10;
  if (problems.empty()) return;
  fmt::print("\n{} {}\n", problems.size(), what);
  for (std::size_t i = 0; i < std::min(most, problems.size()); ++i)
    fmt::print("  {}: {}\n", problems[i].id, problems[i].reason);
  if (problems.size() > most) fmt::print("  and {} more (--json lists all)\n", problems.size() - most);
}

void print_shapes(const Dataset& dataset, const Config& config, const std::vector<ShapeChoice>& choices) {
  const bool by_memory = config.batch_size == 0;
  if (by_memory)
    fmt::print(
        "Shapes for batches within {} frames{} (batch_size auto: {} at {} a frame), {} x tokens x frames, "
        "{} utterances:\n",
        frames_budget(config), config.world > 1 ? fmt::format(" on each of {} ranks", config.world) : "",
        bytes_text(static_cast<std::uint64_t>(config.device_memory)),
        bytes_text(static_cast<std::uint64_t>(config.frame_memory)),
        config.world > 1 ? "rows of all ranks" : "rows", dataset.members.size());
  else
    fmt::print("Shapes for batches of {} (tokens x frames), {} utterances:\n",
               config.batch_size * config.world, dataset.members.size());
  fmt::print("  {:>2}  {:>8}  {:>8}  shapes\n", "K", "padding", "dropped");
  for (const ShapeChoice& c : choices) {
    std::vector<std::string> names;
    for (const Shape& shape : c.shapes)
      names.push_back(fmt::format("{}{}x{}", by_memory ? fmt::format("{}x", shape.rows) : "", shape.tokens,
                                  shape.frames));
    fmt::print("  {:>2}  {:>7.1f}%  {:>8}  {}\n", c.count, c.padding * 100, c.dropped, fmt::join(names, " "));
  }
  if (choices.empty()) fmt::print("  none: no batch can be filled\n");
}

void print_text(const Dataset& dataset, const Config& config, const Summary& s,
                const std::vector<ShapeChoice>& choices, const std::vector<ListedPack>& packs) {
  fmt::print("{} clips ({} train, {} validation), {:.2f} hours, {} speaker{}\n", s.clips, s.train,
             s.validation, s.hours, dataset.index.speakers().size(),
             dataset.index.speakers().size() == 1 ? "" : "s");
  if (!s.seconds.empty()) {
    fmt::print("\nClip lengths: {:.2f} to {:.2f} s, mean {:.2f} s\n", s.min_seconds, s.max_seconds,
               s.hours * 3600 / static_cast<double>(s.seconds.size()));
    print_histogram(s.seconds, s.max_seconds);
  }
  print_problems("unreadable:", s.unreadable);
  print_problems("rejected:", s.rejected);
  fmt::print("\n{} characters:", dataset.index.characters().size());
  for (const CharacterCount& c : dataset.index.characters()) fmt::print(" {}", printable(c.character));
  fmt::print("\n\n");
  print_shapes(dataset, config, choices);
  if (packs.empty()) return fmt::print("\nNo cache (`penstock cache build` makes one)\n");
  fmt::print("\nCache (* used by this configuration):\n");
  print_packs(packs);
}

int run(const Arguments& a) {
  Config config;
  if (!a.flags->load(config)) return 0;
  ProgressBar progress("indexing");
  const Dataset dataset = open_dataset(
      config, {.rescan = a.rescan,
               .progress = [&](std::size_t done, std::size_t total) { progress.update(done, total); }});
  progress.clear();
  if (!dataset.index.note().empty()) fmt::print(stderr, "note: {}\n", dataset.index.note());
  for (const std::string& note : dataset.notes) fmt::print(stderr, "note: {}\n", note);
  const Summary summary = summarize(dataset, config);
  const auto choices = shape_choices(dataset, config);
  const auto packs = listed_packs(config, dataset);
  if (a.json)
    fmt::print("{}\n", as_json(dataset, config, summary, choices, packs)
                           .dump(2, ' ', false, json::error_handler_t::replace));
  else
    print_text(dataset, config, summary, choices, packs);
  return summary.unreadable.empty() ? 0 : 1;
}

}  // namespace

void add_info(CLI::App& app, Action& action) {
  auto a = std::make_shared<Arguments>();
  CLI::App* c = app.add_subcommand("info", "what a dataset holds, its problems, and the shapes it would get");
  a->flags = std::make_unique<ConfigFlags>(*c);
  c->add_flag("--rescan", a->rescan, "read every audio file's header again");
  c->add_flag("--json", a->json, "the result for programs");
  c->footer(
      "Exit code 1 when a file is unreadable.\nExamples:\n  penstock info data/LJSpeech-1.1\n  penstock info "
      "data/en --max-mel-frames 800 --json\n  penstock info data/en --batch-size auto --device-memory 8GB");
  c->callback([a, &action] { action = [a] { return run(*a); }; });
}

}  // namespace penstock::cli
