#include "penstock/plan/permutation.h"

#include <cmath>
#include <map>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "penstock/core/random.h"

namespace penstock {
namespace {

std::vector<std::uint64_t> order(std::uint64_t n, std::uint64_t key) {
  std::vector<std::uint64_t> images(n);
  for (std::uint64_t i = 0; i < n; ++i) images[i] = permute(i, n, key);
  return images;
}

void expect_bijection(std::uint64_t n, std::uint64_t key) {
  std::vector<bool> seen(n);
  for (std::uint64_t i = 0; i < n; ++i) {
    const std::uint64_t image = permute(i, n, key);
    ASSERT_LT(image, n);
    ASSERT_FALSE(seen[image]) << image << " twice, the second time for " << i;
    seen[image] = true;
  }
}

/// How far counts are from being equal, in standard deviations of what chance does.
double surprise(const std::vector<double>& counts) {
  double total = 0;
  for (const double count : counts) total += count;
  const double expected = total / static_cast<double>(counts.size());
  double chi_square = 0;
  for (const double count : counts) chi_square += (count - expected) * (count - expected) / expected;
  const double freedom = static_cast<double>(counts.size()) - 1;
  return (chi_square - freedom) / std::sqrt(2 * freedom);
}

TEST(Permutation, IsOneForEverySizeUpTo3000) {
  for (std::uint64_t n = 1; n <= 3000; ++n) {
    SCOPED_TRACE(n);
    expect_bijection(n, mix(n));
    if (HasFatalFailure()) return;
  }
}

TEST(Permutation, IsOneForLargeSizes) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 8; ++i) {
    const std::uint64_t n = 3000 + random() % 500'000;
    const std::uint64_t key = random();
    SCOPED_TRACE(testing::Message() << "n " << n << ", key " << key);
    expect_bijection(n, key);
  }
  expect_bijection(1 << 18, 5);
  expect_bijection((1 << 18) + 1, 5);
}

TEST(Permutation, StaysInRangeAndNeverRepeatsInHugeSizes) {
  for (const std::uint64_t n : {(std::uint64_t{1} << 40) + 1, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    std::map<std::uint64_t, std::uint64_t> images;
    for (std::uint64_t i = 0; i < 20'000; ++i) {
      const std::uint64_t from = n - 1 - i * (n / 30'000);
      const std::uint64_t image = permute(from, n, 17);
      ASSERT_LT(image, n);
      ASSERT_TRUE(images.emplace(image, from).second) << from << " and " << images[image];
    }
  }
}

TEST(Permutation, PutsEveryElementEverywhereEquallyOften) {
  constexpr int keys_per_place = 500;
  for (std::uint64_t n = 2; n <= 20; ++n) {
    std::vector<std::vector<double>> places(n, std::vector<double>(n));
    for (std::uint64_t key = 0; key < keys_per_place * n; ++key) {
      for (std::uint64_t i = 0; i < n; ++i) ++places[i][permute(i, n, mix(key))];
    }
    for (std::uint64_t i = 0; i < n; ++i) EXPECT_LT(surprise(places[i]), 6) << "element " << i << " of " << n;
  }
}

TEST(Permutation, MakesEveryOrderOfAFewElementsEquallyOften) {
  std::uint64_t orders = 1;
  for (std::uint64_t n = 2; n <= 6; ++n) {
    orders *= n;
    std::map<std::vector<std::uint64_t>, double> counts;
    for (std::uint64_t key = 0; key < 200 * orders; ++key) ++counts[order(n, mix(key))];
    ASSERT_EQ(counts.size(), orders);
    std::vector<double> values;
    values.reserve(counts.size());
    for (const auto& [images, count] : counts) values.push_back(count);
    EXPECT_LT(surprise(values), 6) << n << " elements";
  }
}

TEST(Permutation, PutsNeighboursAtEveryDistanceEquallyOften) {
  for (const std::uint64_t n : {17, 60, 128, 129, 1000}) {
    std::vector<double> distances(n - 1);
    for (std::uint64_t key = 0; key < 400; ++key) {
      const std::vector<std::uint64_t> images = order(n, mix(key));
      for (std::uint64_t i = 1; i < n; ++i) ++distances[(images[i] + n - images[i - 1]) % n - 1];
    }
    EXPECT_LT(surprise(distances), 6) << n << " elements";
  }
}

TEST(Permutation, DiffersBetweenKeys) {
  for (std::uint64_t key = 0; key < 200; ++key) {
    const std::vector<std::uint64_t> one = order(100, key);
    const std::vector<std::uint64_t> other = order(100, key + 1);
    int same = 0;
    for (std::size_t i = 0; i < one.size(); ++i) same += one[i] == other[i] ? 1 : 0;
    EXPECT_LT(same, 12) << "keys " << key << " and " << key + 1;
  }
}

TEST(Permutation, NeverChanges) {
  EXPECT_EQ(order(10, 1), (std::vector<std::uint64_t>{7, 2, 9, 6, 1, 8, 3, 4, 0, 5}));
  EXPECT_EQ(permute(123'456, 10'000'000, 42), 1'579'109u);
  EXPECT_EQ(permute(123'456, (std::uint64_t{1} << 40) + 1, 42), 688'655'071'270u);
}

}  // namespace
}  // namespace penstock
