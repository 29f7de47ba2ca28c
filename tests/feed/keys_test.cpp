// Every key does something: for each there is a value that a consumer notices.
#include <chrono>
#include <map>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "penstock/core/error.h"
#include "penstock/feed/cache.h"
#include "penstock/feed/device_feed.h"
#include "penstock/feed/store.h"
#include "tests/feed/made_dataset.h"

namespace penstock {
namespace {

/// What a consumer can tell of the device's stage.
std::string device_outcome(DeviceFeed& feed, std::int64_t taken) {
  // With overlap the stage soon asks for more than the consumer has taken.
  bool ahead = false;
  for (int i = 0; i < 100 && !(ahead = feed.feed().stats().samples > taken); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  std::string holding = "as many as it likes";
  try {
    std::vector<DeviceBatch> held;
    for (int i = 0; i < 4; ++i) held.push_back(feed.next());
  } catch (const Error& e) {
    holding = e.what();
  }
  return fmt::format(" {}: copied {}, ahead {}, holds {}", feed.device().info().name,
                     feed.device_stats().batches > 0, ahead, holding);
}

/// Whether a slow consumer makes the feed take back some of its effort. It gets slower until it is slow
/// enough for the machine.
bool tunes_itself(DeviceFeed& feed, const Config& config) {
  const int most = config.autotune ? 400 : 60;
  for (int i = 0; i < most && feed.feed().stats().tune_changes == 0; ++i) {
    feed.next();
    std::this_thread::sleep_for(std::chrono::milliseconds(2 << std::min(8, 2 * (i / 60))));
  }
  return feed.feed().stats().tune_changes > 0;
}

/// What a consumer can tell of a feed.
std::string outcome(const ConfigLoader& loader) {
  try {
    const Config config = loader.config();
    DeviceFeed device(config);
    const Feed& feed = device.feed();
    std::string out = fmt::format("{} workers, {} steps, {} problems", feed.workers(),
                                  feed.plan().steps_per_epoch(), feed.skipped().size());
    std::int64_t taken = 0;
    for (int i = 0; i < 6; ++i) {
      const DeviceBatch batch = device.next();
      batch.wait();
      out += fmt::format(" {:x}", fingerprint(batch.device()));
      taken += batch.host().shape.rows;
    }
    const CacheStats cache = feed.stats().cache;
    std::ifstream file("/proc/self/maps");
    const std::string maps{std::istreambuf_iterator<char>(file), {}};
    out +=
        fmt::format(" {} buffers, {} skipped, cache: {} {} {}", feed.stats().buffers, feed.skipped().size(),
                    cache.hits > 0, cache.recomputed > 0, maps.find(".pack") != std::string::npos);
    if (config.num_workers == 0) out += fmt::format(" tunes itself: {}", tunes_itself(device, config));
    return config.device == "cpu" ? out : out + device_outcome(device, taken);
  } catch (const Error& e) {
    return e.what();
  }
}

TEST(Keys, EachOneIsNoticed) {
  MadeDataset made(48), other(30, 2);
  made.write(5, wav_bytes(std::vector<std::int16_t>(9000, 500), 16000));  // for `resample`
  made.write(6, "broken");                                                // for `on_bad_sample`
  std::filesystem::copy(made.folder() / "metadata.csv", made.folder() / "other.csv");
  std::ofstream(made.folder() / "other.csv", std::ios::app) << "extra|more text|more text\n";
  std::filesystem::copy(made.wav(3), made.folder() / "wavs/extra.wav");
  SymbolTable(std::u32string_view(U"abcdefghijklmnopqrstuvwxyz ,.سلامدنیا!"))
      .save(made.folder() / "symbols.txt");

  // For the keys of the cache: one with damaged records of both arrays, a tree of mels and one of tokens.
  Config cached;
  cached.dataset_path = made.folder();
  cached.split = Split::all;
  {
    const Dataset dataset = open_dataset(cached);
    build_cache(cached, dataset);
    for (const StoredArray& array : stored_arrays(cached, dataset)) {
      std::fstream shard(array.folder / "00000.pack", std::ios::binary | std::ios::in | std::ios::out);
      const Pack pack(array.folder, array.identity);
      for (const PackEntry& entry : pack.entries().first(25))
        shard.seekp(static_cast<std::streamoff>(entry.offset)) << "damaged";
    }
    const std::vector<float> mel(9 * 80, 2.0F);
    const std::vector<std::int32_t> tokens(3, 5);
    for (const std::int64_t number : dataset.members) {
      const std::string name = std::string(dataset.index.utterance(number).id) + ".npy";
      write_npy(made.folder() / "other/mel" / name, NpyType::float32, std::vector<std::int64_t>{9, 80},
                std::as_bytes(std::span(mel)));
      write_npy(made.folder() / "other/tok" / name, NpyType::int32, std::vector<std::int64_t>{3},
                std::as_bytes(std::span(tokens)));
    }
  }

  std::map<std::string, std::string> values = {{"dataset_path", other.folder()},
                                               {"train_data", other.folder()},
                                               {"val_data", other.folder()},
                                               {"metadata_train_file", "other.csv"},
                                               {"wavs_train_dir", other.folder() / "wavs"},
                                               {"metadata_eval_file", other.folder() / "metadata.csv"},
                                               {"wavs_eval_dir", other.folder() / "wavs"},
                                               {"cache_dir", made.folder() / "elsewhere"},
                                               {"split", "val"},
                                               {"val_fraction", "0.5"},
                                               {"batch_size", "5"},
                                               {"shapes", "1"},
                                               {"pad_to_fixed_length", "true"},
                                               {"max_text_length", "20"},
                                               {"max_mel_frames", "20"},
                                               {"remainder", "pad"},
                                               {"seed", "9"},
                                               {"rank", "1"},
                                               {"world", "3"},
                                               {"on_bad_sample", "fail"},
                                               {"mel_preset", "myxtts"},
                                               {"mel_pad_value", "-4"},
                                               {"resample", "false"},
                                               {"add_blank", "true"},
                                               {"symbols", made.folder() / "symbols.txt"},
                                               {"cache_type", "float16"},
                                               {"cache_kind", "pcm"},
                                               {"npy_mels", made.folder() / "other/mel"},
                                               {"npy_tokens", made.folder() / "other/tok"},
                                               {"extra", "e=" + (made.folder() / "other/tok").string()},
                                               {"cache_verification", "false"},
                                               {"auto_rebuild_mel_cache", "false"},
                                               {"auto_rebuild_token_cache", "false"},
                                               {"enable_memory_mapping", "false"},
                                               {"preprocessing_mode", "runtime"},
                                               {"native_loading", "false"},
                                               {"num_workers", "3"},
                                               {"prefetch_buffer_size", "5"},
                                               {"autotune", "false"},
                                               {"device", "simulated"},
                                               {"device_prefetch", "false"},
                                               {"overlap", "false"},
                                               {"device_buffer_size", "5"},
                                               {"device_memory", "2GB"},
                                               {"frame_memory", "2MB"}};
  values.insert(other_mel_values().begin(), other_mel_values().end());
  // Keys that only mean something beside others.
  const std::map<std::string, std::map<std::string, std::string>> context = {
      {"pad_to_fixed_length", {{"max_text_length", "100"}, {"max_mel_frames", "100"}, {"shapes", "1"}}},
      {"rank", {{"world", "2"}}},
      {"wavs_eval_dir",
       {{"metadata_eval_file", (made.folder() / "metadata.csv").string()}, {"split", "val"}}},
      {"val_data", {{"split", "val"}}},
      {"autotune", {{"num_workers", "auto"}, {"prefetch_buffer_size", "8"}}},
      {"device_prefetch", {{"device", "simulated"}}},
      {"overlap", {{"device", "simulated"}}},
      {"device_buffer_size", {{"device", "simulated"}}},
      {"device_memory", {{"batch_size", "auto"}, {"device_memory", "1GB"}}},
      {"frame_memory", {{"batch_size", "auto"}, {"device_memory", "1GB"}}},
      {"metadata_eval_file", {{"split", "val"}}}};

  for (const ConfigKey& key : config_keys()) {
    if (key.trainer) continue;
    SCOPED_TRACE(key.name);
    ASSERT_TRUE(values.contains(key.name)) << "say in this test what it changes";
    ConfigLoader loader;
    std::map<std::string, std::string> settings = {
        {"dataset_path", made.folder()}, {"batch_size", "4"},      {"shapes", "2"}, {"num_workers", "2"},
        {"prefetch_buffer_size", "3"},   {"on_bad_sample", "skip"}};
    if (context.contains(key.name))
      for (const auto& [name, value] : context.at(key.name)) settings[name] = value;
    for (const auto& [name, value] : settings)
      if (name != key.name) loader.set(name, value, "test");
    ConfigLoader changed = loader;
    if (settings.contains(key.name)) loader.set(key.name, settings.at(key.name), "test");
    changed.set(key.name, values.at(key.name), "test");
    const std::string without = outcome(loader);
    if (key.name == "cache_dir") {
      EXPECT_FALSE(std::filesystem::exists(values.at(key.name)));
      outcome(changed);
      EXPECT_TRUE(std::filesystem::exists(values.at(key.name)));
    } else {
      EXPECT_NE(outcome(changed), without);
    }
  }
}

}  // namespace
}  // namespace penstock
