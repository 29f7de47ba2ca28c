// The stand-in itself keeps CUDA's rules.
#include "penstock/device/sim/runtime.h"

#include <atomic>
#include <cstring>
#include <future>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock::sim {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class RuntimeTest : public testing::Test {
 protected:
  void* stream() {
    void* handle = nullptr;
    EXPECT_EQ(runtime.cudaStreamCreateWithFlags(&handle, 1), 0);
    return handle;
  }
  void* event() {
    void* handle = nullptr;
    EXPECT_EQ(runtime.cudaEventCreateWithFlags(&handle, 0), 0);
    return handle;
  }
  void launch(void* on, std::function<void()> body) {
    bodies_.push_back(std::make_unique<std::function<void()>>(std::move(body)));
    EXPECT_EQ(runtime.cudaLaunchHostFunc(
                  on, [](void* f) { (*static_cast<std::function<void()>*>(f))(); }, bodies_.back().get()),
              0);
  }
  std::byte* device_memory(std::size_t bytes, Runtime& in) {
    void* memory = nullptr;
    EXPECT_EQ(in.cudaMalloc(&memory, bytes), 0);
    return static_cast<std::byte*>(memory);
  }
  std::byte* pinned_memory(std::size_t bytes, Runtime& in) {
    void* memory = nullptr;
    EXPECT_EQ(in.cudaHostAlloc(&memory, bytes, 0), 0);
    return static_cast<std::byte*>(memory);
  }

 private:
  std::vector<std::unique_ptr<std::function<void()>>> bodies_;

 protected:
  Runtime runtime;
};

TEST_F(RuntimeTest, AStreamRunsItsWorkInOrder) {
  void* one = stream();
  std::vector<int> order;
  for (int i = 0; i < 5; ++i) launch(one, [&order, i] { order.push_back(i); });
  EXPECT_EQ(runtime.cudaStreamSynchronize(one), 0);
  EXPECT_THAT(order, ElementsAre(0, 1, 2, 3, 4));
}

TEST_F(RuntimeTest, AWaitIsForTheLastRecordBeforeTheCall) {
  void *one = stream(), *other = stream(), *mark = event();
  std::promise<void> gate;
  runtime.cudaEventRecord(mark, one);
  runtime.cudaStreamWaitEvent(other, mark, 0);  // for the first record: one's empty queue
  launch(one, [&] { gate.get_future().wait(); });
  runtime.cudaEventRecord(mark, one);
  EXPECT_EQ(runtime.cudaStreamSynchronize(other), 0);
  EXPECT_EQ(runtime.cudaEventQuery(mark), cuda::not_ready);
  runtime.cudaStreamWaitEvent(other, mark, 0);  // for the second one
  std::atomic<bool> opened{false};
  bool seen = false;
  launch(other, [&] { seen = opened; });
  opened = true;
  gate.set_value();
  EXPECT_EQ(runtime.cudaStreamSynchronize(other), 0);
  EXPECT_TRUE(seen);
  EXPECT_EQ(runtime.cudaEventQuery(mark), 0);
}

TEST_F(RuntimeTest, AnEventThatWasNeverRecordedHoldsNobodyUp) {
  void *one = stream(), *mark = event();
  EXPECT_EQ(runtime.cudaStreamWaitEvent(one, mark, 0), 0);
  EXPECT_EQ(runtime.cudaStreamSynchronize(one), 0);
  EXPECT_EQ(runtime.cudaEventQuery(mark), 0);
  EXPECT_EQ(runtime.cudaEventSynchronize(mark), 0);
}

TEST_F(RuntimeTest, ALateCopyRunsWhenSomebodyWaitsForWhatDependsOnIt) {
  Runtime late({.lateness = Lateness::latest, .latest = std::chrono::hours(1)});
  void *one = nullptr, *other = nullptr, *mark = nullptr;
  late.cudaStreamCreateWithFlags(&one, 0);
  late.cudaStreamCreateWithFlags(&other, 0);
  late.cudaEventCreateWithFlags(&mark, 0);
  std::byte *to = device_memory(100, late), *from = pinned_memory(100, late);
  std::memset(from, 7, 100);
  late.cudaMemcpyAsync(to, from, 100, cuda::host_to_device, one);
  late.cudaEventRecord(mark, one);
  late.cudaStreamWaitEvent(other, mark, 0);
  EXPECT_EQ(late.cudaEventQuery(mark), cuda::not_ready);
  EXPECT_EQ(late.cudaStreamSynchronize(other), 0);
  EXPECT_EQ(std::memcmp(to, from, 100), 0);
}

TEST_F(RuntimeTest, ACopyFromPageableMemoryIsOverWhenTheCallReturns) {
  Runtime late({.lateness = Lateness::latest, .latest = std::chrono::hours(1)});
  const std::vector<char> from(1000, 'x');
  std::byte* to = device_memory(1000, late);
  EXPECT_EQ(late.cudaMemcpyAsync(to, from.data(), 1000, cuda::host_to_device, nullptr), 0);
  EXPECT_EQ(std::memcmp(to, from.data(), 1000), 0);
}

TEST_F(RuntimeTest, ACopyTakesItsLatencyAndItsBytes) {
  Runtime slow({.bandwidth = 1e9, .latency = std::chrono::milliseconds(2)});
  void *begin = nullptr, *end = nullptr;
  slow.cudaEventCreateWithFlags(&begin, 0);
  slow.cudaEventCreateWithFlags(&end, 0);
  std::byte *to = device_memory(1'000'000, slow), *from = pinned_memory(1'000'000, slow);
  slow.cudaEventRecord(begin, nullptr);
  slow.cudaMemcpyAsync(to, from, 1'000'000, cuda::host_to_device, nullptr);
  slow.cudaEventRecord(end, nullptr);
  float milliseconds = 0;
  slow.cudaEventSynchronize(end);
  EXPECT_EQ(slow.cudaEventElapsedTime(&milliseconds, begin, end), 0);
  EXPECT_GE(milliseconds, 3.F);
}

TEST_F(RuntimeTest, AHostFunctionTakesAStep) {
  Runtime slow({.step = std::chrono::milliseconds(3)});
  const auto start = std::chrono::steady_clock::now();
  slow.cudaLaunchHostFunc(
      nullptr, [](void*) {}, nullptr);
  slow.cudaStreamSynchronize(nullptr);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(3));
}

TEST_F(RuntimeTest, FreeingWhatACopyIsStillToUseIsReported) {
  void* one = stream();
  std::byte *to = device_memory(100, runtime), *from = pinned_memory(100, runtime);
  std::promise<void> gate;
  launch(one, [&] { gate.get_future().wait_for(std::chrono::milliseconds(20)); });
  runtime.cudaMemcpyAsync(to, from, 100, cuda::host_to_device, one);
  EXPECT_EQ(runtime.cudaFreeHost(from), 0);
  EXPECT_EQ(runtime.cudaFree(to), 0);  // by now the copy is over
  EXPECT_THAT(runtime.faults(), ElementsAre(HasSubstr("cudaFreeHost: a copy was still to use it")));
}

TEST_F(RuntimeTest, MisuseIsReported) {
  void *one = stream(), *mark = event();
  runtime.cudaStreamDestroy(one);
  EXPECT_EQ(runtime.cudaEventRecord(mark, one), cuda::invalid_resource_handle);
  runtime.cudaEventDestroy(mark);
  EXPECT_EQ(runtime.cudaEventQuery(mark), cuda::invalid_resource_handle);
  int on_stack = 0;
  EXPECT_EQ(runtime.cudaFree(&on_stack), cuda::invalid_value);
  EXPECT_EQ(runtime.cudaMemcpyAsync(&on_stack, &on_stack, 4, cuda::host_to_device, nullptr),
            cuda::invalid_value);
  EXPECT_EQ(runtime.faults().size(), 4u);
}

TEST_F(RuntimeTest, ACallInsideAHostFunctionIsReported) {
  const auto shared = std::make_shared<Runtime>();
  const auto api = api_of(shared);
  int result = 0;
  std::function<void()> body = [&] { result = api->cudaStreamSynchronize(nullptr); };
  api->cudaLaunchHostFunc(
      nullptr, [](void* f) { (*static_cast<std::function<void()>*>(f))(); }, &body);
  api->cudaStreamSynchronize(nullptr);
  EXPECT_EQ(result, cuda::not_permitted);
  EXPECT_THAT(shared->faults(), ElementsAre(HasSubstr("inside a host function")));
}

TEST_F(RuntimeTest, AFailureIsReturnedByTheCallThatItIsFor) {
  const auto api = api_of(std::make_shared<Runtime>(
      Options{.failures = {{.function = "cudaMalloc", .call = 2, .error = 2},
                           {.function = "cudaMalloc", .call = 3, .error = 719, .lost = true}}}));
  void* memory = nullptr;
  EXPECT_EQ(api->cudaMalloc(&memory, 10), 0);
  EXPECT_EQ(api->cudaMalloc(&memory, 10), 2);
  EXPECT_EQ(api->cudaStreamSynchronize(nullptr), 0);
  EXPECT_EQ(api->cudaMalloc(&memory, 10), 719);
  EXPECT_EQ(api->cudaStreamSynchronize(nullptr), 719);
}

}  // namespace
}  // namespace penstock::sim
