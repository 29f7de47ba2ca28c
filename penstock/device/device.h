// The last stage: batches on an accelerator before it asks for them.
//
//   std::shared_ptr<Device> device = open_device("cuda");
//   Feed feed(config, {.memory = device->batch_memory()});          // slots that copies can start from
//   auto stage = device->stage([&](const Poll& poll) { return feed.next(poll); }, {});
//   for (;;) { DeviceBatch batch = stage->next(); batch.use_on(stream); ... launch the step on `stream` ... }
//
// feed/device_feed.h puts the two together.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "penstock/core/memory.h"
#include "penstock/core/threads.h"
#include "penstock/core/types.h"

namespace penstock {

/// A cudaStream_t; null is the default stream. Means nothing on the host.
using StreamHandle = void*;

/// A batch that is, or will be, where the consumer wants it. Copies share it; when the last one goes, its
/// memory is used again as soon as the work on all its streams that was there at this moment is done. Any
/// thread may let go of it.
class DeviceBatch {
 public:
  /// What a stage keeps of a batch.
  struct Held {
    Held() = default;
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    virtual ~Held() = default;
    virtual void use_on(StreamHandle stream) = 0;
    virtual void wait() = 0;
    Batch device, host;
  };
  DeviceBatch() = default;
  explicit DeviceBatch(std::shared_ptr<Held> held) : held_(std::move(held)) {}

  /// Its arrays lie in the device's memory (on the host: in ordinary memory), for as long as a DeviceBatch
  /// holds them.
  [[nodiscard]] const Batch& device() const { return held_->device; }
  /// What the host can read of it at once: shape, epoch, step, lengths, speakers, utterances, replaced. Mel,
  /// tokens and extras are empty, unless the device is the host.
  [[nodiscard]] const Batch& host() const { return held_->host; }
  /// Work that is put on `stream` from here on sees the batch, and has it until that work is done. Never
  /// waits. Must be called for every stream that uses it; the stream must exist until the batch is let go of.
  /// Throws Error.
  void use_on(StreamHandle stream) const { held_->use_on(stream); }
  /// Waits until it has arrived: for hosts that want to read it back or to know the time.
  void wait() const { held_->wait(); }
  explicit operator bool() const { return held_ != nullptr; }

 private:
  std::shared_ptr<Held> held_;
};

/// Where a stage's batches come from.
using BatchSource = std::function<Batch(const Poll&)>;

/// A copy that is done, on the host's clock: from when it was asked for on, as long as the device says that
/// it took. Copies into the same buffer never overlap.
struct CopyDone {
  const Batch& batch;
  std::size_t buffer = 0;
  std::chrono::steady_clock::time_point begin, end;
};

struct StageOptions {
  std::int32_t buffers =
      2;  ///< batches on the device, the consumer's included (device_buffer_size); 2 or more
  /// Of the largest batch: then buffers are made at once, and a lack of memory is an error here and now. 0:
  /// they grow when larger batches come.
  std::size_t batch_bytes = 0;
  /// A copy runs while the consumer computes; false: each starts when the batch is asked for, on the stream
  /// that uses it first, and nothing else goes on meanwhile.
  bool overlap = true;
  /// Called for every copy, by one thread at a time; must not call the stage. May be empty.
  std::function<void(const CopyDone&)> copied;
};

struct DeviceStats {
  std::int64_t batches = 0;  ///< delivered
  std::uint64_t bytes = 0;   ///< of the copies that are done, for batches that wait to be delivered too
  double copy_seconds = 0;   ///< that the device spent on these copies, as its own clock says
};

/// One thread calls next(). Neither it nor the consumer's use of batches waits for the device, unless
/// launches run ahead of it by more steps than there are buffers.
class DeviceStage {
 public:
  DeviceStage() = default;
  DeviceStage(const DeviceStage&) = delete;
  DeviceStage& operator=(const DeviceStage&) = delete;
  /// Waits for copies that are under way. Batches that the consumer still holds stay good.
  virtual ~DeviceStage() = default;

  /// The next batch of the source. Waits until the source has it, not until it has been copied. Throws what
  /// the source threw, in its place in the order (and again, when called again: the source is asked again),
  /// and Error when the consumer holds all buffers or the device fails.
  virtual DeviceBatch next(const Poll& poll) = 0;
  DeviceBatch next() { return next(Poll()); }
  /// Any thread.
  [[nodiscard]] virtual DeviceStats stats() const = 0;
};

struct DeviceInfo {
  std::string name;                               ///< "NVIDIA GeForce RTX 4090", "host", "simulated"
  std::uint64_t free_bytes = 0, total_bytes = 0;  ///< of its memory; 0 for the host
};

/// Must outlive nothing: stages and batches keep what they need.
class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  [[nodiscard]] virtual DeviceInfo info() const = 0;
  /// What slots must be made of, so that copies need no help from the host: pinned on an accelerator.
  [[nodiscard]] virtual std::shared_ptr<BatchMemory> batch_memory() = 0;
  /// Copies a batch from any memory and waits for it: what a consumer without this stage does
  /// (`device_prefetch: false`).
  virtual DeviceBatch copy(const Batch& batch) = 0;
  /// Takes batches from `source` (called on a thread of the stage's own with `overlap`, else inside next(),
  /// with its poll) and puts them on the device, in their order.
  virtual std::unique_ptr<DeviceStage> stage(BatchSource source, const StageOptions& options) = 0;
};

/// `cpu`, `cuda`, `cuda:1`, or `simulated`: a stand-in that copies with 12 GB/s after 10 us (or with
/// PENSTOCK_SIMULATED_BANDWIDTH bytes a second). Throws Error saying what is missing: the runtime's library,
/// one of its functions, a driver, a device of this number.
std::shared_ptr<Device> open_device(const std::string& name);

}  // namespace penstock
