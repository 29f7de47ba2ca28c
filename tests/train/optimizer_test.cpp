// Against PyTorch's own optimizer: tests/python/test_train_parts.py.
#include "train/optimizer.h"

#include <cmath>
#include <random>

#include <gmock/gmock.h>

#include "penstock/core/error.h"

namespace penstock::train {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

NamedTensors some_parameters() {
  torch::manual_seed(5);
  return {{"a.weight", torch::randn({7, 3}).requires_grad_()},
          {"a.bias", torch::randn({}).requires_grad_()},
          {"none", torch::randn({0, 4}).requires_grad_()},
          {"b", torch::randn({5000}).requires_grad_()}};
}

torch::Tensor number(double value) { return torch::full({}, value); }

TEST(Optimizer, ParametersKeepTheirValuesAndGetGradients) {
  NamedTensors parameters = some_parameters(), expected = some_parameters();
  const Optimizer optimizer(parameters, {}, 0.5);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_TRUE(torch::equal(parameters[i].second, expected[i].second));
    EXPECT_TRUE(parameters[i].second.requires_grad());
    EXPECT_TRUE(parameters[i].second.is_leaf());
    EXPECT_EQ(parameters[i].second.grad().sizes(), parameters[i].second.sizes());
    EXPECT_TRUE(torch::equal(optimizer.averaged()[i].second, expected[i].second));
  }
  EXPECT_EQ(optimizer.state().size(), 3 * parameters.size() + 1);
  EXPECT_EQ(Optimizer(some_parameters(), {}, 0).averaged().size(), 0u);
}

TEST(Optimizer, ABadUpdateChangesNothing) {
  NamedTensors parameters = some_parameters();
  Optimizer optimizer(parameters, {}, 0.9);
  const auto set_gradients = [&](double first) {
    const torch::NoGradGuard no_grad;
    for (auto& [name, p] : parameters) p.mutable_grad().fill_(0.1);
    parameters[0].second.mutable_grad()[0][0] = first;
  };
  const auto all = [&] {
    NamedTensors copies;
    for (const auto& [name, t] : parameters) copies.emplace_back(name, t.detach().clone());
    for (const auto& [name, t] : optimizer.state()) copies.emplace_back(name, t.clone());
    return copies;
  };
  set_gradients(1);
  optimizer.update(number(1e-2), 1, number(0));
  const NamedTensors before = all();
  for (const double first : {1.0, std::nan(""), HUGE_VAL, -HUGE_VAL, 1e30}) {
    set_gradients(first);
    optimizer.update(number(1e-2), 1, number(first == 1 ? 1 : 0));
    const NamedTensors after = all();
    for (std::size_t i = 0; i < after.size(); ++i)
      EXPECT_TRUE(torch::equal(before[i].second, after[i].second)) << before[i].first << " with " << first;
  }
  set_gradients(1);
  optimizer.update(number(1e-2), 1, number(0));
  EXPECT_FALSE(torch::equal(before[0].second, all()[0].second));
  EXPECT_EQ(optimizer.state().back().second.item<float>(), 2) << "updates that were done";
  optimizer.zero_gradients();
  EXPECT_EQ(parameters[3].second.grad().abs().max().item<float>(), 0);
}

TEST(Optimizer, MisuseIsNamed) {
  const auto made = [](const NamedTensors& parameters) { return [=] { Optimizer(parameters, {}, 0); }; };
  const torch::Tensor one = torch::ones({2}).requires_grad_();
  EXPECT_THAT(made({}), ThrowsMessage<Error>(HasSubstr("there is none")));
  EXPECT_THAT(made({{"a", one}, {"b", one}}), ThrowsMessage<Error>(HasSubstr("b is the same tensor")));
  EXPECT_THAT(made({{"a", torch::ones({2}, torch::kFloat64)}}),
              ThrowsMessage<Error>(HasSubstr("a must be float32 on cpu, but is Double on cpu")));
}

TEST(Schedule, IsFiniteAndPositiveEverywhere) {
  std::mt19937_64 random(3);
  const std::int64_t sizes[] = {0, 1, 2, 10, 1000, 1'000'000, std::numeric_limits<std::int64_t>::max()};
  const auto any = [&] { return sizes[random() % std::size(sizes)]; };
  for (int i = 0; i < 20'000; ++i) {
    const auto kind = static_cast<Schedule::Kind>(random() % 3);
    const double floors[] = {0, 0.01, 0.5, 1}, peaks[] = {1e-8, 1e-3, 1};
    const Schedule s{kind, peaks[random() % 3], any(), any(), floors[random() % 4]};
    for (const std::int64_t update :
         {std::int64_t{0}, any(), s.warm_up, s.total, std::max<std::int64_t>(s.total, 1) - 1}) {
      const double rate = s.at(update);
      ASSERT_TRUE(std::isfinite(rate) && rate > 0 && rate <= s.peak * (1 + 1e-12))
          << int(kind) << ' ' << s.warm_up << ' ' << s.total << ' ' << s.floor << " at " << update << ": "
          << rate;
    }
  }
}

TEST(Schedule, RisesOnceAndFallsOnce) {
  using Kind = Schedule::Kind;
  for (const Kind kind : {Kind::constant, Kind::cosine, Kind::noam}) {
    const Schedule s{kind, 2e-3, 50, 400, 0.1};
    EXPECT_DOUBLE_EQ(s.at(0), 2e-3 / 50);
    EXPECT_DOUBLE_EQ(s.at(49), 2e-3) << "the peak is reached";
    for (int i = 1; i < 50; ++i) EXPECT_GT(s.at(i), s.at(i - 1));
    for (int i = 50; i < 900; ++i) EXPECT_LE(s.at(i), s.at(i - 1)) << i;
    EXPECT_NEAR(s.at(100'000), kind == Kind::constant ? 2e-3 : 2e-4, 1e-12);
  }
  EXPECT_DOUBLE_EQ((Schedule{Kind::cosine, 1, 0, 100, 0.1}.at(0)), 1);
  EXPECT_NEAR((Schedule{Kind::cosine, 1, 0, 100, 0.1}.at(50)), 0.55, 1e-12);
  EXPECT_NEAR((Schedule{Kind::noam, 1, 100, 0, 0}.at(399)), 0.5, 1e-12);
}

}  // namespace
}  // namespace penstock::train
