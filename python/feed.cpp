// The feed: one call per batch, and the GIL only for what Python sees of it.
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "penstock/feed/device_feed.h"
#include "python/batch.h"
#include "python/module.h"

namespace penstock::python {
namespace {

using ShapeTuple = std::tuple<std::int32_t, std::int32_t, std::int32_t>;

std::vector<ShapeTuple> tuples(std::span<const Shape> shapes) {
  std::vector<ShapeTuple> all;
  for (const Shape& s : shapes) all.emplace_back(s.rows, s.tokens, s.frames);
  return all;
}

nb::dict dict_of(const FeedState& state) {
  nb::dict d;
  d["seed"] = state.seed;
  d["epoch"] = state.epoch;
  d["step"] = state.step;
  d["shapes"] = tuples(state.shapes);
  return d;
}

FeedState state_of(const nb::dict& d) {
  FeedState state;
  try {
    state.seed = nb::cast<std::uint64_t>(d["seed"]);
    state.epoch = nb::cast<std::int64_t>(d["epoch"]);
    state.step = nb::cast<std::int64_t>(d["step"]);
    for (const nb::handle shape : d["shapes"])
      state.shapes.push_back({.rows = nb::cast<std::int32_t>(shape[0]),
                              .tokens = nb::cast<std::int32_t>(shape[1]),
                              .frames = nb::cast<std::int32_t>(shape[2])});
  } catch (const std::exception&) {
    throw Error("this is not the state of a feed: a dict with seed, epoch, step and shapes is expected");
  }
  return state;
}

nb::list list_of(const std::vector<SkippedSample>& samples) {
  nb::list all;
  for (const SkippedSample& s : samples) {
    nb::dict d;
    d["id"] = text(s.id);
    d["path"] = text(s.path);
    d["reason"] = text(s.reason);
    d["times"] = s.times;
    all.append(d);
  }
  return all;
}

int device_number(const std::string& device) {
  if (device == "cpu") return -1;
  const auto colon = device.find(':');
  return colon == std::string::npos ? 0 : std::stoi(device.substr(colon + 1));
}

/// A DeviceFeed that any thread may call, one at a time.
class Core {
 public:
  Core(const Settings& settings, std::int64_t first, std::int64_t every, const nb::object& progress)
      : feed_(open(settings.config, first, every, progress)),
        bins_first_(settings.config.mel.layout == MelLayout::bins_first),
        device_id_(device_number(settings.config.device)) {
    look();
  }
  ~Core() {
    const WithoutGil released;  // its threads finish their rows
    feed_.drop();
  }
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  BatchView next() {
    DeviceBatch batch;
    const auto lock = alone([&](DeviceFeed& feed) { batch = feed.next([] { poll(); }); });
    at_.epoch = batch.host().epoch;
    at_.step = batch.host().step + 1;
    std::vector<std::string> ids;
    ids.reserve(batch.host().utterances.size());
    const Index& index = feed_->feed().dataset().index;
    for (const std::int64_t number : batch.host().utterances)
      ids.emplace_back(number < 0 ? std::string_view() : index.utterance(number).id);
    return {std::move(batch), std::move(ids), bins_first_, device_id_};
  }

  void restore(const nb::dict& to) {
    const auto lock = alone([state = state_of(to)](DeviceFeed& feed) { feed.restore(state); });
    look();
  }

  // What follows never waits for a thread that waits for a batch: a signal handler may ask for the state.
  [[nodiscard]] nb::dict state() const {
    feed_.check();
    return dict_of(at_);
  }
  [[nodiscard]] std::int64_t steps_per_epoch() const { return steps_; }
  [[nodiscard]] const std::vector<ShapeTuple>& shapes() const { return shapes_; }
  [[nodiscard]] nb::list skipped() const { return list_of(feed_->feed().skipped()); }
  [[nodiscard]] nb::list recomputed() const { return list_of(feed_->feed().recomputed()); }
  [[nodiscard]] SymbolTable symbols() const { return feed_->feed().dataset().symbols; }
  [[nodiscard]] nb::list notes() const {
    nb::list all;
    for (const std::string& note : feed_->feed().dataset().notes) all.append(text(note));
    return all;
  }
  [[nodiscard]] nb::list speakers() const {
    nb::list all;
    for (const std::string_view name : feed_->feed().dataset().index.speakers()) all.append(text(name));
    return all;
  }
  [[nodiscard]] nb::dict stats() const;

 private:
  using Lock = std::unique_lock<std::timed_mutex>;

  static std::unique_ptr<DeviceFeed> open(const Config& config, std::int64_t first, std::int64_t every,
                                          const nb::object& listener) {
    if (every < 1 || first < 0 || first >= every)
      throw Error("a share must be first of every: 0 <= first < every");
    return interruptible(listener, [&](const Progress& progress) {
      FeedOptions options{.first = first, .every = every};
      options.open.progress = progress.of("indexing");
      options.open.building = progress.of("caching");
      return std::make_unique<DeviceFeed>(config, options);
    });
  }

  /// Calls it without the GIL, while no other thread does. The lock outlives the wait for the GIL, so that
  /// what the caller notes down with both is in order; nobody waits for the lock with the GIL.
  template <typename Call>
  Lock alone(const Call& call) {
    DeviceFeed& feed = feed_.get();
    if (caller_ == std::this_thread::get_id())
      throw Error("this thread is waiting for the feed already: a signal handler may only ask for its state");
    Lock lock(mutex_, std::defer_lock);
    const WithoutGil released;
    while (!lock.try_lock_for(std::chrono::milliseconds(50))) poll();
    caller_ = std::this_thread::get_id();
    try {
      call(feed);
    } catch (...) {
      caller_ = std::thread::id();
      throw;
    }
    caller_ = std::thread::id();
    return lock;
  }

  /// Where it stands now; with the lock, or while nobody else has it.
  void look() {
    at_ = feed_->state();
    shapes_ = tuples(feed_->feed().plan().shapes());
    steps_ = feed_->feed().plan().steps_per_epoch();
  }

  OfThisProcess<DeviceFeed> feed_;
  bool bins_first_;
  int device_id_;
  std::timed_mutex mutex_;
  std::atomic<std::thread::id> caller_;
  // With the GIL.
  FeedState at_;
  std::vector<ShapeTuple> shapes_;
  std::int64_t steps_ = 0;
};

nb::dict Core::stats() const {
  const FeedStats s = feed_->feed().stats();
  nb::dict stages, cache, d;
  for (std::size_t i = 0; i < stage_count; ++i) stages[stage_names[i]] = s.stage_seconds[i];
  cache["hits"] = s.cache.hits;
  cache["misses"] = s.cache.misses;
  cache["recomputed"] = s.cache.recomputed;
  cache["bytes_read"] = s.cache.bytes_read;
  const auto seconds = [](std::chrono::nanoseconds t) { return std::chrono::duration<double>(t).count(); };
  d["samples"] = s.samples;
  d["batches"] = s.wait.count();
  d["wait_seconds"] = seconds(s.wait.total());
  d["wait_p50"] = seconds(s.wait.quantile(0.5));
  d["wait_p99"] = seconds(s.wait.quantile(0.99));
  d["ring_level"] = s.ring_level;
  d["buffers"] = s.buffers;
  d["workers"] = s.active_workers;
  d["depth"] = s.depth;
  d["stage_seconds"] = stages;
  d["cache"] = cache;
  return d;
}

}  // namespace

void bind_feed(nb::module_& m) {
  nb::class_<Core>(m, "Core", "What Feed runs on. Any thread may call it.")
      .def(nb::init<const Settings&, std::int64_t, std::int64_t, const nb::object&>(), nb::arg("settings"),
           nb::arg("first") = 0, nb::arg("every") = 1, nb::arg("progress") = nb::none(),
           nb::sig("def __init__(self, settings: Settings, first: int = 0, every: int = 1, progress: "
                   "typing.Callable[[str, int, int], object] | None = None) -> None"),
           "Of each epoch only the batches first, first + every, ...")
      .def("next", &Core::next, "The next batch in order.")
      .def("state", &Core::state, nb::sig("def state(self) -> dict[str, typing.Any]"))
      .def("restore", &Core::restore, nb::arg("state"),
           nb::sig("def restore(self, state: dict[str, typing.Any]) -> None"))
      .def_prop_ro("steps_per_epoch", &Core::steps_per_epoch)
      .def_prop_ro("shapes", &Core::shapes)
      .def_prop_ro("skipped", &Core::skipped, nb::sig("def skipped(self) -> list[dict[str, typing.Any]]"))
      .def_prop_ro("recomputed", &Core::recomputed,
                   nb::sig("def recomputed(self) -> list[dict[str, typing.Any]]"))
      .def_prop_ro("notes", &Core::notes, nb::sig("def notes(self) -> list[str]"))
      .def_prop_ro("speakers", &Core::speakers, nb::sig("def speakers(self) -> list[str]"))
      .def_prop_ro("symbols", &Core::symbols)
      .def("stats", &Core::stats, nb::sig("def stats(self) -> dict[str, typing.Any]"));
}

}  // namespace penstock::python
