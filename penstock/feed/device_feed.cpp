#include "penstock/feed/device_feed.h"

#include <utility>

#include <fmt/format.h>

namespace penstock {
namespace {

Config with_memory(Config config, const Device& device) {
  if (config.batch_size == 0 && config.device_memory == 0)
    config.device_memory = static_cast<std::int64_t>(device.info().free_bytes);
  return config;
}

FeedOptions with_slots(FeedOptions options, const Config& config, Device& device) {
  if (config.device_prefetch) options.memory = device.batch_memory();
  return options;
}

void put_on(Trace& trace, const CopyDone& copy) {
  trace.track(fmt::format("copy {}", copy.buffer))
      .add("copy", copy.begin, copy.end, {.epoch = copy.batch.epoch, .step = copy.batch.step});
}

}  // namespace

struct DeviceFeed::State {
  State(const Config& c, const FeedOptions& options)
      : device(open_device(c.device)),
        config(with_memory(c, *device)),
        trace(options.trace),
        feed(config, with_slots(options, config, *device)),
        at(feed.state()) {
    start();
  }

  void start() {
    if (config.device_prefetch)
      stage = device->stage([this](const Poll& poll) { return feed.next(poll); },
                            {.buffers = config.device_buffer_size,
                             .batch_bytes = feed.batch_bytes(),
                             .overlap = config.overlap,
                             .copied = trace ? [to = trace](const CopyDone& copy) { put_on(*to, copy); }
                                             : std::function<void(const CopyDone&)>()});
  }

  /// Without the stage: the copy is waited for.
  DeviceBatch copy(const Batch& batch) {
    const auto begin = std::chrono::steady_clock::now();
    DeviceBatch copied = device->copy(batch);
    const auto end = std::chrono::steady_clock::now();
    if (trace) put_on(*trace, {.batch = batch, .begin = begin, .end = end});
    if (config.device == "cpu") return copied;
    copy_wait = end - begin;
    ++copies.batches;
    copies.bytes += batch.block.size();
    copies.copy_seconds += std::chrono::duration<double>(copy_wait).count();
    return copied;
  }

  std::shared_ptr<Device> device;
  const Config config;
  const std::shared_ptr<Trace> trace;
  Feed feed;
  std::unique_ptr<DeviceStage> stage;  // behind the feed, so that it ends first; none without prefetching
  FeedState at;
  DeviceStats copies;  // without the stage
  std::chrono::steady_clock::duration copy_wait{0};
};

DeviceFeed::DeviceFeed(const Config& config, const FeedOptions& options)
    : state_(std::make_unique<State>(config, options)) {}

DeviceFeed::~DeviceFeed() = default;

DeviceBatch DeviceFeed::next(const Poll& poll) {
  State& s = *state_;
  DeviceBatch batch = s.stage ? s.stage->next(poll) : s.copy(s.feed.next(poll));
  s.at.epoch = batch.host().epoch;
  s.at.step = batch.host().step + 1;
  return batch;
}

FeedState DeviceFeed::state() const { return state_->at; }

void DeviceFeed::restore(const FeedState& to) {
  State& s = *state_;
  s.stage.reset();  // nobody asks the feed any more
  try {
    s.feed.restore(to);
  } catch (...) {
    // Nothing has changed, but what was on its way is gone: go on behind what was delivered last.
    s.feed.restore(s.at);
    s.start();
    throw;
  }
  s.at = s.feed.state();
  s.start();
}

void DeviceFeed::reset() { restore({.seed = state_->at.seed}); }

const Feed& DeviceFeed::feed() const { return state_->feed; }
Device& DeviceFeed::device() const { return *state_->device; }
DeviceStats DeviceFeed::device_stats() const {
  return state_->stage ? state_->stage->stats() : state_->copies;
}
std::chrono::steady_clock::duration DeviceFeed::copy_wait() const { return state_->copy_wait; }

}  // namespace penstock
