#include "penstock/device/cuda.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <list>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "penstock/core/error.h"
#include "penstock/device/cuda_calls.h"
#include "penstock/device/waits.h"

namespace penstock {
namespace {

#ifndef PENSTOCK_OMIT_WAITS
/// Whether the test build leaves this wait out.
constexpr bool omitted(Wait /*wait*/) { return false; }
#endif

using Lock = std::unique_lock<std::mutex>;
using cuda::Api, cuda::check, cuda::Handle, cuda::OnDevice;

class PinnedMemory final : public BatchMemory {
 public:
  PinnedMemory(Api api, int ordinal) : api_(std::move(api)), ordinal_(ordinal) {}

  void* allocate(std::size_t bytes) override {
    const OnDevice current(*api_, ordinal_);
    void* memory = nullptr;
    if (const int result = api_->cudaHostAlloc(&memory, bytes, cuda::host_alloc_portable);
        result != cuda::success)
      throw cuda::failure(
          *api_, fmt::format("cudaHostAlloc of {} bytes of pinned memory", bytes), result,
          result == cuda::memory_allocation ? "; lower prefetch_buffer_size or batch_size" : "");
    return memory;
  }
  void release(void* memory) noexcept override { api_->cudaFreeHost(memory); }

 private:
  Api api_;
  int ordinal_;
};

// Buffers.

/// Room for one batch on the device. Ring's mutex guards everything but what the state's owner uses:
/// `filling` and `held` buffers belong to a HeldOnDevice, `free` ones to the ring.
struct Buffer {
  enum class State { free, filling, held } state = State::free;
  std::uint64_t turn = 0;  // when it was let go of
  Handle memory;
  std::size_t capacity = 0;
  Handle begin, copied;                         // around its last copy
  std::chrono::steady_clock::time_point asked;  // for it
  bool copying = false;  // that copy has not been seen done: the slot must stay as it is
  Batch slot;
  std::vector<Handle> used;  // recorded on each stream when the buffer was let go of;
  std::size_t uses = 0;      // the first `uses` of them are to be waited for
};

/// The buffers of a stage, and what the stage and its batches share. The last of them frees the memory.
struct Ring {
  Ring(Api the_api, int device, int count, std::size_t bytes);
  ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  Buffer& add();
  [[nodiscard]] bool all_are(Buffer::State state) const;
  Buffer& take_oldest();
  void prepare(Buffer& buffer, const Batch& batch);
  void start_copy(Buffer& buffer, StreamHandle on);
  void finish_copy(Buffer& buffer, Wait wait);
  void retire_copies();
  void let_go(Buffer& buffer, std::span<const StreamHandle> streams) noexcept;

  const Api api;
  const int ordinal;
  Handle stream;
  mutable std::mutex mutex;
  std::condition_variable freed, arrived;  // for the stage's thread; for next()
  std::vector<std::unique_ptr<Buffer>> buffers;
  std::exception_ptr broken;  // the device has failed: nothing is copied any more
  std::uint64_t turns = 0;
  DeviceStats stats;
  std::function<void(const CopyDone&)> on_copied;

 private:
  Batch take_slot(Buffer& buffer);
};

Ring::Ring(Api the_api, int device, int count, std::size_t bytes) : api(std::move(the_api)), ordinal(device) {
  const OnDevice current(*api, ordinal);
  stream = cuda::make_stream(api);
  for (int i = 0; i < count; ++i) {
    Buffer& buffer = add();
    if (bytes == 0) continue;
    buffer.memory = cuda::device_memory(api, bytes);
    buffer.capacity = bytes;
  }
}

Ring::~Ring() {
  for (const auto& buffer : buffers)
    for (std::size_t i = 0; i < buffer->uses && !omitted(Wait::uses_at_the_end); ++i)
      api->cudaEventSynchronize(buffer->used[i].get());
}

Buffer& Ring::add() {
  auto buffer = std::make_unique<Buffer>();
  buffer->begin = cuda::make_event(api, cuda::event_blocking_sync);
  buffer->copied = cuda::make_event(api, cuda::event_blocking_sync);
  return *buffers.emplace_back(std::move(buffer));
}

bool Ring::all_are(Buffer::State state) const {
  return std::all_of(buffers.begin(), buffers.end(), [&](const auto& b) { return b->state == state; });
}

/// The buffer that has been free for the longest time. With the mutex held, and one free.
Buffer& Ring::take_oldest() {
  Buffer& oldest = **std::min_element(buffers.begin(), buffers.end(), [](const auto& a, const auto& b) {
    return std::pair(a->state, a->turn) < std::pair(b->state, b->turn);
  });
  oldest.state = Buffer::State::filling;
  return oldest;
}

/// Makes room for a batch and keeps its slot. The wait for the last copy keeps the number of slots that wait
/// for their copies at that of buffers, however far the consumer's launches run ahead of the device.
void Ring::prepare(Buffer& buffer, const Batch& batch) {
  if (batch.block.empty()) throw Error("device: cuda: a batch must lie in one block of memory, but has none");
  finish_copy(buffer, Wait::copy_before_reuse);
  if (buffer.capacity < batch.block.size()) {
    for (std::size_t i = 0; i < buffer.uses && !omitted(Wait::use_before_growth); ++i)
      check(*api, "cudaEventSynchronize", api->cudaEventSynchronize(buffer.used[i].get()));
    buffer.uses = 0;
    buffer.capacity = 0;
    buffer.memory.reset();
    buffer.memory = cuda::device_memory(api, batch.block.size());
    buffer.capacity = batch.block.size();
  }
  const std::lock_guard lock(mutex);
  buffer.slot = batch;
}

void Ring::start_copy(Buffer& buffer, StreamHandle on) {
  bool under_way = false;
  try {
    for (std::size_t i = 0; i < buffer.uses && !omitted(Wait::use_before_copy); ++i)
      check(*api, "cudaStreamWaitEvent", api->cudaStreamWaitEvent(on, buffer.used[i].get(), 0));
    const auto block = buffer.slot.block;
    buffer.asked = std::chrono::steady_clock::now();
    check(*api, "cudaEventRecord", api->cudaEventRecord(buffer.begin.get(), on));
    check(*api, "cudaMemcpyAsync",
          api->cudaMemcpyAsync(buffer.memory.get(), block.data(), block.size(), cuda::host_to_device, on));
    under_way = true;
    check(*api, "cudaEventRecord", api->cudaEventRecord(buffer.copied.get(), on));
  } catch (...) {
    if (under_way && !omitted(Wait::copy_after_failure)) api->cudaStreamSynchronize(on);
    const std::lock_guard lock(mutex);
    if (!broken) broken = std::current_exception();
    throw;
  }
  buffer.uses = 0;  // whoever waits for this copy waits for them
  const std::lock_guard lock(mutex);
  buffer.copying = true;
}

/// The slot of a copy that is done, to be let go of without the mutex.
Batch Ring::take_slot(Buffer& buffer) {
  float milliseconds = 0;
  if (api->cudaEventElapsedTime(&milliseconds, buffer.begin.get(), buffer.copied.get()) == cuda::success)
    stats.copy_seconds += milliseconds / 1e3;
  if (on_copied) {
    const auto index = std::ranges::find_if(buffers, [&](const auto& b) { return b.get() == &buffer; });
    const auto now = std::chrono::steady_clock::now();
    const std::chrono::nanoseconds took(static_cast<std::int64_t>(milliseconds * 1e6));
    on_copied({.batch = buffer.slot,
               .buffer = static_cast<std::size_t>(index - buffers.begin()),
               .begin = buffer.asked,
               .end = std::min(now, buffer.asked + took)});
  }
  stats.bytes += buffer.slot.block.size();
  buffer.copying = false;
  return std::exchange(buffer.slot, {});
}

/// Waits for the copy, if one is under way, and lets go of its slot.
void Ring::finish_copy(Buffer& buffer, Wait wait) {
  {
    const std::lock_guard lock(mutex);
    if (!buffer.copying) return;
  }
  if (!omitted(wait)) check(*api, "cudaEventSynchronize", api->cudaEventSynchronize(buffer.copied.get()));
  Batch done;
  const std::lock_guard lock(mutex);
  if (buffer.copying) done = take_slot(buffer);
}

/// Lets go of the slots whose copies are done.
void Ring::retire_copies() {
  std::vector<Batch> done;
  const std::lock_guard lock(mutex);
  for (const auto& buffer : buffers)
    if (buffer->copying && (omitted(Wait::copy_before_refill) || cuda::is_done(*api, buffer->copied.get())))
      done.push_back(take_slot(*buffer));
}

/// The consumer is done with launching work on `streams` that uses the buffer.
void Ring::let_go(Buffer& buffer, std::span<const StreamHandle> streams) noexcept {
  int failed = cuda::success;
  std::size_t recorded = 0;
  {
    const OnDevice current(*api, ordinal);
    for (StreamHandle on : streams) {
      const int result = api->cudaEventRecord(buffer.used[recorded].get(), on);
      if (result == cuda::success) {
        ++recorded;
        continue;
      }
      failed = result;
      if (!omitted(Wait::use_after_failure)) api->cudaStreamSynchronize(on);
    }
  }
  Batch unused;
  const std::lock_guard lock(mutex);
  if (!streams.empty()) buffer.uses = recorded;
  if (!buffer.copying) unused = std::exchange(buffer.slot, {});
  if (failed != cuda::success && !broken)
    broken = std::make_exception_ptr(cuda::failure(*api, "cudaEventRecord", failed));
  buffer.state = Buffer::State::free;
  buffer.turn = ++turns;
  freed.notify_one();
  if (broken) arrived.notify_one();
}

// Batches.

/// A batch whose arrays lie in a buffer. With `late` its copy waits for the first use.
class HeldOnDevice final : public DeviceBatch::Held {
 public:
  HeldOnDevice(std::shared_ptr<Ring> ring, Buffer& buffer) : ring_(std::move(ring)), buffer_(buffer) {}
  ~HeldOnDevice() override { ring_->let_go(buffer_, streams_); }

  void fill(const Batch& batch, bool late) {
    ring_->prepare(buffer_, batch);
    describe(batch);
    if (!late) start_copy(ring_->stream.get());
  }

  void deliver() { buffer_.state = Buffer::State::held; }

  void use_on(StreamHandle stream) override {
    const std::lock_guard lock(mutex_);
    if (std::find(streams_.begin(), streams_.end(), stream) != streams_.end()) return;
    const CudaApi& api = *ring_->api;
    const OnDevice current(api, ring_->ordinal);
    if (buffer_.used.size() == streams_.size())
      buffer_.used.push_back(
          cuda::make_event(ring_->api, cuda::event_disable_timing | cuda::event_blocking_sync));
    if (!started_)
      start_copy(stream);
    else if (!omitted(Wait::copy_before_use))
      check(api, "cudaStreamWaitEvent", api.cudaStreamWaitEvent(stream, buffer_.copied.get(), 0));
    streams_.push_back(stream);
  }

  void wait() override {
    bool started = false;
    {
      const std::lock_guard lock(mutex_);
      started = started_;
    }
    if (!started) use_on(ring_->stream.get());
    ring_->finish_copy(buffer_, Wait::arrival);
  }

 private:
  void start_copy(StreamHandle stream) {
    ring_->start_copy(buffer_, stream);
    started_ = true;
  }
  void describe(const Batch& batch);

  std::shared_ptr<Ring> ring_;
  Buffer& buffer_;
  std::mutex mutex_;
  bool started_ = false;
  std::vector<StreamHandle> streams_;
  std::vector<std::byte> small_;
  std::vector<ExtraArray> extras_;
  std::list<std::string> names_;
};

/// `array`, which lies in `block`, at its place in the copy of the block's first bytes at `copy`.
template <typename T>
std::span<const T> moved(std::span<const T> array, std::span<const std::byte> block, const void* copy,
                         std::size_t bytes) {
  if (array.empty()) return {};
  const auto offset =
      reinterpret_cast<std::uintptr_t>(array.data()) - reinterpret_cast<std::uintptr_t>(block.data());
  if (offset > bytes || array.size_bytes() > bytes - offset)
    throw Error("device: cuda: a batch's arrays must lie in its block, the small ones in its first bytes");
  return {reinterpret_cast<const T*>(static_cast<const std::byte*>(copy) + offset), array.size()};
}

void move_small(Batch& to, const Batch& from, const void* copy, std::size_t bytes) {
  to.token_lengths = moved(from.token_lengths, from.block, copy, bytes);
  to.mel_lengths = moved(from.mel_lengths, from.block, copy, bytes);
  to.speakers = moved(from.speakers, from.block, copy, bytes);
  to.utterances = moved(from.utterances, from.block, copy, bytes);
  to.replaced = moved(from.replaced, from.block, copy, bytes);
}

/// Sets `device` and `host`.
void HeldOnDevice::describe(const Batch& batch) {
  const Batch head{.shape = batch.shape, .bins = batch.bins, .epoch = batch.epoch, .step = batch.step};
  const auto* memory = static_cast<const std::byte*>(buffer_.memory.get());
  const std::size_t bytes = batch.block.size();
  device = head;
  move_small(device, batch, memory, bytes);
  device.tokens = moved(batch.tokens, batch.block, memory, bytes);
  device.mel = moved(batch.mel, batch.block, memory, bytes);
  for (const ExtraArray& extra : batch.extras) {
    extras_.push_back(extra);
    extras_.back().name = names_.emplace_back(extra.name);
    extras_.back().data = moved(extra.data, batch.block, memory, bytes);
  }
  device.extras = extras_;
  device.block = {memory, bytes};
  device.small_bytes = batch.small_bytes;
  host = head;
  const auto small = batch.block.first(std::min(batch.small_bytes, bytes));
  small_.assign(small.begin(), small.end());
  move_small(host, batch, small_.data(), small_.size());
}

// Stages.

class CudaStage : public DeviceStage {
 public:
  CudaStage(std::shared_ptr<Ring> ring, BatchSource source)
      : ring_(std::move(ring)), source_(std::move(source)) {}

  [[nodiscard]] DeviceStats stats() const override {
    ring_->retire_copies();
    const std::lock_guard lock(ring_->mutex);
    return ring_->stats;
  }

 protected:
  /// Slots must not go while they are copied from.
  void finish_copies() noexcept {
    for (const auto& buffer : ring_->buffers) {
      try {
        ring_->finish_copy(*buffer, Wait::copies_at_the_end);
      } catch (const Error&) {
        continue;  // a lost device copies nothing any more
      }
    }
  }

  /// With the mutex held.
  DeviceBatch deliver(std::shared_ptr<HeldOnDevice> held) {
    held->deliver();
    ++ring_->stats.batches;
    return DeviceBatch(std::move(held));
  }

  /// With the mutex held: never wait for a buffer that only the caller can let go of.
  void require_a_buffer() const {
    if (ring_->all_are(Buffer::State::held))
      throw Error(
          fmt::format("device: all {} buffers are held by the consumer: let go of a batch before asking "
                      "for the next, or raise device_buffer_size",
                      ring_->buffers.size()));
  }

  const std::shared_ptr<Ring> ring_;
  const BatchSource source_;
};

/// Copies when a batch is asked for and used; nothing runs ahead.
class SerialStage final : public CudaStage {
 public:
  using CudaStage::CudaStage;
  ~SerialStage() override { finish_copies(); }

  DeviceBatch next(const Poll& poll) override {
    ring_->retire_copies();
    {
      const std::lock_guard lock(ring_->mutex);
      if (ring_->broken) std::rethrow_exception(ring_->broken);
      require_a_buffer();
    }
    const Batch batch = source_(poll);
    const OnDevice current(*ring_->api, ring_->ordinal);
    Lock lock(ring_->mutex);
    const auto held = std::make_shared<HeldOnDevice>(ring_, ring_->take_oldest());
    lock.unlock();
    held->fill(batch, true);
    lock.lock();
    return deliver(held);
  }
};

/// A thread of its own copies batches as long as there are buffers; next() takes them from its queue.
class OverlappedStage final : public CudaStage {
 public:
  OverlappedStage(std::shared_ptr<Ring> ring, BatchSource source)
      : CudaStage(std::move(ring), std::move(source)), thread_([this] { run(); }) {}

  ~OverlappedStage() override {
    {
      const std::lock_guard lock(ring_->mutex);
      stopping_ = true;
    }
    ring_->freed.notify_one();
    thread_.join();
    queue_.clear();
    finish_copies();
  }

  DeviceBatch next(const Poll& poll) override {
    Lock lock(ring_->mutex);
    if (queue_.empty()) {
      if (ring_->broken) std::rethrow_exception(ring_->broken);
      require_a_buffer();
      if (std::exchange(paused_, false)) ring_->freed.notify_one();
    }
    wait_until(ring_->arrived, lock, poll, [&] { return !queue_.empty() || ring_->broken; });
    if (queue_.empty()) std::rethrow_exception(ring_->broken);
    const Arrival arrival = std::move(queue_.front());
    queue_.pop_front();
    if (arrival.error) std::rethrow_exception(arrival.error);
    return deliver(arrival.held);
  }

 private:
  /// A batch, or what the source threw in its place.
  struct Arrival {
    std::shared_ptr<HeldOnDevice> held;
    std::exception_ptr error;
  };

  void run() {
    ring_->api->cudaSetDevice(ring_->ordinal);  // an error shows in the calls that follow
    try {
      while (turn()) {
      }
    } catch (...) {
      const std::lock_guard lock(ring_->mutex);
      if (!ring_->broken) ring_->broken = std::current_exception();
    }
    ring_->arrived.notify_one();
  }

  /// One batch. False: that was the end.
  bool turn() {
    ring_->retire_copies();
    const auto batch = ask();
    std::shared_ptr<HeldOnDevice> held;
    {
      Lock lock(ring_->mutex);
      ring_->freed.wait(lock, [&] { return stopping_ || ring_->broken || may_go_on(batch.has_value()); });
      if (stopping_ || ring_->broken) return false;
      if (!batch) return true;
      held = std::make_shared<HeldOnDevice>(ring_, ring_->take_oldest());
    }
    held->fill(*batch, false);
    push({.held = std::move(held)});
    return true;
  }

  /// Whether there is a buffer for the batch; after an error, whether next() was called again.
  bool may_go_on(bool has_batch) const {
    if (!has_batch) return !paused_;
    return omitted(Wait::free_buffer) ||
           std::any_of(ring_->buffers.begin(), ring_->buffers.end(),
                       [](const auto& b) { return b->state == Buffer::State::free; });
  }

  /// The source's next batch; nothing when it threw.
  std::optional<Batch> ask() {
    std::exception_ptr error;
    try {
      return source_(Poll());
    } catch (...) {
      error = std::current_exception();
    }
    push({.error = std::move(error)});  // from here on next() has it alone
    return {};
  }

  void push(Arrival arrival) {
    const std::lock_guard lock(ring_->mutex);
    paused_ = arrival.error != nullptr;
    queue_.push_back(std::move(arrival));
    ring_->arrived.notify_one();
  }

  std::deque<Arrival> queue_;
  bool stopping_ = false, paused_ = false;
  std::thread thread_;
};

// The device.

class CudaDevice final : public Device {
 public:
  CudaDevice(Api the_api, int ordinal) : api(std::move(the_api)), ordinal_(ordinal) {}

  [[nodiscard]] DeviceInfo info() const override {
    const OnDevice current(*api, ordinal_);
    // A cudaDeviceProp of any version: the name is its first member.
    alignas(64) std::array<char, 16384> properties{};
    check(*api, "cudaGetDeviceProperties", api->cudaGetDeviceProperties(properties.data(), ordinal_));
    DeviceInfo info{.name = {properties.data(), strnlen(properties.data(), 256)}};
    std::size_t free = 0, total = 0;
    check(*api, "cudaMemGetInfo", api->cudaMemGetInfo(&free, &total));
    info.free_bytes = free;
    info.total_bytes = total;
    return info;
  }

  std::shared_ptr<BatchMemory> batch_memory() override {
    return std::make_shared<PinnedMemory>(api, ordinal_);
  }

  DeviceBatch copy(const Batch& batch) override {
    const OnDevice current(*api, ordinal_);
    const auto ring = copies();
    std::shared_ptr<HeldOnDevice> held;
    {
      const std::lock_guard lock(ring->mutex);
      if (std::none_of(ring->buffers.begin(), ring->buffers.end(),
                       [](const auto& b) { return b->state == Buffer::State::free; }))
        ring->add();
      held = std::make_shared<HeldOnDevice>(ring, ring->take_oldest());
    }
    held->fill(batch, false);
    held->wait();
    return DeviceBatch(std::move(held));
  }

  std::unique_ptr<DeviceStage> stage(BatchSource source, const StageOptions& options) override {
    if (options.buffers < 2)
      throw Error(fmt::format("device_buffer_size: must be at least 2, but is {}", options.buffers));
    auto ring = std::make_shared<Ring>(api, ordinal_, options.buffers, options.batch_bytes);
    ring->on_copied = options.copied;
    if (!options.overlap) return std::make_unique<SerialStage>(std::move(ring), std::move(source));
    return std::make_unique<OverlappedStage>(std::move(ring), std::move(source));
  }

  const Api api;

 private:
  /// As many buffers as the consumer holds batches of copy().
  std::shared_ptr<Ring> copies() {
    const std::lock_guard lock(mutex_);
    if (copies_ == nullptr) copies_ = std::make_shared<Ring>(api, ordinal_, 0, 0);
    return copies_;
  }

  int ordinal_;
  std::mutex mutex_;
  std::shared_ptr<Ring> copies_;
};

}  // namespace

std::shared_ptr<Device> cuda_device(std::shared_ptr<const CudaApi> api, int ordinal) {
  int count = 0;
  check(*api, "cudaGetDeviceCount", api->cudaGetDeviceCount(&count));
  if (ordinal < 0 || ordinal >= count)
    throw Error(fmt::format("device: cuda:{}: there {} only (0 to {})", ordinal,
                            count == 1 ? "is 1 device" : fmt::format("are {} devices", count), count - 1));
  return std::make_shared<CudaDevice>(std::move(api), ordinal);
}

std::shared_ptr<const CudaApi> runtime_of(const Device& device) {
  const auto* cuda = dynamic_cast<const CudaDevice*>(&device);
  return cuda == nullptr ? nullptr : cuda->api;
}

}  // namespace penstock
