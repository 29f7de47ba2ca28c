// The feed: one call per batch, and the GIL only for what Python sees of it.
#include <mutex>
#include <optional>

#include <nanobind/stl/string.h>
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
    d["id"] = s.id;
    d["path"] = s.path;
    d["reason"] = s.reason;
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
  Core(const Settings& settings, std::int64_t first, std::int64_t every)
      : feed_(open(settings.config, first, every)),
        bins_first_(settings.config.mel.layout == MelLayout::bins_first),
        device_id_(device_number(settings.config.device)) {}

  BatchView next() {
    DeviceFeed& feed = feed_.get();
    DeviceBatch batch;
    {
      const nb::gil_scoped_release released;
      const std::lock_guard lock(mutex_);
      batch = feed.next(poll_signals);
    }
    std::vector<std::string> ids;
    ids.reserve(batch.host().utterances.size());
    const Index& index = feed.feed().dataset().index;
    for (const std::int64_t number : batch.host().utterances)
      ids.emplace_back(number < 0 ? std::string_view() : index.utterance(number).id);
    return {std::move(batch), std::move(ids), bins_first_, device_id_};
  }

  [[nodiscard]] nb::dict state() const {
    const DeviceFeed& feed = feed_.get();
    std::optional<FeedState> state;
    {
      const nb::gil_scoped_release released;
      const std::lock_guard lock(mutex_);
      state = feed.state();
    }
    return dict_of(*state);
  }

  void restore(const nb::dict& to) {
    const FeedState state = state_of(to);
    DeviceFeed& feed = feed_.get();
    const nb::gil_scoped_release released;
    const std::lock_guard lock(mutex_);
    feed.restore(state);
  }

  [[nodiscard]] std::int64_t steps_per_epoch() const { return feed_->feed().plan().steps_per_epoch(); }
  [[nodiscard]] std::vector<ShapeTuple> shapes() const { return tuples(feed_->feed().plan().shapes()); }
  [[nodiscard]] nb::list skipped() const { return list_of(feed_->feed().skipped()); }
  [[nodiscard]] nb::list recomputed() const { return list_of(feed_->feed().recomputed()); }
  [[nodiscard]] std::vector<std::string> notes() const { return feed_->feed().dataset().notes; }
  [[nodiscard]] std::vector<std::string> speakers() const {
    const auto names = feed_->feed().dataset().index.speakers();
    return {names.begin(), names.end()};
  }
  [[nodiscard]] nb::dict stats() const;

 private:
  static std::unique_ptr<DeviceFeed> open(const Config& config, std::int64_t first, std::int64_t every) {
    if (every < 1 || first < 0 || first >= every)
      throw Error("a share must be first of every: 0 <= first < every");
    std::unique_ptr<DeviceFeed> feed;
    interruptible([&](const Cancelled& cancelled) {
      FeedOptions options{.consumer_writes = config.device == "cpu", .first = first, .every = every};
      options.open.progress = [&](std::size_t, std::size_t) { stop_if(cancelled); };
      options.open.building = [&](std::size_t, std::size_t, std::uint64_t) { stop_if(cancelled); };
      feed = std::make_unique<DeviceFeed>(config, options);
    });
    return feed;
  }

  OfThisProcess<DeviceFeed> feed_;
  mutable std::mutex mutex_;
  bool bins_first_;
  int device_id_;
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
  nb::class_<Core>(m, "Core")
      .def(nb::init<const Settings&, std::int64_t, std::int64_t>(), nb::arg("settings"), nb::arg("first") = 0,
           nb::arg("every") = 1)
      .def("next", &Core::next)
      .def("state", &Core::state)
      .def("restore", &Core::restore, nb::arg("state"))
      .def_prop_ro("steps_per_epoch", &Core::steps_per_epoch)
      .def_prop_ro("shapes", &Core::shapes)
      .def_prop_ro("skipped", &Core::skipped)
      .def_prop_ro("recomputed", &Core::recomputed)
      .def_prop_ro("notes", &Core::notes)
      .def_prop_ro("speakers", &Core::speakers)
      .def("stats", &Core::stats);
}

}  // namespace penstock::python
