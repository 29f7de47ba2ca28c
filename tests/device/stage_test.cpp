#include <atomic>
#include <future>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/core/error.h"
#include "penstock/device/cuda.h"
#include "penstock/device/sim/runtime.h"
#include "slots.h"

namespace penstock {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr Shape small{.rows = 2, .tokens = 5, .frames = 11};
constexpr Shape large{.rows = 3, .tokens = 7, .frames = 23};

/// The message of the Error that `body` throws.
template <typename Body>
std::string error_of(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// A device of a stand-in, and a source that counts.
struct Bench {
  explicit Bench(sim::Options options = {}, int ordinal = 0)
      : runtime(std::make_shared<sim::Runtime>(std::move(options))),
        api(sim::api_of(runtime)),
        device(cuda_device(api, ordinal)),
        slots(device->batch_memory()) {}

  BatchSource source(Shape shape = small) {
    return [this, shape](const Poll&) { return slots.fill(filled++, shape); };
  }

  std::shared_ptr<sim::Runtime> runtime;
  std::shared_ptr<const CudaApi> api;
  std::shared_ptr<Device> device;
  TestSlots slots;
  std::int64_t filled = 0;
};

/// A stream that does nothing until the gate is opened.
class ClosedStream {
 public:
  explicit ClosedStream(std::shared_ptr<const CudaApi> api) : api_(std::move(api)) {
    api_->cudaStreamCreateWithFlags(&stream, 1);
    api_->cudaLaunchHostFunc(
        stream, [](void* gate) { static_cast<std::promise<void>*>(gate)->get_future().wait(); }, &gate_);
  }
  ~ClosedStream() {
    open();
    api_->cudaStreamSynchronize(stream);
    api_->cudaStreamDestroy(stream);
  }
  ClosedStream(const ClosedStream&) = delete;
  ClosedStream& operator=(const ClosedStream&) = delete;
  void open() {
    if (!std::exchange(opened_, true)) gate_.set_value();
  }
  void* stream = nullptr;

 private:
  std::shared_ptr<const CudaApi> api_;
  std::promise<void> gate_;
  bool opened_ = false;
};

class Stage : public testing::TestWithParam<bool> {
 protected:
  static StageOptions options(int buffers = 2) { return {.buffers = buffers, .overlap = GetParam()}; }
};
INSTANTIATE_TEST_SUITE_P(Overlap, Stage, testing::Bool(),
                         [](const auto& overlap) { return overlap.param ? "overlapped" : "serial"; });

TEST_P(Stage, ABatchHasAllItsArraysOnTheDeviceAndTheSmallOnesOnTheHost) {
  Bench bench;
  const auto stage = bench.device->stage(bench.source(), options());
  const DeviceBatch first = stage->next(), batch = stage->next();
  batch.wait();
  const Batch &device = batch.device(), &host = batch.host();
  EXPECT_EQ(device.step, 1);
  EXPECT_EQ(host.shape, small);
  EXPECT_EQ(host.bins, 8);
  EXPECT_EQ(difference(device.block, 0, 1), "");
  const auto offset = [&](const auto& array) {
    return reinterpret_cast<const std::byte*>(array.data()) - device.block.data();
  };
  EXPECT_EQ(offset(device.token_lengths), 0);
  EXPECT_EQ(offset(device.tokens), static_cast<std::ptrdiff_t>(device.small_bytes));
  EXPECT_EQ(device.mel.size(), 2u * 11 * 8);
  ASSERT_EQ(device.extras.size(), 2u);
  EXPECT_EQ(device.extras[0].name, "pitch");
  EXPECT_EQ(device.extras[1].name, "energy");
  EXPECT_EQ(difference(device.extras[1].data, static_cast<std::size_t>(offset(device.extras[1].data)), 1),
            "");
  EXPECT_EQ(
      difference(std::as_bytes(host.utterances), static_cast<std::size_t>(offset(device.utterances)), 1), "");
  EXPECT_EQ(host.replaced.size(), 2u);
  EXPECT_TRUE(host.mel.empty() && host.tokens.empty() && host.extras.empty());
}

TEST_P(Stage, WhatTheSourceThrowsComesInItsPlaceAndTheSourceIsAskedAgain) {
  Bench bench;
  int asked = 0;
  const auto stage = bench.device->stage(
      [&](const Poll&) {
        if (const int n = asked++; n == 2 || n == 3) throw SampleError("decode", "a.wav", fmt::to_string(n));
        return bench.slots.fill(bench.filled++, small);
      },
      options());
  EXPECT_EQ(stage->next().host().step, 0);
  EXPECT_EQ(stage->next().host().step, 1);
  EXPECT_THAT(error_of([&] { stage->next(); }), HasSubstr("a.wav: 2"));
  EXPECT_THAT(error_of([&] { stage->next(); }), HasSubstr("a.wav: 3"));
  EXPECT_EQ(stage->next().host().step, 2);
  EXPECT_EQ(stage->stats().batches, 3);
}

TEST_P(Stage, HoldingAllBuffersIsAnErrorAndNotADeadlock) {
  Bench bench;
  const auto stage = bench.device->stage(bench.source(), options(3));
  std::vector<DeviceBatch> held;
  for (int i = 0; i < 3; ++i) held.push_back(stage->next());
  EXPECT_THAT(error_of([&] { stage->next(); }), HasSubstr("raise device_buffer_size"));
  held.erase(held.begin());
  EXPECT_EQ(stage->next().host().step, 3);  // nothing was lost
}

TEST_P(Stage, OneBatchThatIsKeptForLongHoldsUpNothing) {
  Bench bench;
  const auto stage = bench.device->stage(bench.source(), options(2));
  const DeviceBatch kept = stage->next();
  for (int i = 1; i < 20; ++i) EXPECT_EQ(stage->next().host().step, i);
  kept.wait();
  EXPECT_EQ(difference(kept.device().block, 0, 0), "");
}

TEST_P(Stage, NextAndUseDoNotWaitForTheCopy) {
  // A copy runs when somebody waits for it, and then it is in the statistics.
  Bench bench({.lateness = sim::Lateness::latest, .latest = std::chrono::hours(1)});
  const auto stage = bench.device->stage(bench.source(), options());
  const DeviceBatch batch = stage->next();
  batch.use_on(nullptr);
  EXPECT_EQ(stage->stats().bytes, 0u);
  batch.wait();
  EXPECT_EQ(stage->stats().bytes, batch.device().block.size());
}

TEST_P(Stage, TheConsumersThreadFindsNoErrorOfOurs) {
  // "Not ready" is kept like an error, and frameworks look for errors after every launch.
  Bench bench({.lateness = sim::Lateness::latest, .latest = std::chrono::hours(1)});
  const auto stage = bench.device->stage(bench.source(), options());
  const DeviceBatch first = stage->next(), second = stage->next();
  first.use_on(nullptr);
  second.use_on(nullptr);
  EXPECT_EQ(bench.api->cudaGetLastError(), 0);
  EXPECT_EQ(stage->stats().bytes, 0u);  // it has asked
  EXPECT_EQ(bench.api->cudaGetLastError(), 0);
}

TEST_P(Stage, LaunchesThatRunAheadOfTheDeviceDoNotPileUpSlots) {
  Bench bench;
  std::int64_t last = 0;
  {
    const auto stage = bench.device->stage(bench.source(), options(2));
    ClosedStream closed(bench.api);
    const auto consumer = std::async(std::launch::async, [&] {
      for (; last < 40; ++last) stage->next().use_on(closed.stream);
    });
    while (bench.slots.made() < 2) std::this_thread::yield();
    closed.open();
    consumer.wait();
  }
  EXPECT_EQ(last, 40);
  EXPECT_LE(bench.slots.made(), 4u);  // two on their way, one in the thread's hands, one being filled
  EXPECT_TRUE(bench.runtime->faults().empty());
}

TEST_P(Stage, BatchesOutliveTheStageAndTheDevice) {
  auto bench = std::make_unique<Bench>();
  const auto api = bench->api;
  auto stage = bench->device->stage(bench->source(), options());
  const DeviceBatch batch = stage->next();
  stage.reset();
  bench.reset();
  batch.use_on(nullptr);
  batch.wait();
  EXPECT_EQ(difference(batch.device().block, 0, 0), "");
}

TEST_P(Stage, BuffersGrowWithTheBatches) {
  Bench bench;
  const auto source = [&](const Poll&) {
    const std::int64_t number = bench.filled++;
    return bench.slots.fill(number, number % 3 == 1 ? large : small);
  };
  const auto stage = bench.device->stage(source, options(3));
  for (int i = 0; i < 9; ++i) {
    const DeviceBatch batch = stage->next();
    batch.wait();
    EXPECT_EQ(difference(batch.device().block, 0, i), "");
  }
}

TEST_P(Stage, ManyStreamsMayUseABatch) {
  Bench bench;
  std::vector<void*> streams(9);
  for (auto& stream : streams) bench.api->cudaStreamCreateWithFlags(&stream, 1);
  {
    const auto stage = bench.device->stage(bench.source(), options());
    for (int i = 0; i < 6; ++i) {
      const DeviceBatch batch = stage->next();
      for (void* stream : streams)
        for (int twice = 0; twice < 2; ++twice) batch.use_on(stream);
    }
  }
  for (void* stream : streams) bench.api->cudaStreamDestroy(stream);
  EXPECT_TRUE(bench.runtime->faults().empty());
}

TEST_P(Stage, CopySecondsAreTheDevices) {
  Bench bench({.bandwidth = 1e9, .latency = std::chrono::milliseconds(1)});
  const auto stage = bench.device->stage(bench.source(large), options());
  for (int i = 0; i < 5; ++i) stage->next().wait();
  const DeviceStats stats = stage->stats();
  EXPECT_EQ(stats.batches, 5);
  EXPECT_GE(stats.bytes, 5 * bench.slots.fill(0, large).block.size());
  EXPECT_GE(stats.copy_seconds, 5 * 1e-3);
}

TEST_P(Stage, AnArrayOutsideOfTheBlockIsAnError) {
  Bench bench;
  const std::vector<float> elsewhere(100);
  for (const bool no_block : {false, true}) {
    const auto stage = bench.device->stage(
        [&](const Poll&) {
          Batch batch = bench.slots.fill(0, small);
          batch.mel = elsewhere;
          if (no_block) batch.block = {};
          return batch;
        },
        options());
    EXPECT_THAT(error_of([&] { stage->next(); }), HasSubstr("block"));
  }
}

TEST_P(Stage, WithoutMemoryOnTheDeviceItSaysWhatToLower) {
  Bench bench({.memory = 100'000});
  StageOptions too_much = options();
  too_much.batch_bytes = 60'000;
  EXPECT_THAT(error_of([&] { (void)bench.device->stage(bench.source(), too_much); }),
              testing::AllOf(HasSubstr("cudaMalloc of 60000 bytes: out of memory (2)"),
                             HasSubstr("lower device_buffer_size or batch_size")));
  constexpr Shape huge{.rows = 8, .tokens = 8, .frames = 800};
  TestSlots slots(heap_memory(), 1 << 20);
  const auto stage = bench.device->stage([&](const Poll&) { return slots.fill(0, huge); }, options());
  for (int i = 0; i < 3; ++i) EXPECT_THAT(error_of([&] { stage->next(); }), HasSubstr("out of memory"));
}

TEST_P(Stage, ALostDeviceIsTheSameErrorAgainAndAgain) {
  Bench bench({.failures = {{.function = "cudaMemcpyAsync", .call = 4, .error = 719, .lost = true}}});
  const auto stage = bench.device->stage(bench.source(), options());
  DeviceBatch kept;
  std::string error;
  for (int i = 0; i < 8; ++i)
    error = error_of([&] {
      DeviceBatch batch = stage->next();
      batch.use_on(nullptr);
      kept = std::move(batch);
    });
  EXPECT_THAT(error, testing::AllOf(StartsWith("device: cuda: cuda"), HasSubstr("unspecified failure (719)"),
                                    HasSubstr("cannot use the device any more")));
  EXPECT_EQ(error_of([&] { stage->next(); }), error);
}

TEST_P(Stage, AnEventThatCannotBeRecordedWhenABatchGoesIsToldByTheNext) {
  // Calls 1 and 2 are the copy's of the first batch; with overlap those of two or three more may come
  // between.
  for (int call = 3; call < 9; ++call) {
    Bench bench({.failures = {{.function = "cudaEventRecord", .call = call, .error = 400}}});
    const auto stage = bench.device->stage(bench.source(), options());
    std::string error = "no error";
    for (int i = 0; i < 8 && error == "no error"; ++i)
      error = error_of([&] { stage->next().use_on(nullptr); });
    EXPECT_THAT(error, HasSubstr("cudaEventRecord: invalid resource handle (400)"));
  }
}

/// Whatever a runtime may refuse, and whenever: an Error or nothing, but no end of the process and no hang.
TEST_P(Stage, NoFailureOfAnyFunctionIsMoreThanAnError) {
  std::vector<std::string> functions;
#define PENSTOCK_NAME(result, name, parameters, arguments) functions.emplace_back(#name);
  PENSTOCK_CUDA_FUNCTIONS(PENSTOCK_NAME)
#undef PENSTOCK_NAME
  for (const auto& function : functions)
    for (int call = 1; call < 12; call += call < 4 ? 1 : 3)
      for (const bool lost : {false, true}) {
        const sim::Options failing{
            .lateness = sim::Lateness::random,
            .latest = std::chrono::microseconds(50),
            .failures = {{.function = function, .call = call, .error = lost ? 719 : 2, .lost = lost}}};
        const std::string error = error_of([&] {
          Bench bench(failing);
          const auto stage = bench.device->stage(bench.source(), options());
          DeviceBatch kept = bench.device->copy(bench.slots.fill(99, large));
          (void)bench.device->info();
          for (int i = 0; i < 6; ++i) {
            kept = stage->next();
            kept.use_on(nullptr);
            if (i % 2 == 0) kept.wait();
          }
        });
        if (error != "no error") {
          EXPECT_THAT(error, StartsWith("device: cuda: cuda"));
        }
      }
}

TEST(OverlappedStage, TheNextBatchIsCopiedWhileTheDeviceComputes) {
  Bench bench;
  ClosedStream computing(bench.api);
  const auto stage = bench.device->stage(bench.source(), {.overlap = true});
  const DeviceBatch first = stage->next();
  first.use_on(computing.stream);
  const DeviceBatch second = stage->next();
  second.wait();  // would never end if it stood behind the step
  EXPECT_EQ(difference(second.device().block, 0, 1), "");
  computing.open();
  bench.api->cudaStreamSynchronize(computing.stream);
}

TEST(SerialStage, TheCopyStandsInTheStreamThatUsesItAndNothingRunsAhead) {
  Bench bench;
  ClosedStream computing(bench.api);
  const auto stage = bench.device->stage(bench.source(), {.overlap = false});
  const DeviceBatch batch = stage->next();
  EXPECT_EQ(bench.filled, 1);
  batch.use_on(computing.stream);
  EXPECT_EQ(stage->stats().bytes, 0u);
  computing.open();
  bench.api->cudaStreamSynchronize(computing.stream);
  EXPECT_EQ(stage->stats().bytes, batch.device().block.size());
}

TEST(Cuda, CopyTakesABatchFromAnyMemoryAndWaits) {
  Bench bench({.lateness = sim::Lateness::latest, .latest = std::chrono::hours(1)});
  TestSlots pageable(heap_memory());
  std::vector<DeviceBatch> held;
  for (int i = 0; i < 6; ++i) {
    held.push_back(bench.device->copy((i % 2 == 0 ? pageable : bench.slots).fill(i, i < 3 ? small : large)));
    EXPECT_EQ(difference(held.back().device().block, 0, i), "");
  }
  for (int i = 0; i < 6; ++i)
    EXPECT_EQ(difference(held[static_cast<std::size_t>(i)].device().block, 0, i), "");
}

TEST(Cuda, NoPinnedMemoryIsAnErrorThatSaysWhatToLower) {
  Bench bench({.failures = {{.function = "cudaHostAlloc", .error = cuda::memory_allocation}}});
  EXPECT_THAT(error_of([&] { bench.device->batch_memory()->allocate(4096); }),
              testing::AllOf(HasSubstr("cudaHostAlloc of 4096 bytes of pinned memory: out of memory (2)"),
                             HasSubstr("lower prefetch_buffer_size or batch_size")));
}

TEST(Cuda, FewerThanTwoBuffersAreAnError) {
  Bench bench;
  EXPECT_THAT(error_of([&] { (void)bench.device->stage(bench.source(), {.buffers = 1}); }),
              HasSubstr("must be at least 2, but is 1"));
}

TEST(Cuda, TheCallersDeviceStaysCurrent) {
  Bench bench({.devices = 3}, 2);
  bench.api->cudaSetDevice(1);
  {
    const auto stage = bench.device->stage(bench.source(), {});
    const DeviceBatch batch = stage->next();
    batch.use_on(nullptr);
    (void)bench.device->info();
    (void)bench.device->copy(bench.slots.fill(7, small));
  }
  int current = 0;
  bench.api->cudaGetDevice(&current);
  EXPECT_EQ(current, 1);
  EXPECT_TRUE(bench.runtime->faults().empty());
}

TEST(Cuda, InfoHasTheDevicesNameAndMemory) {
  Bench bench({.memory = 1'000'000});
  const auto stage = bench.device->stage(bench.source(), {.buffers = 3, .batch_bytes = 10'000});
  const DeviceInfo info = bench.device->info();
  EXPECT_EQ(info.name, "simulated");
  EXPECT_EQ(info.total_bytes, 1'000'000u);
  EXPECT_EQ(info.free_bytes, 970'000u);
}

}  // namespace
}  // namespace penstock
