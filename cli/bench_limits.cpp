#include "cli/bench_limits.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "penstock/core/clock.h"
#include "penstock/core/random.h"
#include "penstock/features/mel.h"

namespace penstock::cli {
namespace {}  // namespace

double memcpy_rows_per_second(const CopyWork& work, int threads) {
  constexpr double duration = 0.5;
  constexpr std::int64_t batches = 8, most_floats = 1 << 28;  // destinations as in a ring
  std::vector<std::span<const float>> clips;
  std::int64_t total = 0;
  for (const std::int64_t n : work.clip_floats) total = std::min(most_floats, total + n);
  const std::vector<float> source(static_cast<std::size_t>(total), 1.0F);
  for (std::size_t i = 0, at = 0; i < work.clip_floats.size(); ++i) {
    const auto n = static_cast<std::size_t>(work.clip_floats[i]);
    if (at + n > source.size()) break;
    clips.emplace_back(source.data() + at, n);
    at += n;
  }
  const auto row = static_cast<std::size_t>(work.row_floats);
  std::vector<float> ring(static_cast<std::size_t>(batches * work.rows) * row);
  std::atomic<std::int64_t> next{0};
  const auto start = Clock::now();
  {
    std::vector<std::jthread> pool;
    for (int t = 0; t < threads; ++t)
      pool.emplace_back([&] {
        while (seconds_since(start) < duration) {
          const auto i = static_cast<std::size_t>(next.fetch_add(1, std::memory_order_relaxed));
          float* to = ring.data() + i % static_cast<std::size_t>(batches * work.rows) * row;
          const std::span<const float> clip = clips[mix(1, i) % clips.size()];
          std::memcpy(to, clip.data(), clip.size_bytes());
          std::memset(to + clip.size(), 0, (row - clip.size()) * sizeof(float));
        }
      });
  }
  return static_cast<double>(next.load()) / seconds_since(start);
}

double mel_us_per_frame(const Config& config) {
  const Mel mel(config.mel);
  std::vector<float> audio(static_cast<std::size_t>(config.mel.sample_rate) * 6);
  std::mt19937 random(1);
  std::normal_distribution<float> noise(0, 0.1F);
  std::generate(audio.begin(), audio.end(), [&] { return noise(random); });
  const std::int64_t frames = config.mel.frames(static_cast<std::int64_t>(audio.size()));
  const std::int64_t bins = config.mel.n_mels;
  std::vector<float> out(static_cast<std::size_t>(frames * bins));
  MelScratch scratch;
  double best = 1e9;
  for (int i = 0; i < 200; ++i) {
    const auto start = Clock::now();
    mel.compute(audio, out.data(), config.mel.layout == MelLayout::frames_first ? bins : frames, scratch);
    best = std::min(best, seconds_since(start));
  }
  return best / static_cast<double>(frames) * 1e6;
}

}  // namespace penstock::cli
