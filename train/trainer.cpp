#include "train/trainer.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <deque>
#include <map>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "penstock/core/clock.h"
#include "penstock/core/error.h"
#include "penstock/core/threads.h"
#include "penstock/feed/feed_log.h"
#include "penstock/monitor/run_log.h"
#include "penstock/monitor/system_log.h"
#include "train/checkpoint.h"
#include "train/model.h"
#include "train/run_folder.h"
#include "train/setup.h"
#include "train/step.h"

namespace penstock::train {
namespace {

using nlohmann::json;

Counts operator+(Counts a, const Counts& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

/// Of a batch that is still to come. A row that will be replaced counts as planned.
Counts planned_counts(const Feed& feed, std::int64_t epoch, std::int64_t step) {
  const BatchPlan batch = feed.plan().batch(epoch, step);
  Counts counts{};
  for (std::int32_t row = 0; row < batch.shape.rows; ++row)
    if (const std::int64_t member = feed.plan().utterance(batch, row); member >= 0) {
      const Lengths& lengths = feed.dataset().lengths[static_cast<std::size_t>(member)];
      counts = counts + Counts{static_cast<double>(lengths.frames), static_cast<double>(lengths.tokens), 1.0};
    }
  return counts;
}

/// Of a whole window: its first batch, which is here, and those that follow it in the plan. So no batch has
/// to be held while others come, however long the window is.
Counts window_counts(const Feed& feed, const Batch& first, int batches) {
  Counts counts = counts_of(first);
  std::int64_t epoch = first.epoch, step = first.step;
  for (int i = 1; i < batches; ++i) {
    if (++step == feed.plan().steps_per_epoch()) ++epoch, step = 0;
    counts = counts + planned_counts(feed, epoch, step);
  }
  return counts;
}

/// Sums over updates, for the means of a line.
struct Tally {
  std::int64_t updates = 0, finite = 0;
  double loss = 0, norm = 0;  // of the finite ones
  double compute_s = 0, data_s = 0, elapsed_s = 0, valid = 0, frames = 0;

  Tally& operator+=(const Tally& t) {
    updates += t.updates, finite += t.finite, loss += t.loss, norm += t.norm;
    compute_s += t.compute_s, data_s += t.data_s, elapsed_s += t.elapsed_s;
    valid += t.valid, frames += t.frames;
    return *this;
  }
  [[nodiscard]] double au() const { return elapsed_s > 0 ? std::min(1.0, compute_s / elapsed_s) : 0; }
  [[nodiscard]] double padding() const { return frames > 0 ? 1 - valid / frames : 0; }
  [[nodiscard]] double frames_per_s() const { return elapsed_s > 0 ? valid / elapsed_s : 0; }
};

/// An update whose figures are not here yet.
struct OpenUpdate {
  StepLine line;
  Tally tally;
  std::vector<std::int64_t> utterances;
};

json shape_json(const Shape& shape) { return {shape.rows, shape.tokens, shape.frames}; }

json step_json(const StepLine& l) {
  json out = {{"step", l.step},           {"epoch", l.epoch},
              {"loss", l.loss},           {"lr", l.learning_rate},
              {"grad_norm", l.grad_norm}, {"step_ms", l.step_ms},
              {"data_ms", l.data_ms},     {"au", l.au},
              {"padding", l.padding},     {"frames_per_s", l.frames_per_s},
              {"retraces", l.retraces},   {"losses", json::object()},
              {"ring", l.ring},           {"shape", shape_json(l.shape)}};
  for (const auto& [name, value] : l.losses) out["losses"][name] = value;
  if (l.skipped) out["skipped"] = true;
  return out;
}

json summary_json(const Summary& s) {
  json stages = json::object();
  for (std::size_t i = 0; i < stage_count; ++i) stages[stage_names[i]] = s.stages[i];
  return {{"step", s.step},
          {"updates", s.updates},
          {"compute_s", s.compute_s},
          {"data_s", s.data_s},
          {"elapsed_s", s.elapsed_s},
          {"au", s.au},
          {"padding", s.padding},
          {"frames_per_s", s.frames_per_s},
          {"limit", s.limit},
          {"retraces", s.retraces},
          {"stages", stages},
          {"workers", s.workers},
          {"shapes_planned", s.planned}};
}

Config validation_config(Config config) {
  config.split = Split::val;
  config.remainder = RemainderRule::pad;
  return config;
}

Schedule schedule_of(const TrainSettings& t, std::int64_t total) {
  return {.kind = static_cast<Schedule::Kind>(t.schedule),  // the same words in the same order
          .peak = t.learning_rate,
          .warm_up = t.warmup_steps,
          .total = total};
}

constexpr std::int64_t most_skipped = 3;

class Loop {
 public:
  explicit Loop(const TrainJob& job);
  TrainResult run();

 private:
  std::shared_ptr<Model> made_model();
  void resume(const std::filesystem::path& checkpoint);
  void refuse_others(const RunState& found) const;
  void one_update();
  void add_batch(const DeviceBatch& batch, OpenUpdate& update);
  void take_figures(bool wait);
  void finish(OpenUpdate update, const Figures& figures);
  std::optional<Validation> validate();
  void save(bool best);
  [[nodiscard]] Summary summary() const;
  void show_summary();
  void note(const std::string& text) const {
    if (job_.view.note) job_.view.note(text);
  }
  /// Behind work that is no step's: the time so far does not count.
  void restart_clock() { mark_ = Clock::now(); }

  const TrainJob& job_;
  const TrainSettings& settings_;
  const torch::Device device_;
  std::optional<RunLog> log_;
  std::optional<SystemLog> system_log_;  // behind the log, which it writes to
  std::atomic<bool> logging_{false};  // log_ is there: the feed may say what it tuned on a thread of its own
  RunState state_;
  TraceTrack* const track_ = job_.trace ? &job_.trace->track("steps") : nullptr;
  DeviceFeed feed_;
  RunLock lock_;  // behind the feed: a dataset that is not there leaves no folder
  Step step_;
  std::int64_t total_ = 0;
  bool can_validate_ = false;
  Schedule schedule_;

  Clock::time_point mark_{}, started_{};  // the end of the update before; the first step's start
  std::optional<FeedLog> feed_log_;       // once there is something to do
  std::int64_t epoch_ = -1;               // of the last batch
  std::deque<OpenUpdate> open_;
  Tally since_line_, since_start_;
  std::optional<StepLine> last_;
  std::vector<std::string> bad_ids_;  // of the updates in a row that were not finite
};

/// `log` is there once `logging` says so.
FeedOptions feed_options(const TrainJob& job, std::optional<RunLog>& log, const std::atomic<bool>& logging) {
  return {.open = job.open,
          .tuned =
              [&](const TuneChange& change) {
                if (!logging.load(std::memory_order_acquire))
                  return;  // pairs with the store behind emplace()
                log_tune(*log, change);
              },
          .trace = job.trace};
}

Loop::Loop(const TrainJob& job)
    : job_(job),
      settings_(job.config.train),
      device_(compute_device(job.config)),  // first: refuses before anything is made
      feed_(job.config, feed_options(job, log_, logging_)),
      lock_(job.run),
      step_(made_model(), step_options(job.config, job.make_graphs)) {
  const Config& config = job.config;
  state_.model = step_.model().description();
  state_.mel = mel_keys(config);
  state_.symbols = symbol_keys(config, feed_.feed().dataset());
  state_.order = order_keys(config);
  for (const std::string& text : feed_.feed().dataset().notes) note(text);
  if (const std::size_t left_out = feed_.feed().plan().rejected().size(); left_out > 0)
    note(fmt::format("{} of {} utterances are too long or empty and are left out (penstock info names them)",
                     left_out, feed_.feed().dataset().members.size()));
  if (const auto checkpoint = latest_checkpoint(job.run)) resume(*checkpoint);
  state_.threads = torch::get_num_threads();

  const std::int64_t batches = settings_.epochs * feed_.feed().plan().steps_per_epoch();
  const std::int64_t window = settings_.gradient_accumulation_steps;
  total_ = settings_.steps > 0 ? settings_.steps : std::max<std::int64_t>(1, batches / window);
  schedule_ = schedule_of(settings_, total_);
  can_validate_ =
      settings_.val_every > 0 && !admitted(open_dataset(validation_config(config)).lengths, config).empty();
  if (settings_.val_every > 0 && !can_validate_)
    note("no utterance is held out (val_fraction, val_data): there is no validation");

  write_file(job.run / "config.yaml", job.config_text);
  feed_.feed().dataset().symbols.save(job.run / "symbols.txt");
  cut_log(job.run, state_.update);
  log_.emplace(job.run);
  system_log_.emplace(*log_);
  logging_.store(true, std::memory_order_release);
  log_->add(
      "event",
      json{{"event", state_.update > 0 ? "resume" : "start"}, {"step", state_.update}, {"steps", total_}}
          .dump());
  if (state_.update >= total_) return;  // nothing left to do
  const auto warming = Clock::now();
  step_.warm_up(feed_.feed().plan().shapes(), config.mel.n_mels);
  note(fmt::format("{} {} planned in {:.1f} s", step_.planned(), step_.planned() == 1 ? "shape" : "shapes",
                   seconds(Clock::now() - warming)));
  feed_log_.emplace(*log_, feed_.feed());
}

std::shared_ptr<Model> Loop::made_model() {
  // Before anything computes: sums depend on it, so a resumed run takes that of its checkpoint.
  int threads = settings_.compute_threads;
  const auto checkpoint = latest_checkpoint(job_.run);
  if (threads == 0 && checkpoint) threads = load_state(*checkpoint).threads;
  torch::set_num_threads(threads > 0 ? threads : available_cpus());
  torch::manual_seed(job_.config.seed);
  return job_.make_model(job_.config, feed_.feed().dataset());
}

void Loop::refuse_others(const RunState& found) const {
  std::string all;
  for (const auto& [what, run, now] :
       {std::tuple("model", &found.model, &state_.model), std::tuple("mel", &found.mel, &state_.mel),
        std::tuple("symbols", &found.symbols, &state_.symbols)})
    for (const std::string& line : differences(*run, *now)) all += fmt::format("\n  {}: {}", what, line);
  if (!all.empty())
    throw Error(fmt::format(
        "{}: its checkpoint is of something else; take another --run, or the settings that it had:{}",
        job_.run.string(), all));
}

void Loop::resume(const std::filesystem::path& checkpoint) {
  RunState found = load_state(checkpoint);
  refuse_others(found);
  load_tensors(checkpoint, step_.model(), &step_.optimizer());
  set_random_state(found.random);
  if (!device_.is_cpu() && !found.device_random.empty()) set_random_state(found.device_random, device_);
  const std::vector<std::string> changed = differences(found.order, state_.order);
  if (changed.empty())
    feed_.restore(found.feed);
  else
    feed_.restore({.seed = job_.config.seed, .epoch = found.feed.epoch + 1});
  found.order = state_.order;
  state_ = found;
  note(fmt::format("resumed behind step {} from {}", state_.update, checkpoint.string()));
  if (!changed.empty())
    note(fmt::format("{}: the feed starts epoch {}", fmt::join(changed, "; "), feed_.state().epoch));
}

void Loop::add_batch(const DeviceBatch& batch, OpenUpdate& update) {
  const Batch& host = batch.host();
  update.line.epoch = host.epoch, update.line.shape = host.shape, update.line.ring = feed_.feed().ready();
  if (const std::int64_t before = std::exchange(epoch_, host.epoch); before >= 0 && before != epoch_)
    log_->add("event", json{{"event", "epoch"}, {"step", update.line.step}, {"epoch", epoch_}}.dump());
  update.tally.valid += counts_of(host)[0];
  update.tally.frames += static_cast<double>(host.shape.rows) * host.shape.frames;
  for (const std::int64_t u : host.utterances)
    if (u >= 0) update.utterances.push_back(u);
}

void Loop::one_update() {
  OpenUpdate update;
  update.line.step = state_.update + 1;
  update.line.learning_rate = schedule_.at(state_.update);
  Counts window{};
  Clock::duration data{0}, compute{0};
  const int batches = settings_.gradient_accumulation_steps;
  for (int i = 0; i < batches; ++i) {
    const auto asked = Clock::now();
    const DeviceBatch batch = feed_.next();
    const auto got = Clock::now();
    if (mark_ == Clock::time_point{}) mark_ = started_ = got;
    if (i == 0) window = window_counts(feed_.feed(), batch.host(), batches);
    const std::optional<Retrace> retrace = step_.add(batch, window);
    if (i + 1 == batches) step_.update(update.line.learning_rate);
    const auto computed = Clock::now();
    if (track_) {
      track_->set_place({.epoch = batch.host().epoch, .step = batch.host().step});
      track_->add("wait", asked, got);
      track_->add("step", got, computed);
    }
    data += got - asked;
    compute += computed - got;
    add_batch(batch, update);
    if (!retrace) continue;
    const RetraceReport report = report_of(*retrace, feed_.feed(), update.line.step);
    log_->add("event", json{{"event", "retrace"},
                            {"step", update.line.step},
                            {"epoch", retrace->epoch},
                            {"batch", retrace->step},
                            {"shape", shape_json(retrace->shape)},
                            {"bucket", report.bucket},
                            {"utterances", report.ids},
                            {"cause", retrace->cause}}
                           .dump());
    if (job_.view.retrace) job_.view.retrace(report);
  }
  const auto now = Clock::now();
  update.tally.updates = 1;
  update.tally.compute_s = seconds(compute), update.tally.data_s = seconds(data);
  update.tally.elapsed_s = seconds(now - mark_);
  update.line.retraces = step_.retraces();
  mark_ = now;
  ++state_.update;
  state_.feed = feed_.state();
  open_.push_back(std::move(update));
  feed_log_->after_batch(now);
}

void Loop::finish(OpenUpdate update, const Figures& figures) {
  StepLine& line = update.line;
  Tally& tally = update.tally;
  if (figures.device_ms) {
    // The host runs ahead, and then waits in the feed for the device: that is no wait for data.
    tally.compute_s = *figures.device_ms * 1e-3;
    tally.data_s = std::clamp(tally.elapsed_s - tally.compute_s, 0.0, tally.data_s);
  }
  line.loss = figures.loss, line.losses = figures.losses, line.grad_norm = figures.grad_norm;
  line.skipped = figures.skipped;
  line.step_ms = tally.compute_s * 1e3, line.data_ms = tally.data_s * 1e3;
  line.au = tally.au(), line.frames_per_s = tally.frames_per_s(), line.padding = tally.padding();
  log_->add("step", step_json(line).dump());
  if (figures.skipped) {
    const std::vector<std::string> ids = ids_of(feed_.feed().dataset(), update.utterances);
    ++state_.skipped_in_a_row;
    bad_ids_.insert(bad_ids_.end(), ids.begin(), ids.end());
    log_->add("event", json{{"event", "not_finite"}, {"step", line.step}, {"utterances", ids}}.dump());
    note(fmt::format("step {}: the loss or a gradient is not finite, nothing was changed; utterances {}",
                     line.step, fmt::join(ids, " ")));
  } else {
    tally.finite = 1, tally.loss = figures.loss, tally.norm = figures.grad_norm;
    state_.skipped_in_a_row = 0;
    bad_ids_.clear();
  }
  since_start_ += tally;
  since_line_ += tally;
  last_ = line;
  if (settings_.log_every == 0 || line.step % settings_.log_every != 0) return;
  const auto n = static_cast<double>(since_line_.updates), finite = static_cast<double>(since_line_.finite);
  line.loss = since_line_.loss / finite, line.grad_norm = since_line_.norm / finite;  // NaN when none was
  line.step_ms = since_line_.compute_s / n * 1e3, line.data_ms = since_line_.data_s / n * 1e3;
  line.au = since_line_.au(), line.frames_per_s = since_line_.frames_per_s();
  line.padding = since_line_.padding();
  if (job_.view.line) job_.view.line(line);
  since_line_ = {};
}

void Loop::take_figures(bool wait) {
  const auto asked = Clock::now();
  const std::vector<Figures> done = step_.figures(wait);
  // What the host had run ahead: no update's time has it so far.
  if (wait && !open_.empty()) open_.back().tally.elapsed_s += seconds(Clock::now() - asked);
  for (const Figures& figures : done) {
    finish(std::move(open_.front()), figures);
    open_.pop_front();
  }
}

std::optional<Validation> Loop::validate() {
  const auto began = Clock::now();
  DeviceFeed feed(validation_config(job_.config));
  Validation result{.step = state_.update};
  NamedValues sums;
  Counts counts{};
  for (std::int64_t i = 0; i < feed.feed().plan().steps_per_epoch(); ++i) {
    if (job_.signal && job_.signal() != 0) return std::nullopt;
    const DeviceBatch batch = feed.next();
    const NamedValues of_batch = step_.evaluate(batch);
    if (sums.empty())
      sums = of_batch;
    else
      for (std::size_t k = 0; k < sums.size(); ++k) sums[k].second += of_batch[k].second;
    counts = counts + counts_of(batch.host());
  }
  result.utterances = std::llround(counts[static_cast<std::size_t>(Per::row)]);
  result.loss = step_.weighted_mean(sums, counts);
  result.best = std::isfinite(result.loss) && !(result.loss >= state_.best_validation);
  if (result.best) state_.best_validation = result.loss;
  log_->add("event", json{{"event", "validation"},
                          {"step", result.step},
                          {"loss", result.loss},
                          {"utterances", result.utterances},
                          {"best", result.best},
                          {"seconds", seconds(Clock::now() - began)}}
                         .dump());
  if (track_) track_->add("validation", began, Clock::now(), {});
  if (job_.view.validation) job_.view.validation(result);
  return result;
}

void Loop::save(bool best) {
  const auto began = Clock::now();
  state_.random = random_state();
  state_.device_random = device_.is_cpu() ? "" : random_state(device_);
  save_checkpoint(job_.run, step_.model(), step_.optimizer(), state_, settings_.keep_checkpoints, best);
  log_->add("event", json{{"event", "checkpoint"},
                          {"step", state_.update},
                          {"best", best},
                          {"seconds", seconds(Clock::now() - began)}}
                         .dump());
  if (track_) track_->add("checkpoint", began, Clock::now(), {});
}

Summary Loop::summary() const {
  const FeedStats stats = feed_.feed().stats();
  Summary s{.step = state_.update,
            .total = total_,
            .updates = since_start_.updates,
            .retraces = step_.retraces(),
            .planned = step_.planned(),
            .compute_s = since_start_.compute_s,
            .data_s = since_start_.data_s,
            .elapsed_s = since_start_.elapsed_s,
            .au = since_start_.au(),
            .frames_per_s = since_start_.frames_per_s(),
            .padding = since_start_.padding(),
            .workers = stats.active_workers};
  const double work = std::accumulate(stats.stage_seconds.begin(), stats.stage_seconds.end(), 0.0);
  std::size_t largest = 0;
  for (std::size_t i = 0; i < stage_count; ++i) {
    s.stages[i] = work > 0 ? stats.stage_seconds[i] / work : 0;
    if (s.stages[i] > s.stages[largest]) largest = i;
  }
  // Where the step waits for more than a twentieth of the time, more of it would not make the run faster.
  s.limit = s.au >= 0.95 || s.data_s < 0.05 * s.elapsed_s
                ? "the step"
                : fmt::format("the feed ({})", stage_names[largest]);
  return s;
}

void Loop::show_summary() {
  const Summary s = summary();
  log_->add("feed", summary_json(s).dump());
  if (job_.view.summary) job_.view.summary(s);
}

TrainResult Loop::run() {
  TrainResult result;
  if (state_.update >= total_)
    note(fmt::format("nothing left to do: {} of {} steps are done; --steps asks for more", state_.update,
                     total_));
  const auto due = [&](std::int64_t every) { return every > 0 && state_.update % every == 0; };
  bool over = state_.update >= total_;
  while (!over) {
    try {
      one_update();
    } catch (const SampleError&) {
      take_figures(true);
      feed_log_->finish();
      if (since_start_.updates > 0) save(false);  // all updates before this one
      throw;
    }
    take_figures(false);
    if (job_.view.progress) job_.view.progress(state_.update, total_, seconds(mark_ - started_));
    result.signal = job_.signal ? job_.signal() : 0;
    const bool last = state_.update == total_;
    const bool stop = result.signal != 0 || state_.skipped_in_a_row >= most_skipped;
    const bool validating = can_validate_ && !stop && (last || due(settings_.val_every));
    if (!(stop || last || validating || due(settings_.save_every))) continue;

    take_figures(true);
    bool best = false;
    if (validating) {
      if (const auto v = validate())
        result.validation = v, best = v->best;
      else
        result.signal = job_.signal();
      show_summary();
    }
    const bool broken = state_.skipped_in_a_row >= most_skipped;  // the figures may only have come now
    over = last || broken || result.signal != 0;
    if (over) feed_log_->finish();
    if (over || best || due(settings_.save_every)) save(best);
    if (broken)
      result.not_finite = fmt::format("{} updates in a row were not finite: stopped; utterances {}",
                                      state_.skipped_in_a_row, fmt::join(bad_ids_, " "));
    if (over && !validating) show_summary();
    restart_clock();
  }
  result.summary = summary();
  result.last = last_;
  return result;
}

}  // namespace

TrainResult train(const TrainJob& job) { return Loop(job).run(); }

}  // namespace penstock::train
