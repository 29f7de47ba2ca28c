#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/core/error.h"
#include "penstock/device/cuda.h"
#include "penstock/device/sim/runtime.h"
#include "slots.h"

namespace penstock {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using testing::ThrowsMessage;

constexpr Shape shape{.rows = 2, .tokens = 5, .frames = 11};

TEST(OpenDevice, TheHostHandsTheSlotOver) {
  const auto device = open_device("cpu");
  EXPECT_EQ(device->info().name, "host");
  EXPECT_EQ(device->batch_memory(), heap_memory());
  EXPECT_EQ(runtime_of(*device), nullptr);
  TestSlots slots(device->batch_memory());
  int filled = 0;
  const auto stage = device->stage([&](const Poll&) { return slots.fill(filled++, shape); }, {});
  EXPECT_EQ(filled, 0);
  const DeviceBatch batch = stage->next();
  batch.use_on(nullptr);
  batch.wait();
  EXPECT_EQ(filled, 1);
  EXPECT_EQ(batch.device().mel.data(), batch.host().mel.data());
  EXPECT_EQ(batch.host().extras.size(), 2u);
  const Batch other = slots.fill(5, shape);
  EXPECT_EQ(device->copy(other).host().tokens.data(), other.tokens.data());
  EXPECT_EQ(stage->stats().batches, 1);
  EXPECT_EQ(stage->stats().bytes, 0u);
}

TEST(OpenDevice, TheSimulatedOneCopies) {
  const auto device = open_device("simulated");
  EXPECT_EQ(device->info().name, "simulated");
  EXPECT_EQ(device->info().total_bytes, 24'000'000'000u);
  ASSERT_NE(runtime_of(*device), nullptr);
  TestSlots slots(device->batch_memory());
  int filled = 0;
  const auto stage = device->stage([&](const Poll&) { return slots.fill(filled++, shape); }, {});
  for (int i = 0; i < 3; ++i) {
    const DeviceBatch batch = stage->next();
    batch.wait();
    EXPECT_EQ(difference(batch.device().block, 0, i), "");
  }
  EXPECT_GE(stage->stats().copy_seconds, 3 * 10e-6);
}

TEST(OpenDevice, ANameThatIsNoneIsAnError) {
  for (const auto* name : {"", "gpu", "cuda:", "cuda:-1", "cuda:1x", "cuda1"})
    EXPECT_THAT([&] { open_device(name); },
                ThrowsMessage<Error>(HasSubstr("must be cpu, cuda, cuda:N (N from 0) or simulated")));
}

TEST(OpenDevice, WithoutAGpuCudaIsAnErrorThatSaysSo) {
  try {
    const auto device = open_device("cuda");
    EXPECT_FALSE(device->info().name.empty());  // this machine has one
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(StartsWith("device: cuda: "), HasSubstr("device: cpu")));
  }
}

TEST(LoadCuda, ALibraryThatIsLoadedAtRunTimeWorks) {
  const auto device = cuda_device(load_cuda(SIMULATED_CUDART), 1);
  EXPECT_EQ(device->info().name, "simulated, second version");
  TestSlots slots(device->batch_memory());
  int filled = 0;
  const auto stage = device->stage([&](const Poll&) { return slots.fill(filled++, shape); }, {});
  for (int i = 0; i < 5; ++i) {
    const DeviceBatch batch = stage->next();
    batch.wait();
    EXPECT_EQ(difference(batch.device().block, 0, i), "");
  }
}

TEST(LoadCuda, ALibraryThatIsMissingIsNamedWithWhatToDo) {
  EXPECT_THAT([] { load_cuda("/nowhere/libcudart.so.13"); },
              ThrowsMessage<Error>(AllOf(HasSubstr("tried /nowhere/libcudart.so.13"),
                                         HasSubstr("LD_LIBRARY_PATH"), HasSubstr("device: cpu"))));
}

TEST(LoadCuda, AFunctionThatIsMissingIsNamed) {
  EXPECT_THAT([] { load_cuda(INCOMPLETE_CUDART); },
              ThrowsMessage<Error>(
                  AllOf(HasSubstr("incomplete_cudart"), HasSubstr("has no function cudaSetDevice"))));
}

TEST(CudaDevice, NoDeviceAndNoSuchDeviceAreErrors) {
  const auto runtime = [](int devices) {
    return sim::api_of(std::make_shared<sim::Runtime>(sim::Options{.devices = devices}));
  };
  EXPECT_THAT([&] { cuda_device(runtime(0)); },
              ThrowsMessage<Error>(
                  AllOf(HasSubstr("no CUDA-capable device is detected (100)"), HasSubstr("device: cpu"))));
  EXPECT_THAT([&] { cuda_device(runtime(2), 2); },
              ThrowsMessage<Error>(HasSubstr("cuda:2: there are 2 devices only (0 to 1)")));
}

}  // namespace
}  // namespace penstock
