#include "penstock/feed/info.h"

#include <algorithm>

#include <fmt/format.h>

#include "penstock/core/error.h"

namespace penstock {
namespace {

void count(DatasetInfo& s, const Dataset& dataset) {
  s.clips = dataset.index.size();
  for (std::int64_t i = 0; i < dataset.index.size(); ++i) {
    const Utterance u = dataset.index.utterance(i);
    ++(u.validation ? s.validation : s.train);
    if (!u.problem.empty()) {
      s.unreadable.push_back({std::string(u.id), std::string(u.problem)});
      continue;
    }
    s.seconds.push_back(static_cast<double>(u.audio.samples) / u.audio.sample_rate);
    s.hours += s.seconds.back() / 3600;
  }
  if (s.seconds.empty()) return;
  const auto [shortest, longest] = std::minmax_element(s.seconds.begin(), s.seconds.end());
  s.min_seconds = *shortest;
  s.max_seconds = *longest;
}

std::vector<DatasetProblem> rejected(const Dataset& dataset, const Config& config) {
  std::vector<DatasetProblem> problems;
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
      problems.push_back({std::string(dataset.index.utterance(dataset.members[m]).id), reason});
  }
  return problems;
}

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

}  // namespace

DatasetInfo describe(const Dataset& dataset, const Config& config) {
  DatasetInfo info;
  count(info, dataset);
  info.rejected = rejected(dataset, config);
  info.shapes = shape_choices(dataset, config);
  info.packs = listed_packs(config, dataset);
  return info;
}

}  // namespace penstock
