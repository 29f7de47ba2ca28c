// penstock info: what a dataset holds, what is wrong with it, and the shapes it would get.
#include "penstock/feed/info.h"

#include <algorithm>
#include <array>
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/pack_table.h"
#include "cli/terminal.h"
#include "penstock/feed/report.h"

namespace penstock::cli {
namespace {

struct InfoArguments {
  std::unique_ptr<ConfigFlags> flags;
  bool rescan = false;
  bool json = false;
};

std::string character_text(std::uint32_t c) {
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

void print_problems(const char* what, const std::vector<DatasetProblem>& problems) {
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

void print_text(const Dataset& dataset, const Config& config, const DatasetInfo& s) {
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
  for (const CharacterCount& c : dataset.index.characters()) fmt::print(" {}", character_text(c.character));
  fmt::print("\n\n");
  print_shapes(dataset, config, s.shapes);
  if (s.packs.empty()) return fmt::print("\nNo cache (`penstock cache build` makes one)\n");
  fmt::print("\nCache (* used by this configuration):\n");
  print_packs(s.packs);
}

int run_info(const InfoArguments& a) {
  Config config;
  if (!a.flags->load(config)) return 0;
  ProgressBar progress("indexing");
  const Dataset dataset = open_dataset(
      config, {.rescan = a.rescan,
               .progress = [&](std::size_t done, std::size_t total) { progress.update(done, total); }});
  progress.clear();
  if (!dataset.index.note().empty()) fmt::print(stderr, "note: {}\n", dataset.index.note());
  for (const std::string& note : dataset.notes) fmt::print(stderr, "note: {}\n", note);
  const DatasetInfo info = describe(dataset, config);
  if (a.json)
    print_json(info_json(dataset, config, info));
  else
    print_text(dataset, config, info);
  return info.unreadable.empty() ? 0 : 1;
}

}  // namespace

void add_info(const Command& app, Action& action) {
  auto a = std::make_shared<InfoArguments>();
  const Command c =
      app.add_command("info", "what a dataset holds, its problems, and the shapes it would get");
  a->flags = std::make_unique<ConfigFlags>(c);
  c.add_flag("--rescan", a->rescan, "read every audio file's header again");
  c.add_flag("--json", a->json, "the result for programs");
  c.footer(
      "Exit code 1 when a file is unreadable.\nExamples:\n  penstock info data/LJSpeech-1.1\n  penstock info "
      "data/en --max-mel-frames 800 --json\n  penstock info data/en --batch-size auto --device-memory 8GB");
  c.runs(action, [a] { return run_info(*a); });
}

}  // namespace penstock::cli
