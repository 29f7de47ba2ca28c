// Every instruction set against the definition of rounding to nearest even, by way of doubles.
#include "penstock/features/half.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "hwy/targets.h"
#include "tests/long_run.h"

namespace penstock {
namespace {

using Floats = std::vector<float>;
using Halves = std::vector<std::uint16_t>;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float untouched = -12345.5F;
constexpr std::uint16_t untouched_half = 0xABCD;

/// Runs a test once for each instruction set of this CPU, and on the best again at the end.
class Half : public testing::TestWithParam<std::int64_t> {
 protected:
  static void choose(std::int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  void SetUp() override { choose(GetParam()); }
  void TearDown() override { choose(0); }
};

std::vector<std::int64_t> targets() {
  std::vector<std::int64_t> found;
  for (const std::int64_t target : {HWY_AVX3, HWY_AVX2, HWY_SSSE3, HWY_NEON, HWY_SCALAR})
    if ((hwy::SupportedTargets() & target) != 0) found.push_back(target);
  return found;
}
INSTANTIATE_TEST_SUITE_P(Targets, Half, testing::ValuesIn(targets()),
                         [](const auto& target) { return std::string(hwy::TargetName(target.param)); });

std::uint32_t bits(float x) { return std::bit_cast<std::uint32_t>(x); }

Halves every_half() {
  Halves all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  return all;
}

/// What the 16 bits mean.
float value_of(std::uint16_t half) {
  const int exponent = half >> 10 & 31, mantissa = half & 1023;
  double value = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  if (exponent == 31) value = mantissa == 0 ? infinity : std::numeric_limits<double>::quiet_NaN();
  return static_cast<float>((half & 0x8000) != 0 ? -value : value);
}

/// The half that is nearest, ties to even, as a float: 11 significant bits, none below 2^-24.
float rounded(float x) {
  if (!std::isfinite(x) || x == 0) return x;
  const int last_place = std::max(std::ilogb(x), -14) - 10;
  const double nearest =
      std::ldexp(std::nearbyint(std::ldexp(static_cast<double>(x), -last_place)), last_place);
  return static_cast<float>(std::abs(nearest) > 65504 ? std::copysign(HUGE_VAL, x) : nearest);
}

Floats widened(const Halves& from) {
  Floats to(from.size(), untouched);
  widen_half(from, to.data());
  return to;
}

Halves narrowed(const Floats& from) {
  Halves to(from.size(), untouched_half);
  narrow_to_half(from, to.data());
  return to;
}

void expect_rounded(const Floats& from) {
  const Halves halves = narrowed(from);
  const Floats back = widened(halves);
  Floats through = from;
  round_through_half(through);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < from.size() && wrong < 10; ++i) {
    const bool right = std::isnan(from[i]) ? std::isnan(value_of(halves[i]))
                                           : bits(value_of(halves[i])) == bits(rounded(from[i]));
    const bool same = bits(through[i]) == bits(back[i]);
    wrong += right && same ? 0 : 1;
    EXPECT_TRUE(right) << from[i] << " became " << value_of(halves[i]) << ", not " << rounded(from[i]);
    EXPECT_TRUE(same) << from[i] << " through a half became " << through[i] << ", not " << back[i];
  }
}

TEST_P(Half, EveryHalfWidensExactly) {
  const Halves all = every_half();
  const Floats wide = widened(all);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (std::isnan(value_of(all[i])))
      ASSERT_TRUE(std::isnan(wide[i])) << i;
    else
      ASSERT_EQ(bits(wide[i]), bits(value_of(all[i]))) << i;
  }
}

TEST_P(Half, EveryHalfComesBackFromFloat) {
  const Halves all = every_half(), back = narrowed(widened(all));
  for (std::size_t i = 0; i < all.size(); ++i) {
    const int quiet = std::isnan(value_of(all[i])) ? 0x200 : 0;
    ASSERT_EQ(back[i], all[i] | quiet);
  }
}

TEST_P(Half, HalfwayCasesAndTheirNeighboursRoundToNearestEven) {
  Floats floats;
  for (int i = 0; i < 0x7C00; ++i) {
    const auto low = static_cast<std::uint16_t>(i), high = static_cast<std::uint16_t>(i + 1);
    // What would follow the largest half counts as 65,536.
    const float middle = (value_of(low) + (high == 0x7C00 ? 65536.0F : value_of(high))) / 2;
    for (const float x : {std::nextafter(middle, 0.0F), middle, std::nextafter(middle, infinity)})
      floats.insert(floats.end(), {x, -x});
  }
  expect_rounded(floats);
}

TEST_P(Half, LimitsRoundAsTheyShould) {
  using L = std::numeric_limits<float>;
  expect_rounded({0.0F,
                  -0.0F,
                  L::denorm_min(),
                  -L::denorm_min(),
                  L::min(),
                  0x1p-25F,
                  0x1.000002p-25F,
                  0x1p-24F,
                  0x1.ffcp-15F,
                  0x1p-14F,
                  65503.0F,
                  65504.0F,
                  65519.996F,
                  65520.0F,
                  -65520.0F,
                  65536.0F,
                  L::max(),
                  L::lowest(),
                  infinity,
                  -infinity,
                  L::quiet_NaN(),
                  -L::quiet_NaN(),
                  1.0F});
}

TEST_P(Half, RandomFloatsRoundToNearestEven) {
  std::mt19937 random(3);
  Floats floats(static_cast<std::size_t>(cases(200'000, 50'000'000)));
  for (float& x : floats) x = std::bit_cast<float>(static_cast<std::uint32_t>(random()));  // NaN too
  expect_rounded(floats);
  std::uniform_real_distribution<float> mel(-12, 3);
  for (float& x : floats) x = mel(random);
  expect_rounded(floats);
}

// Rows differ in length, so an element may lie in a vector here and behind the last one there. NaN too.
TEST_P(Half, AnElementHasTheSameBitsWhereverItLies) {
  const Halves all = every_half();
  const Floats wide = widened(all);
  for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(bits(widened({all[i]})[0]), bits(wide[i])) << i;

  std::mt19937 random(4);
  Floats floats(20'000);
  for (std::size_t i = 0; i < floats.size(); ++i)
    floats[i] = std::bit_cast<float>(static_cast<std::uint32_t>(random()) | (i % 2 == 0 ? 0 : 0x7F800000U));
  const Halves halves = narrowed(floats);
  for (std::size_t i = 0; i < floats.size(); ++i) ASSERT_EQ(narrowed({floats[i]})[0], halves[i]) << floats[i];
}

TEST_P(Half, AnyLengthAndPlaceTouchesNothingElse) {
  std::mt19937 random(5);
  Floats floats(9000);
  std::normal_distribution<float> normal(-5, 3);
  for (float& x : floats) x = rounded(normal(random));
  const Halves halves = narrowed(floats);

  const auto check = [&](std::size_t from, std::size_t n, std::size_t to, const auto& copy) {
    Floats out(to + n + 40, untouched), expected = out;
    std::copy_n(floats.begin() + static_cast<std::ptrdiff_t>(from), n,
                expected.begin() + static_cast<std::ptrdiff_t>(to));
    copy(from, n, out.data() + to);
    ASSERT_EQ(out, expected) << n << " from " << from << " to " << to;
  };
  const auto check_all = [&](std::size_t from, std::size_t n, std::size_t to) {
    check(from, n, to, [&](auto at, auto m, float* p) { widen_half(std::span(halves).subspan(at, m), p); });
    check(from, n, to, [&](auto at, auto m, float* p) { copy_row(std::span(halves).subspan(at, m), p); });
    check(from, n, to, [&](auto at, auto m, float* p) { copy_row(std::span(floats).subspan(at, m), p); });
    Halves out(to + n + 40, untouched_half), expected = out;
    std::copy_n(halves.begin() + static_cast<std::ptrdiff_t>(from), n,
                expected.begin() + static_cast<std::ptrdiff_t>(to));
    narrow_to_half(std::span(floats).subspan(from, n), out.data() + to);
    ASSERT_EQ(out, expected) << n << " from " << from << " to " << to;
  };
  for (std::size_t n = 0; n < 70; ++n)
    for (const std::size_t place : {0, 1, 3, 15, 16}) check_all(place, n, 16 - place);
  // Around the four pages that a copy has under way at once.
  for (const std::size_t n : {4095, 4096, 4111, 4112, 8191, 8192, 8207, 8208, 8950})
    for (const std::size_t to : {0, 1, 12}) check_all(7, n, to);
}

TEST_P(Half, RoundingInPlaceTouchesNothingElse) {
  for (std::size_t n = 0; n < 70; ++n) {
    Floats values(n + 2, 0.1F), expected(n + 2, 0.1F);
    std::fill_n(expected.begin() + 1, n, rounded(0.1F));
    round_through_half(std::span(values).subspan(1, n));
    ASSERT_EQ(values, expected) << n;
  }
}

}  // namespace
}  // namespace penstock
