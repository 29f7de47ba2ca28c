#include "cli/bench_log.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "penstock/monitor/run_reader.h"

namespace penstock::cli {
namespace {

constexpr std::size_t most_kept = 1 << 16;  // bytes
constexpr std::chrono::milliseconds longest_kept{500};

std::int64_t last_step(const std::filesystem::path& run) {
  std::int64_t last = 0;
  for (const StepRecord& s : read_run(run).steps) last = std::max(last, s.step);
  return last;
}

}  // namespace

BenchLog::BenchLog(const std::filesystem::path& run) : log_(run), step_(last_step(run)) {}

void BenchLog::start(const Feed& feed, std::int64_t batches, double step_ms, double first_batch_ms) {
  log_.add("event", fmt::format(R"({{"event":"start","step":{},"steps":{},"step_ms":{}}})", step_,
                                step_ + batches, step_ms));
  log_.add("event",
           fmt::format(R"({{"event":"cold","step":{},"seconds":{:.6f}}})", step_, first_batch_ms * 1e-3));
  feed_ = &feed;
  step_ms_ = step_ms;
  epoch_ = -1;
  flushed_ = FeedLog::Clock::now();
  feed_log_.emplace(log_, feed);
}

void BenchLog::step(const Batch& batch, double data_ms, double elapsed_ms) {
  const auto now = FeedLog::Clock::now();
  const double t = RunLog::now();
  ++step_;
  if (const std::int64_t before = std::exchange(epoch_, batch.epoch); before >= 0 && before != epoch_)
    lines_ += log_line(t, "event", fmt::format(R"({{"event":"epoch","step":{},"epoch":{}}})", step_, epoch_));
  const auto valid = std::accumulate(batch.mel_lengths.begin(), batch.mel_lengths.end(), 0.0);
  const Shape& s = batch.shape;
  lines_ += log_line(
      t, "step",
      fmt::format(
          R"({{"step":{},"epoch":{},"step_ms":{},"data_ms":{:.4f},{}"frames_per_s":{:.0f},"padding":{:.4f},)"
          R"("retraces":0,"shape":[{},{},{}],"ring":{}}})",
          step_, epoch_, step_ms_, data_ms,
          step_ms_ > 0 ? fmt::format(R"("au":{:.4f},)", std::min(1.0, step_ms_ / elapsed_ms)) : "",
          valid / std::max(elapsed_ms, 1e-6) * 1e3, 1 - valid / (static_cast<double>(s.rows) * s.frames),
          s.rows, s.tokens, s.frames, feed_->ready()));
  if (lines_.size() > most_kept || now - flushed_ > longest_kept) flush();
  feed_log_->after_batch(now);
}

void BenchLog::flush() {
  log_.append(lines_);
  lines_.clear();
  flushed_ = FeedLog::Clock::now();
}

void BenchLog::finish() {
  flush();
  feed_log_->finish();
}

}  // namespace penstock::cli
