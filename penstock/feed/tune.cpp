#include "penstock/feed/tune.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

namespace penstock {
namespace {

std::int64_t padded_frames(const Shape& shape) {
  return static_cast<std::int64_t>(shape.rows) * shape.frames;
}

}  // namespace

// ---- the work ----

Plan planned(const Dataset& dataset, const Config& config) {
  return make_plan(dataset, config, configured_shapes(dataset.lengths, config), config.seed);
}

std::vector<BatchWork> planned_work(const Plan& plan, std::span<const Lengths> lengths, std::int64_t steps,
                                    int buffers, double step_seconds) {
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
    const auto last = static_cast<std::size_t>(buffers) <= n ? n - static_cast<std::size_t>(buffers) : n;
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
        cpus_(static_cast<std::size_t>(machine.cpus)),
        workers_(std::min(static_cast<std::size_t>(setting.workers), cpus_)),
        opened_(std::min(depth_, work.size())),
        awake_(workers_),
        unfinished_(work.size()) {
    for (std::size_t n = 0; n < work.size(); ++n) unfinished_[n] = work[n].rows.size();
    for (std::size_t k = 0; k <= workers_; ++k)
      slowdowns_.push_back(cost.slowdown(std::max(1.0, static_cast<double>(k))));
  }

  /// When each step begins; it ends step_seconds later.
  std::vector<double> run() {
    while (starts_.size() < work_.size()) {
      claim();
      const double rate = progress();
      double pause = until_consumer();
      for (const Filling& f : filling_) pause = std::min(pause, f.left / rate);
      for (const double at : waking_) pause = std::min(pause, std::max(0.0, at - now_));
      now_ += pause;
      for (Filling& f : filling_) f.left -= pause * rate;
      finish_rows();
      awake_ += std::erase_if(waking_, [&](double at) { return at <= now_ + instant; });
      consume();
    }
    return starts_;
  }

 private:
  struct Filling {
    std::size_t batch;
    double left;  // seconds of a worker that is alone
  };
  enum class Consumer { waits, prepares, sleeps, spins };
  static constexpr double never = std::numeric_limits<double>::infinity(), instant = 1e-12;

  /// Workers take rows of the oldest batch that has some, and each wakes another. Who finds none sleeps.
  void claim() {
    for (; awake_ > 0 && batch_ < opened_; --awake_) {
      double seconds = cost_.cost.of(work_[batch_].rows[row_]) + std::exchange(owed_, 0.0);
      if (wake_worker()) seconds += machine_.notify_seconds;
      filling_.push_back({batch_, seconds});
      if (++row_ == work_[batch_].rows.size()) ++batch_, row_ = 0;
    }
    if (awake_ > 0) owed_ = 0;  // paid while there was nothing to do
    awake_ = 0;
  }

  /// False when none sleeps.
  bool wake_worker() {
    if (filling_.size() + waking_.size() + awake_ >= workers_) return false;
    waking_.push_back(now_ + machine_.wake_seconds);
    return true;
  }

  /// Of each row, in seconds of a lone worker per second. A consumer that spins takes a CPU from the workers.
  [[nodiscard]] double progress() const {
    const std::size_t busy = filling_.size(), left = cpus_ - (state_ == Consumer::spins ? 1 : 0);
    if (busy == 0) return 1;
    return std::min(1.0, static_cast<double>(left) / static_cast<double>(busy)) / slowdowns_[busy];
  }

  [[nodiscard]] double until_consumer() const {
    return state_ == Consumer::waits ? never : std::max(0.0, event_ - now_);
  }

  void finish_rows() {
    awake_ += std::erase_if(filling_, [&](const Filling& f) {
      if (f.left > instant) return false;
      --unfinished_[f.batch];
      return true;
    });
  }

  void consume() {
    const std::size_t n = starts_.size();
    if (state_ == Consumer::waits && unfinished_[n] == 0) {
      // Whoever finished the batch wakes the consumer. That takes long on a CPU that has gone to sleep; one
      // that a worker has is taken from it at once.
      const std::size_t busy = filling_.size() + (batch_ < opened_ ? awake_ : 0);
      owed_ += machine_.notify_seconds;
      prepare(n, busy < cpus_ ? machine_.wake_seconds : machine_.next_seconds);
    }
    if (state_ == Consumer::waits || now_ + instant < event_) return;
    if (state_ == Consumer::prepares) {
      starts_.push_back(now_);
      end_ = now_ + work_[n].step_seconds;
      become(Consumer::sleeps, std::max(now_, end_ - machine_.spin_seconds));
    } else if (state_ == Consumer::sleeps) {
      become(Consumer::spins, end_);
    } else {
      const double opening = open_next();
      become(Consumer::waits, now_);
      if (n < work_.size() && unfinished_[n] == 0) prepare(n, machine_.next_seconds + opening);
    }
  }

  void prepare(std::size_t n, double seconds) {
    become(Consumer::prepares, now_ + seconds + machine_.copy_frame * static_cast<double>(work_[n].frames));
  }

  /// The slot of the step that has just ended goes round. Sleeping workers are woken for half a ring at a
  /// time: the seconds that this costs the consumer.
  double open_next() {
    if (opened_ < work_.size()) ++opened_;
    if (++unannounced_ < depth_ / 2) return 0;
    unannounced_ = 0;
    return wake_worker() ? machine_.notify_seconds : 0;
  }

  void become(Consumer state, double until) { state_ = state, event_ = until; }

  const std::span<const BatchWork> work_;
  const ModeCost& cost_;
  const Machine machine_;
  const std::size_t depth_, cpus_, workers_;
  std::vector<double> slowdowns_;  // by rows that are being filled

  double now_ = 0;
  std::size_t opened_;               // batches that workers may fill
  std::size_t batch_ = 0, row_ = 0;  // that is claimed next
  std::size_t unannounced_ = 0;
  std::size_t awake_;  // workers that look for a row; those that neither fill nor wake up sleep
  std::vector<std::size_t> unfinished_;  // rows of each batch
  std::vector<Filling> filling_;
  std::vector<double> waking_;  // when they will be awake
  double owed_ = 0;             // that waking the consumer takes from the next row

  Consumer state_ = Consumer::waits;
  double event_ = 0, end_ = 0;
  std::vector<double> starts_;
};

}  // namespace

std::vector<double> step_starts(std::span<const BatchWork> work, const ModeCost& cost,
                                const RingSetting& setting, const Machine& machine) {
  return Simulation(work, cost, setting, machine).run();
}

Prediction predict(std::span<const BatchWork> work, const ModeCost& cost, const RingSetting& setting,
                   const Machine& machine) {
  const std::vector<double> starts = step_starts(work, cost, setting, machine);
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
        const auto work = planned_work(plan, mode.dataset->lengths, warm_up + steps, depth + 1, step_seconds);
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
