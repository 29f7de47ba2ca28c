// A feed whose batches are on a device before they are asked for: pinned slots, the feed that fills them, and
// the device's stage behind it.
#pragma once
#include <chrono>
#include <memory>

#include "penstock/core/config.h"
#include "penstock/device/device.h"
#include "penstock/feed/feed.h"

namespace penstock {

/// As Feed: one thread calls the methods; batches may go to any thread and may outlive the feed.
class DeviceFeed {
 public:
  /// `device`, `device_prefetch`, `overlap` and `device_buffer_size` as configured. `batch_size: auto` takes
  /// the device's free memory where `device_memory` does not say anything.
  explicit DeviceFeed(const Config& config, const FeedOptions& options = {});
  ~DeviceFeed();
  DeviceFeed(const DeviceFeed&) = delete;
  DeviceFeed& operator=(const DeviceFeed&) = delete;

  /// The next batch in plan order. Waits until it is full, and not for its copy.
  DeviceBatch next(const Poll& poll = {});

  /// Behind the last batch that next() delivered; those on their way do not count.
  [[nodiscard]] FeedState state() const;
  void restore(const FeedState& state);
  void reset();

  /// For what only looks: plan, dataset, stats, skipped, recomputed.
  [[nodiscard]] const Feed& feed() const;
  [[nodiscard]] Device& device() const;
  [[nodiscard]] DeviceStats device_stats() const;
  /// How long the last next() waited for the copy of its batch: nothing, unless `device_prefetch` is off.
  [[nodiscard]] std::chrono::steady_clock::duration copy_wait() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace penstock
