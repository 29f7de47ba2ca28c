// A small dataset in a temporary folder: noise-like clips of given lengths as PCM WAV, and texts.
#pragma once
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "penstock/core/config.h"
#include "penstock/feed/feed.h"
#include "tests/temp_folder.h"

namespace penstock {

/// A WAV file of 16-bit mono samples.
inline std::string wav_bytes(const std::vector<std::int16_t>& samples, std::uint32_t rate = 22050) {
  std::string out = "RIFF....WAVEfmt ";
  const auto put = [&](auto value) { out.append(reinterpret_cast<const char*>(&value), sizeof value); };
  put(std::uint32_t{16});
  put(std::uint16_t{1});
  put(std::uint16_t{1});
  put(rate);
  put(rate * 2);
  put(std::uint16_t{2});
  put(std::uint16_t{16});
  out += "data";
  put(static_cast<std::uint32_t>(samples.size() * 2));
  out.append(reinterpret_cast<const char*>(samples.data()), samples.size() * 2);
  const auto size = static_cast<std::uint32_t>(out.size() - 8);
  out.replace(4, 4, reinterpret_cast<const char*>(&size), 4);
  return out;
}

class MadeDataset {
 public:
  /// `clips` clips of 300 to `longest` samples; the same seed gives the same bytes.
  explicit MadeDataset(int clips, std::uint64_t seed = 1, int longest = 12000) : random_(seed) {
    std::filesystem::create_directory(folder_ / "wavs");
    std::ofstream manifest(folder_ / "metadata.csv");
    for (int i = 0; i < clips; ++i) {
      const int samples = std::uniform_int_distribution<int>(300, longest)(random_);
      manifest << id(i) << "|" << text(samples) << "\n";
      write(i, noise(samples));
    }
  }

  [[nodiscard]] static std::string id(int i) {
    std::string number = std::to_string(i);
    return "s" + std::to_string(10 + i % 3) + "-" + std::string(6 - number.size(), '0') + number;
  }
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_.path(); }
  [[nodiscard]] std::filesystem::path wav(int i) const { return folder_ / "wavs" / (id(i) + ".wav"); }
  void write(int i, const std::string& bytes) const { std::ofstream(wav(i), std::ios::binary) << bytes; }
  std::string noise(int samples) {
    std::vector<std::int16_t> audio(static_cast<std::size_t>(samples));
    for (auto& s : audio)
      s = static_cast<std::int16_t>(std::uniform_int_distribution<int>(-9000, 9000)(random_));
    return wav_bytes(audio);
  }

  /// A quick configuration: all clips, batches of 4 in up to 3 shapes.
  [[nodiscard]] Config config() const {
    Config c;
    c.dataset_path = folder().string();
    c.split = Split::all;
    c.batch_size = 4;
    c.shapes = 3;
    c.num_workers = 2;
    c.prefetch_buffer_size = 3;
    return c;
  }

 private:
  std::string text(int samples) {
    static constexpr const char* words[] = {"water", "turns", "The",   "wheel",
                                            "سلام",  "دنیا",  "pipe,", "steady"};
    std::string out;
    for (int n = 0; n <= samples / 2000; ++n) out += std::string(words[random_() % 8]) + " ";
    return out + ".";
  }

  std::mt19937_64 random_;
  TempFolder folder_{std::filesystem::temp_directory_path()};
};

/// Everything that a consumer can see of a batch, as one number.
inline std::uint64_t fingerprint(const Batch& b) {
  std::uint64_t h = 1469598103934665603u;
  const auto add = [&](const void* p, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) h = (h ^ static_cast<const unsigned char*>(p)[i]) * 1099511628211u;
  };
  add(&b.shape, sizeof b.shape);
  add(&b.epoch, sizeof b.epoch);
  add(&b.step, sizeof b.step);
  for (const auto& s : {b.tokens, b.token_lengths, b.mel_lengths, b.speakers}) add(s.data(), s.size_bytes());
  add(b.mel.data(), b.mel.size_bytes());
  add(b.utterances.data(), b.utterances.size_bytes());
  add(b.replaced.data(), b.replaced.size_bytes());
  for (const ExtraArray& e : b.extras) add(e.data.data(), e.data.size());
  return h;
}

/// Another value than the default for every key of the mel itself.
inline const std::map<std::string, std::string>& other_mel_values() {
  static const std::map<std::string, std::string> values = {{"sample_rate", "16000"},
                                                            {"n_fft", "512"},
                                                            {"win_length", "800"},
                                                            {"hop_length", "200"},
                                                            {"n_mels", "40"},
                                                            {"mel_fmin", "50"},
                                                            {"mel_fmax", "7000"},
                                                            {"mel_scale", "htk"},
                                                            {"mel_norm", "none"},
                                                            {"mel_power", "2"},
                                                            {"mel_eps", "0.5"},
                                                            {"mel_framing", "centered"},
                                                            {"mel_log", "log10"},
                                                            {"mel_floor", "0.5"},
                                                            {"mel_pad_mode", "constant"},
                                                            {"mel_precision", "exact"},
                                                            {"mel_layout", "bins_first"}};
  return values;
}

/// A feed whose shard is cut in half under it, and then to nothing, delivers what it would have.
inline void expect_same_though_cut(Feed& feed, const std::filesystem::path& shard,
                                   std::span<const std::uint64_t> expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (i == expected.size() / 4)
      std::filesystem::resize_file(shard, std::filesystem::file_size(shard) / 2 + 12345);
    if (i == expected.size() * 2 / 3) std::filesystem::resize_file(shard, 0);
    EXPECT_EQ(fingerprint(feed.next()), expected[i]) << i;
  }
  EXPECT_GT(feed.stats().cache.recomputed, 0);
}

inline Config with_mode(Config config, PreprocessingMode mode) {
  config.preprocessing_mode = mode;
  return config;
}

/// The fingerprints of the next batches.
inline std::vector<std::uint64_t> take(Feed& feed, int batches) {
  std::vector<std::uint64_t> result;
  for (int i = 0; i < batches; ++i) result.push_back(fingerprint(feed.next()));
  return result;
}

/// Those of the first ones of a feed of their own.
inline std::vector<std::uint64_t> batches(const Config& config, int count, CacheStats* stats = nullptr) {
  Feed feed(config);
  std::vector<std::uint64_t> prints;
  for (int i = 0; i < count; ++i) prints.push_back(fingerprint(feed.next()));
  if (stats) *stats = feed.stats().cache;
  return prints;
}

}  // namespace penstock
