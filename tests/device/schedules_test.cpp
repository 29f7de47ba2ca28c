#include "schedules.h"

#include <gtest/gtest.h>

#include "../long_run.h"
#include "penstock/device/cuda.h"

namespace penstock {
namespace {

TEST(Schedules, EveryBatchIsTheOneThatWasFilled) {
  for (int seed = 0; seed < slow_cases(1000, 5000); ++seed)
    ASSERT_EQ(run_schedule(static_cast<std::uint64_t>(seed) + 1'000'000,
                           [](auto api, int ordinal) { return cuda_device(std::move(api), ordinal); }),
              "")
        << "seed " << seed;
}

}  // namespace
}  // namespace penstock
