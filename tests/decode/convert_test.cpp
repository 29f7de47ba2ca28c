#include "penstock/decode/convert.h"

#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace penstock {
namespace {

std::vector<std::int16_t> narrowed(const std::vector<float>& in) {
  std::vector<std::int16_t> out(in.size());
  to_pcm16(in, out.data());
  return out;
}

TEST(Pcm16, EverySampleOf16BitsComesBack) {
  std::vector<std::int16_t> all;
  for (int i = -32768; i <= 32767; ++i) all.push_back(static_cast<std::int16_t>(i));
  std::vector<float> floats(all.size());
  to_mono(SampleFormat::s16, std::as_bytes(std::span(all)).data(), 1, floats);
  EXPECT_EQ(narrowed(floats), all);
}

TEST(Pcm16, TheNearestIsTakenAndHalvesBecomeEven) {
  std::mt19937 random(3);
  std::vector<float> in;
  for (int i = -32768; i < 32767; ++i) in.push_back((static_cast<float>(i) + 0.5F) * 0x1p-15F);
  for (int i = 0; i < 100'003; ++i) in.push_back(std::uniform_real_distribution<float>(-1, 0.9999F)(random));
  for (const float tiny : {0.0F, -0.0F, 1e-40F, -1e-40F, 1e-20F}) in.push_back(tiny);
  const auto out = narrowed(in);
  for (std::size_t i = 0; i < in.size(); ++i)
    ASSERT_EQ(out[i], std::nearbyint(static_cast<double>(in[i]) * 32768)) << in[i];
}

TEST(Pcm16, WhatIsTooLoudIsClamped) {
  EXPECT_EQ(narrowed({1.0F, 0.99999F, 1.5F, 3e38F, -1.0F, -1.00001F, -7.0F, -3e38F}),
            (std::vector<std::int16_t>{32767, 32767, 32767, 32767, -32768, -32768, -32768, -32768}));
}

}  // namespace
}  // namespace penstock
