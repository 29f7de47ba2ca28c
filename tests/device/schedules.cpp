#include "schedules.h"

#include <condition_variable>
#include <deque>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "penstock/core/error.h"
#include "penstock/core/random.h"
#include "penstock/device/sim/runtime.h"
#include "slots.h"

namespace penstock {
namespace {

/// The first problem of a life, from any thread.
class Problem {
 public:
  void note(const std::string& what) {
    const std::lock_guard lock(mutex_);
    if (text_.empty()) text_ = what;
  }
  std::string text() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

/// What a step on a stream does: reads its batch.
struct Step {
  std::span<const std::byte> block;
  std::int64_t number = 0;
  Problem* problem = nullptr;

  static void run(void* data) {
    const auto& step = *static_cast<Step*>(data);
    if (auto wrong = difference(step.block, 0, step.number); !wrong.empty()) step.problem->note(wrong);
  }
};

/// Lets go of batches on a thread of its own, a little later.
class Releaser {
 public:
  Releaser() : thread_([this] { run(); }) {}
  ~Releaser() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Releaser(const Releaser&) = delete;
  Releaser& operator=(const Releaser&) = delete;

  void take(DeviceBatch batch) {
    const std::lock_guard lock(mutex_);
    batches_.push_back(std::move(batch));
    ++held_;
    changed_.notify_all();
  }
  /// Waits until it holds fewer than `count`.
  void until_below(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return held_ < count; });
  }
  std::size_t held() {
    const std::lock_guard lock(mutex_);
    return held_;
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return !batches_.empty() || stopping_; });
      if (batches_.empty()) return;
      DeviceBatch batch = std::move(batches_.front());
      batches_.pop_front();
      lock.unlock();
      std::this_thread::yield();
      batch = {};
      lock.lock();
      --held_;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<DeviceBatch> batches_;
  std::size_t held_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

class Life {
 public:
  Life(std::uint64_t seed, const OpenDevice& open) : state_(seed) {
    sim::Options options{.seed = draw(1u << 30)};
    options.lateness = draw(2) == 0 ? sim::Lateness::random : sim::Lateness::latest;
    options.latest = std::chrono::microseconds(50 + draw(400));
    options.devices = 2;
    if (failing_ = draw(4) == 0; failing_)
      options.failures = {{.function = "cudaEventRecord", .call = 1 + pick(30), .error = 719}};
    runtime_ = std::make_shared<sim::Runtime>(options);
    api_ = sim::api_of(runtime_);
    device_ = open(api_, ordinal_ = pick(2));
    api_->cudaSetDevice(ordinal_);  // of this thread only: the one that lets go has another
    slots_ = std::make_unique<TestSlots>(device_->batch_memory(), 16384);
    for (auto& stream : streams_) api_->cudaStreamCreateWithFlags(&stream, 1);
    streams_.push_back(nullptr);
    for (int i = 0; i < 3; ++i)
      shapes_.push_back({.rows = 1 + pick(3), .tokens = 1 + pick(20), .frames = 1 + pick(100)});
  }

  std::string run() {
    try {
      draw(4) == 0 ? copy_one_by_one() : use_a_stage();
    } catch (const Error& error) {
      if (!failing_) problem_.note(error.what());
    }
    for (void* stream : streams_)
      if (api_->cudaStreamSynchronize(stream) != 0) problem_.note("a stream failed");
    for (void* stream : streams_)
      if (stream != nullptr) api_->cudaStreamDestroy(stream);
    slots_.reset();
    device_.reset();
    if (int current = -1; api_->cudaGetDevice(&current) != 0 || current != ordinal_)
      problem_.note("the caller's device has changed");
    for (const auto& fault : runtime_->faults()) problem_.note(fault);
    return problem_.text();
  }

 private:
  std::uint64_t draw(std::uint64_t below) { return mix(state_++) % below; }
  int pick(int below) { return static_cast<int>(draw(static_cast<std::uint64_t>(below))); }

  Batch fill(std::int64_t number) {
    return slots_->fill(number, shapes_[mix(static_cast<std::uint64_t>(number)) % shapes_.size()]);
  }

  void use_a_stage() {
    const StageOptions options{
        .buffers = 2 + pick(4), .batch_bytes = draw(3) == 0 ? 16384u : 0u, .overlap = draw(3) != 0};
    const auto limit = static_cast<std::size_t>(options.buffers);
    std::int64_t filled = 0;
    const int batches = 5 + pick(10);
    Releaser releaser;
    std::deque<DeviceBatch> kept;
    {
      const auto stage = device_->stage([&](const Poll&) { return fill(filled++); }, options);
      for (int n = 0; n < batches && problem_.text().empty(); ++n) {
        while (kept.size() + releaser.held() >= limit)
          kept.empty() ? releaser.until_below(limit) : let_go(kept, releaser);
        DeviceBatch batch = stage->next();
        if (batch.device().step != n) problem_.note(fmt::format("batch {} came as {}", n, batch.host().step));
        look_at(batch);
        kept.push_back(std::move(batch));
        while (!kept.empty() && draw(2) == 0) let_go(kept, releaser);
        if (draw(8) == 0) (void)stage->stats();
      }
    }
    // What outlives the stage stays good, and may still be used.
    for (const DeviceBatch& batch : kept)
      if (draw(2) == 0) look_at(batch);
    while (!kept.empty()) let_go(kept, releaser);
  }

  /// What a consumer without the stage does.
  void copy_one_by_one() {
    TestSlots pageable(heap_memory(), 16384);
    std::deque<DeviceBatch> kept;
    for (int n = 0; n < 5 + pick(10); ++n) {
      const bool pinned = draw(4) != 0;
      kept.push_back(device_->copy(
          pinned ? fill(n) : pageable.fill(n, shapes_[mix(static_cast<std::uint64_t>(n)) % shapes_.size()])));
      if (draw(2) == 0) (void)fill(n + 100);  // its slot is used again at once
      look_at(kept.back());
      while (kept.size() > draw(4)) kept.pop_front();
    }
  }

  void let_go(std::deque<DeviceBatch>& kept, Releaser& releaser) {
    const auto one = kept.begin() + pick(static_cast<int>(kept.size()));
    DeviceBatch batch = std::move(*one);
    kept.erase(one);
    if (draw(3) == 0) releaser.take(std::move(batch));
  }

  /// None, one or two steps on streams, and sometimes a look from the host.
  void look_at(const DeviceBatch& batch) {
    check_host(batch);
    const Batch& device = batch.device();
    for (auto steps = draw(4); steps-- > 0 && steps < 2;) {
      void* stream = streams_[draw(streams_.size())];
      batch.use_on(stream);
      steps_.push_back({.block = device.block, .number = device.step, .problem = &problem_});
      if (api_->cudaLaunchHostFunc(stream, Step::run, &steps_.back()) != 0) problem_.note("launch failed");
    }
    if (draw(6) != 0) return;
    batch.wait();
    if (auto wrong = difference(device.block, 0, device.step); !wrong.empty())
      problem_.note("waited: " + wrong);
  }

  void check_host(const DeviceBatch& batch) {
    const Batch &host = batch.host(), &device = batch.device();
    const auto same = [&](auto array, auto of) {
      const auto offset =
          static_cast<std::size_t>(reinterpret_cast<const std::byte*>(of.data()) - device.block.data());
      if (array.size() != of.size()) return problem_.note("the host's array has another size");
      if (auto wrong = difference(std::as_bytes(array), offset, host.step); !wrong.empty())
        problem_.note("host: " + wrong);
    };
    same(host.token_lengths, device.token_lengths);
    same(host.mel_lengths, device.mel_lengths);
    same(host.speakers, device.speakers);
    same(host.utterances, device.utterances);
    same(host.replaced, device.replaced);
  }

  std::uint64_t state_;
  int ordinal_ = 0;
  bool failing_ = false;
  Problem problem_;
  std::list<Step> steps_;
  std::shared_ptr<sim::Runtime> runtime_;
  std::shared_ptr<const CudaApi> api_;
  std::shared_ptr<Device> device_;
  std::unique_ptr<TestSlots> slots_;
  std::vector<void*> streams_ = std::vector<void*>(3);
  std::vector<Shape> shapes_;
};

}  // namespace

std::string run_schedule(std::uint64_t seed, const OpenDevice& open) { return Life(mix(seed), open).run(); }

}  // namespace penstock
