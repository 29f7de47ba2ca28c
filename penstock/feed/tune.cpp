#include "penstock/feed/tune.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

#include "penstock/feed/device_feed.h"
#include "penstock/feed/store.h"
#include "penstock/monitor/step_clock.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// The packs are complete, so that they are not looked through again before each run.
Config with_complete_packs(Config config) {
  if (config.preprocessing_mode == PreprocessingMode::precompute)
    config.preprocessing_mode = PreprocessingMode::automatic;
  return config;
}

std::int64_t padded_frames(const Shape& shape) {
  return static_cast<std::int64_t>(shape.rows) * shape.frames;
}

}  // namespace

// ---- the work ----

Plan planned(const Dataset& dataset, const Config& config) {
  return make_plan(dataset, config, configured_shapes(dataset.lengths, config), config.seed);
}

std::vector<BatchWork> planned_work(const Plan& plan, std::span<const Lengths> lengths, std::int64_t steps,
                                    int depth, double step_seconds) {
  std::int64_t largest = 1;
  for (const Shape& shape : plan.shapes()) largest = std::max(largest, padded_frames(shape));
  std::vector<BatchWork> work(static_cast<std::size_t>(steps));
  std::vector<Shape> shapes(work.size());
  for (std::size_t n = 0; n < work.size(); ++n) {
    const auto step = static_cast<std::int64_t>(n);
    const BatchPlan batch = plan.batch(step / plan.steps_per_epoch(), step % plan.steps_per_epoch());
    BatchWork& w = work[n];
    shapes[n] = batch.shape;
    w.frames = padded_frames(batch.shape);
    w.step_seconds = step_seconds * static_cast<double>(w.frames) / static_cast<double>(largest);
    // As BatchBuffer does it: a buffer that changes its shape is dirty everywhere.
    const auto last = static_cast<std::size_t>(depth) <= n ? n - static_cast<std::size_t>(depth) : n;
    const bool kept = last < n && shapes[last] == batch.shape;
    for (std::int32_t r = 0; r < batch.shape.rows; ++r) {
      const std::int64_t member = plan.utterance(batch, r);
      const std::int32_t frames = member < 0 ? 0 : lengths[static_cast<std::size_t>(member)].frames;
      const std::int32_t dirty =
          kept ? work[last].rows[static_cast<std::size_t>(r)].frames : batch.shape.frames;
      w.rows.push_back({.frames = frames, .cleared = std::max(0, dirty - frames)});
      w.valid_frames += frames;
    }
  }
  return work;
}

// ---- what filling costs ----

double ModeCost::slowdown(double workers) const {
  const auto above = std::ranges::find_if(points, [&](const Point& p) { return p.workers >= workers; });
  if (above == points.end()) return points.back().slowdown * workers / points.back().workers;
  if (above == points.begin()) return above->slowdown;
  const Point& below = *(above - 1);
  const double share = (workers - below.workers) / (above->workers - below.workers);
  return below.slowdown + share * (above->slowdown - below.slowdown);
}

std::vector<int> worker_counts(int most) {
  std::vector<int> counts;
  for (int w = 1; w < most; w *= 2) counts.push_back(w);
  counts.push_back(most);
  return counts;
}

bool cache_is_complete(const Config& config, const Dataset& dataset) {
  for (const StoredArray& array : stored_arrays(config, dataset)) {
    const StoreReader store = open_store(array, dataset, {.mapped = false});
    for (std::size_t m = 0; m < dataset.members.size(); ++m) {
      const auto member = static_cast<std::int64_t>(m);
      if (array.want(member).rows >= 0 && !store.record(member)) return false;
    }
  }
  return true;
}

namespace {

// While costs are measured, a consumer computes for this share of a batch's time: workers never rest, and
// the consumer disturbs them as it will later, when it sleeps, wakes up on one of their CPUs and spins.
constexpr double paced = 0.6;

/// One turn of a feed whose consumer waits for every batch.
struct Turn {
  double seconds = 0, pad_share = 0;  // of the workers' time
  std::vector<BatchWork> work;
  std::vector<double> intervals;  // from batch to batch; adds up to `seconds`
};

Turn take_turn(const Config& mode, int workers, std::size_t number, const MeasureOptions& options) {
  Config config = with_complete_packs(mode);
  config.seed += number + 1;  // other files than the last turn's, which are in memory now
  config.num_workers = workers;
  config.autotune = false;
  if (options.step_seconds == 0) {
    // Enough that no worker ever waits for a slot, and no more memory than that.
    config.prefetch_buffer_size = std::max(4, 2 + 2 * workers / std::max(1, config.batch_size));
    if (config.shapes == 1 && !config.pad_to_fixed_length)
      config.shapes = 4;  // so that batches differ in length
  }
  Feed feed(config);
  const std::int64_t warm_up = tune_warm_up(config.prefetch_buffer_size);
  for (std::int64_t i = 0; i < warm_up; ++i) feed.next();
  Turn turn;
  const auto pad_seconds = [&] {
    const FeedStats s = feed.stats();
    return std::pair(s.stage_seconds[static_cast<std::size_t>(Stage::pad)],
                     std::accumulate(s.stage_seconds.begin(), s.stage_seconds.end(), 0.0));
  };
  constexpr std::int64_t least = 24, probing = 12;
  const auto probe = Clock::now();
  for (std::int64_t i = 0; i < probing; ++i) feed.next();
  const double batch_seconds = seconds_since(probe) / probing;
  const auto most = static_cast<std::int64_t>(2 * options.seconds / batch_seconds) + least;
  const std::int64_t before = warm_up + probing;
  // A feed at full speed has one buffer more.
  turn.work =
      planned_work(feed.plan(), feed.dataset().lengths, before + most, config.prefetch_buffer_size + 1, 1);
  turn.work.erase(turn.work.begin(), turn.work.begin() + before);
  double mean_step = 0;
  for (const BatchWork& w : turn.work) mean_step += w.step_seconds / static_cast<double>(most);
  double step_seconds = paced * batch_seconds / mean_step;  // of the largest shape
  if (options.step_seconds > 0) step_seconds = std::min(step_seconds, options.step_seconds);

  const auto [pad_before, all_before] = pad_seconds();
  StepClock consumer(options.check);
  const auto start = Clock::now();
  for (std::int64_t n = 0; n < most && (turn.seconds < options.seconds || n < least); ++n) {
    feed.next();
    const double now = seconds_since(start);
    turn.intervals.push_back(now - turn.seconds);
    turn.seconds = now;
    const double step = step_seconds * turn.work[static_cast<std::size_t>(n)].step_seconds;
    consumer.step(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(step)));
  }
  const auto [pad_after, all_after] = pad_seconds();
  turn.pad_share = (pad_after - pad_before) / std::max(1e-9, all_after - all_before);
  turn.work.resize(turn.intervals.size());
  return turn;
}

struct Amounts {
  double rows = 0, frames = 0, cleared = 0;
};

Amounts amounts(const BatchWork& batch) {
  Amounts a;
  for (const RowWork& r : batch.rows) {
    a.rows += r.frames > 0;
    a.frames += r.frames;
    a.cleared += r.cleared;
  }
  return a;
}

Amounts amounts(std::span<const BatchWork> work) {
  Amounts sum;
  for (const BatchWork& batch : work) {
    const Amounts a = amounts(batch);
    sum.rows += a.rows, sum.frames += a.frames, sum.cleared += a.cleared;
  }
  return sum;
}

/// How many frames' time a row costs beside its frames: the line through the times of the batches that one
/// worker filled, without the slowest tenth, which something else has disturbed.
double frames_of_a_row(std::span<const Turn> turns) {
  struct Sample {
    double seconds, frames, rows;
  };
  std::vector<Sample> samples;
  for (const Turn& turn : turns)
    for (std::size_t i = 0; i < turn.work.size(); ++i)
      if (const Amounts a = amounts(turn.work[i]); a.rows > 0)
        samples.push_back({turn.intervals[i], a.frames, a.rows});
  std::ranges::sort(samples, {}, [](const Sample& s) { return s.seconds / s.frames; });
  samples.resize(std::max<std::size_t>(1, samples.size() * 9 / 10));
  double ff = 0, fr = 0, rr = 0, sf = 0, sr = 0;  // least squares: seconds = x * frames + y * rows
  for (const Sample& s : samples) {
    ff += s.frames * s.frames, fr += s.frames * s.rows, rr += s.rows * s.rows;
    sf += s.seconds * s.frames, sr += s.seconds * s.rows;
  }
  const double determinant = ff * rr - fr * fr;
  const double x = (sf * rr - sr * fr) / determinant, y = (sr * ff - sf * fr) / determinant;
  // Batches of nearly equal length say little about it; a row's own cost is never the larger half.
  if (!(determinant > 1e-6 * ff * rr) || !(x > 0)) return 0;
  return std::clamp(y / x, 0.0, fr / rr);
}

double pad_share(std::span<const Turn> turns) {
  std::vector<double> shares;
  for (const Turn& t : turns) shares.push_back(t.pad_share);
  return std::clamp(median(shares), 0.0, 0.9);
}

/// `turns[i]` are those with `workers[i]`.
ModeCost fitted(PreprocessingMode mode, std::span<const int> workers,
                std::span<const std::vector<Turn>> turns) {
  ModeCost result{.mode = mode};
  const double row = frames_of_a_row(turns.front()), padding = pad_share(turns.front());
  std::vector<double> alone, pads;
  for (const Turn& turn : turns.front()) {
    const Amounts a = amounts(turn.work);
    alone.push_back(turn.seconds * (1 - padding) / (a.frames + row * a.rows));
    pads.push_back(turn.seconds * padding / std::max(1.0, a.cleared));
  }
  const double frame = median(alone);
  result.cost = {.frame = frame, .row = frame * row, .cleared = median(pads)};
  for (std::size_t i = 0; i < workers.size(); ++i) {
    std::vector<double> slowdowns, speeds;
    for (const Turn& turn : turns[i]) {
      double needed = 0, rows = 0;
      for (const BatchWork& batch : turn.work)
        for (const RowWork& r : batch.rows) needed += result.cost.of(r), rows += r.frames > 0;
      slowdowns.push_back(turn.seconds * workers[i] / needed);
      speeds.push_back(rows / turn.seconds);
    }
    result.points.push_back(
        {.workers = workers[i], .slowdown = median(slowdowns), .samples_per_second = median(speeds)});
  }
  return result;
}

}  // namespace

std::vector<ModeCost> measure_fill_costs(std::span<const Config> modes, std::span<const int> workers,
                                         const MeasureOptions& options) {
  std::vector<std::vector<std::vector<Turn>>> turns(modes.size(),
                                                    std::vector<std::vector<Turn>>(workers.size()));
  const std::size_t total = static_cast<std::size_t>(options.repeats) * modes.size() * workers.size();
  std::size_t done = 0;
  for (int repeat = 0; repeat < options.repeats; ++repeat)
    for (std::size_t w = 0; w < workers.size(); ++w)
      for (std::size_t m = 0; m < modes.size(); ++m) {
        if (options.progress) options.progress(done, total);
        turns[m][w].push_back(take_turn(modes[m], workers[w], done++, options));
      }
  std::vector<ModeCost> costs;
  for (std::size_t m = 0; m < modes.size(); ++m)
    costs.push_back(fitted(modes[m].preprocessing_mode, workers, turns[m]));
  return costs;
}

// ---- the prediction ----

namespace {

/// Feed and consumer as events in time.
class Simulation {
 public:
  Simulation(std::span<const BatchWork> work, const ModeCost& cost, const RingSetting& setting,
             const Machine& machine)
      : work_(work),
        cost_(cost),
        machine_(machine),
        depth_(static_cast<std::size_t>(setting.depth + machine.device_batches)),
        workers_(static_cast<std::size_t>(std::min(setting.workers, machine.cpus))),
        opened_(std::min(depth_, work.size())),
        unfinished_(work.size()) {
    for (std::size_t n = 0; n < work.size(); ++n) unfinished_[n] = work[n].rows.size();
    for (std::size_t k = 0; k <= workers_ + 1; ++k)
      slowdowns_.push_back(cost.slowdown(std::clamp(static_cast<double>(k), 1.0, double(machine.cpus))));
  }

  /// When each step begins; it ends step_seconds later.
  std::vector<double> run() {
    while (starts_.size() < work_.size()) {
      claim();
      const double rate = progress();
      double pause = until_consumer();
      for (const Filling& f : filling_) pause = std::min(pause, f.left / rate);
      now_ += pause;
      for (Filling& f : filling_) f.left -= pause * rate;
      finish_rows();
      consume();
    }
    return starts_;
  }

 private:
  struct Filling {
    std::size_t batch;
    double left;  // seconds of a worker that is alone
  };
  enum class Consumer { waits, prepares, computes };
  static constexpr double never = std::numeric_limits<double>::infinity(), instant = 1e-12;

  /// Workers take rows of the oldest batch that has some. When all sleep, half a ring must be open.
  void claim() {
    while (filling_.size() < workers_ && batch_ < opened_ && (awake_ || !filling_.empty())) {
      filling_.push_back({batch_, cost_.cost.of(work_[batch_].rows[row_])});
      awake_ = true;
      if (++row_ == work_[batch_].rows.size()) ++batch_, row_ = 0;
    }
    if (filling_.empty() && batch_ == opened_) awake_ = false;
  }

  /// Of each row, in seconds of a lone worker per second.
  [[nodiscard]] double progress() const {
    const std::size_t busy = filling_.size();
    return busy == 0 ? 1 : 1 / slowdowns_[busy];
  }

  [[nodiscard]] double until_consumer() const {
    return state_ == Consumer::waits ? never : std::max(0.0, event_ - now_);
  }

  void finish_rows() {
    std::erase_if(filling_, [&](const Filling& f) {
      if (f.left > instant) return false;
      --unfinished_[f.batch];
      return true;
    });
  }

  void consume() {
    const std::size_t n = starts_.size();
    if (state_ == Consumer::waits) {
      if (unfinished_[n] == 0) prepare(n, waited_ ? machine_.wake_seconds : 0);
      waited_ = true;
    }
    if (now_ + instant < event_ || state_ == Consumer::waits) return;
    if (state_ == Consumer::prepares) {
      starts_.push_back(now_);
      become(Consumer::computes, now_ + work_[n].step_seconds);
    } else {
      open_next();
      waited_ = false;
      become(Consumer::waits, now_);
      if (n < work_.size() && unfinished_[n] == 0) prepare(n, machine_.next_seconds);
    }
  }

  void prepare(std::size_t n, double seconds) {
    become(Consumer::prepares, now_ + seconds + machine_.copy_frame * static_cast<double>(work_[n].frames));
  }

  /// The slot of the step that has just ended goes round.
  void open_next() {
    if (opened_ < work_.size()) ++opened_;
    if (++unannounced_ < depth_ / 2) return;
    unannounced_ = 0;
    awake_ = true;
  }

  void become(Consumer state, double until) { state_ = state, event_ = until; }

  const std::span<const BatchWork> work_;
  const ModeCost& cost_;
  const Machine machine_;
  const std::size_t depth_, workers_;
  std::vector<double> slowdowns_;  // by rows that are being filled

  double now_ = 0;
  std::size_t opened_;               // batches that workers may fill
  std::size_t batch_ = 0, row_ = 0;  // that is claimed next
  std::size_t unannounced_ = 0;
  bool awake_ = true;
  std::vector<std::size_t> unfinished_;  // rows of each batch
  std::vector<Filling> filling_;

  Consumer state_ = Consumer::waits;
  double event_ = 0;
  bool waited_ = true;
  std::vector<double> starts_;
};

}  // namespace

Machine machine_for(const Config& config) {
  Machine machine;
  if (config.device == "cpu") return machine;
  if (config.device_prefetch && config.overlap) {
    machine.device_batches =
        config.device_buffer_size;  // one is the consumer's, and one is in the stage's hands
    return machine;
  }
  Feed feed(with_complete_packs(config));
  const std::shared_ptr<Device> device = open_device(config.device);
  const Batch batch = feed.next();
  std::vector<double> times;
  for (int i = 0; i < 9; ++i) {
    const auto start = Clock::now();
    device->copy(batch);
    times.push_back(seconds_since(start));
  }
  machine.copy_frame = median(times) / static_cast<double>(padded_frames(batch.shape));
  return machine;
}

Prediction predict(std::span<const BatchWork> work, const ModeCost& cost, const RingSetting& setting,
                   const Machine& machine) {
  const std::vector<double> starts = Simulation(work, cost, setting, machine).run();
  const auto second = static_cast<std::size_t>(setting.warm_up) + 1;
  double computed = 0, valid = 0, frames = 0;
  for (std::size_t n = second; n < work.size(); ++n) {
    computed += work[n].step_seconds;
    valid += static_cast<double>(work[n].valid_frames);
    frames += static_cast<double>(work[n].frames);
  }
  const double elapsed = starts.back() + work.back().step_seconds - starts[second];
  return {.au = computed / elapsed,
          .frames_per_second = valid / elapsed,
          .padding = 1 - valid / frames,
          .seconds = elapsed};
}

MeasuredAu measure_au(const Config& config, double step_seconds, std::int64_t steps, std::int64_t warm_up,
                      const std::function<void()>& check) {
  Config fixed = with_complete_packs(config);
  fixed.autotune = false;
  DeviceFeed feed(fixed);
  const std::vector<BatchWork> work = planned_work(feed.feed().plan(), feed.feed().dataset().lengths, steps,
                                                   config.prefetch_buffer_size, step_seconds);
  StepClock warming(check), clock(check);
  double valid = 0;
  DeviceBatch batch;
  for (std::int64_t n = 0; n < steps; ++n) {
    DeviceBatch next = feed.next();
    next.wait();
    const BatchWork& w = work[static_cast<std::size_t>(n)];
    StepClock& device = n < warm_up ? warming : clock;
    device.start(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(w.step_seconds)));
    batch = std::move(next);  // the last one is let go of beside the step
    device.finish();
    if (n > warm_up) valid += static_cast<double>(w.valid_frames);
  }
  return {.au = clock.au(), .frames_per_second = valid / clock.elapsed().count(), .steps = clock.steps()};
}

// ---- the search ----

std::vector<TuneLine> evaluate(std::span<const TuneMode> modes, const TuneChoices& choices,
                               double step_seconds, std::int64_t steps, const Machine& machine) {
  std::vector<TuneLine> lines;
  for (const TuneMode& mode : modes)
    for (const std::int32_t shapes : choices.shapes) {
      Config config = mode.config;
      config.shapes = shapes;
      const Plan plan = planned(*mode.dataset, config);
      for (const int depth : choices.depths) {
        const std::int64_t warm_up = tune_warm_up(depth);
        const auto work = planned_work(plan, mode.dataset->lengths, warm_up + steps, depth, step_seconds);
        for (const int workers : choices.workers)
          lines.push_back(
              {.setting = {.mode = mode.cost.mode, .workers = workers, .depth = depth, .shapes = shapes},
               .predicted = predict(work, mode.cost, {.workers = workers, .depth = depth, .warm_up = warm_up},
                                    machine)});
      }
    }
  return lines;
}

TuneLine recommended(std::span<const TuneLine> lines) {
  constexpr double useful_share = 0.98, au_slack = 0.01;
  constexpr int least_depth = 4;
  const auto useful = [](const TuneLine& l) { return l.predicted.frames_per_second / l.predicted.au; };
  const double best_useful = useful(std::ranges::max(lines, {}, useful));
  std::int32_t shapes = std::numeric_limits<std::int32_t>::max();
  for (const TuneLine& l : lines)
    if (useful(l) >= useful_share * best_useful) shapes = std::min(shapes, l.setting.shapes);
  double best_au = 0;
  for (const TuneLine& l : lines)
    if (l.setting.shapes == shapes) best_au = std::max(best_au, l.predicted.au);
  const auto order = [](const TuneLine& l) {
    return std::tuple(l.setting.workers, l.setting.depth < least_depth, l.setting.depth,
                      l.setting.mode == PreprocessingMode::runtime);
  };
  const TuneLine* chosen = nullptr;
  for (const TuneLine& l : lines)
    if (l.setting.shapes == shapes && l.predicted.au >= best_au - au_slack &&
        (!chosen || order(l) < order(*chosen)))
      chosen = &l;
  return *chosen;
}

}  // namespace penstock
