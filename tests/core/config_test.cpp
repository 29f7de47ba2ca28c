#include "penstock/core/config.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/core/error.h"
#include "tests/temp_folder.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class ConfigTest : public ::testing::Test {
 protected:
  std::filesystem::path file(const std::string& text) {
    auto path = folder_ / "config.yaml";
    std::ofstream(path) << text;
    return path;
  }
  Config load(const std::string& text) {
    loader_.load_yaml(file(text));
    return loader_.config();
  }
  std::string message(const std::string& text) {
    try {
      ConfigLoader loader;
      loader.load_yaml(file(text));
      (void)loader.config();
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  }
  TempFolder folder_;
  ConfigLoader loader_;
};

const ConfigKey& key(std::string_view name) {
  return *std::ranges::find(config_keys(), name, &ConfigKey::name);
}

std::filesystem::path fixture(const std::string& name) {
  return std::filesystem::path(PENSTOCK_SOURCE_DIR) / "tests/data/configs" / name;
}

TEST_F(ConfigTest, KeysMayBeFlatOrInSections) {
  const Config c = load("batch_size: 3\ndata:\n  num_workers: 5\ntraining:\n  seed: 9\nmodel:\n");
  EXPECT_EQ(c.batch_size, 3);
  EXPECT_EQ(c.num_workers, 5);
  EXPECT_EQ(c.seed, 9u);
}

TEST_F(ConfigTest, AnUnknownKeyIsNamedWithItsLineAndTheNearestOne) {
  EXPECT_THAT(message("data:\n  num_workers: 1\n  batch_sise: 4\n"),
              HasSubstr(":3: batch_sise: unknown key; did you mean batch_size?"));
  EXPECT_THAT(message("zzzzqqqq: 4\n"), ::testing::EndsWith("zzzzqqqq: unknown key"));
}

TEST_F(ConfigTest, AValueOutOfRangeSaysItsRange) {
  EXPECT_THAT(message("batch_size: 0\n"),
              HasSubstr("batch_size: must be from 1 to 32768 or auto, but is '0'"));
  EXPECT_THAT(message("batch_size: 99999999999999999999\n"), HasSubstr("must be from 1 to 32768"));
  EXPECT_THAT(message("batch_size: 4x\n"), HasSubstr("must be a whole number or auto, but is '4x'"));
  EXPECT_THAT(message("shapes: some\n"), HasSubstr("must be a whole number or dynamic, but is 'some'"));
  EXPECT_THAT(message("val_fraction: 2\n"), HasSubstr("must be from 0 to 0.9"));
  EXPECT_THAT(message("val_fraction: nan\n"), HasSubstr("must be from 0 to 0.9"));
  EXPECT_THAT(message("split: test\n"), HasSubstr("must be one of train, val, all, but is 'test'"));
  EXPECT_THAT(message("resample: maybe\n"), HasSubstr("must be true or false, but is 'maybe'"));
  EXPECT_THAT(message("n_fft: 1000\n"), HasSubstr("n_fft must be a power of two"));
  EXPECT_THAT(message("win_length: 2048\n"), HasSubstr("win_length must be from 2 to 1024"));
  EXPECT_THAT(message("mel_fmax: 12000\n"), HasSubstr("mel_fmax must be from 1 to 11025"));
}

TEST_F(ConfigTest, WhatIsNotAKeyAndAValueIsRefused) {
  EXPECT_THAT(message("batch_size: [1, 2]\n"), HasSubstr("batch_size: must be a single value"));
  EXPECT_THAT(message("- a\n- b\n"), HasSubstr("must hold keys and values"));
  EXPECT_THAT(message("a: b: c\n"), HasSubstr("is not YAML"));
  ConfigLoader loader;
  EXPECT_THROW(loader.load_yaml("/nonexistent/a.yaml"), Error);
}

TEST_F(ConfigTest, AKeyTwiceWithDifferentValuesNamesBothLines) {
  EXPECT_THAT(message("data:\n  batch_size: 1\ntraining:\n  batch_size: 2\n"),
              ::testing::AllOf(HasSubstr(":4: batch_size is 2 here, but 1 at"), HasSubstr(":2")));
}

TEST_F(ConfigTest, AFlagBeatsTheFileInAnyOrder) {
  loader_.set("batch_size", "7", "--batch-size");
  EXPECT_EQ(load("batch_size: 3\n").batch_size, 7);
}

TEST_F(ConfigTest, APresetIsTheStartAndOtherKeysVaryIt) {
  const Config c = load("n_mels: 100\nmel_preset: librosa\n");
  MelOptions expected = *mel_preset("librosa");
  expected.n_mels = 100;
  EXPECT_EQ(c.mel, expected);
}

TEST_F(ConfigTest, OtherSpellingsMeanOurKeysAndSaySo) {
  const Config c = load("use_tf_native_loading: false\nenable_static_shapes: true\n");
  EXPECT_FALSE(c.native_loading);
  EXPECT_TRUE(c.pad_to_fixed_length);
  EXPECT_EQ(c.shapes, 1);
  ASSERT_EQ(loader_.notes().size(), 2u);
  EXPECT_THAT(loader_.notes()[0], HasSubstr("use_tf_native_loading is called native_loading here"));
}

TEST_F(ConfigTest, EagerDebugIsTheOppositeOfPlannedSteps) {
  EXPECT_FALSE(load("enable_eager_debug: true\n").train.plan_steps);
  EXPECT_THAT(message("enable_graph_mode: true\nenable_eager_debug: true\n"),
              ::testing::AllOf(HasSubstr("plan_steps is false here, but true at"),
                               HasSubstr("enable_eager_debug is called plan_steps here")));
}

TEST_F(ConfigTest, WhatIsPrintedCanBeLoaded) {
  for (const std::string folder :
       {"/data/set #1", "a: b", "[x] y", "داده", "say \"hi\" \\ tab\t", "plain/1.0-b"}) {
    ConfigLoader given;
    given.set("dataset_path", folder, "a test");
    ConfigLoader loaded;
    loaded.load_yaml(file(given.print()));
    EXPECT_EQ(loaded.config().dataset_path, folder);
  }
}

TEST_F(ConfigTest, RetiredKeysAreAcceptedWithTheReason) {
  load("shuffle_buffer_multiplier: 10\npin_memory: true\n");
  ASSERT_EQ(loader_.notes().size(), 2u);
  EXPECT_THAT(loader_.notes()[0],
              HasSubstr("shuffle_buffer_multiplier is not needed: the order is a permutation"));
}

TEST_F(ConfigTest, FixedLengthAndSeveralShapesDoNotGoTogether) {
  EXPECT_THAT(message("pad_to_fixed_length: true\nshapes: 4\n"), HasSubstr("leave one of them out"));
  EXPECT_THAT(message("pad_to_fixed_length: true\nshapes: dynamic\n"), HasSubstr("leave one of them out"));
  EXPECT_EQ(load("pad_to_fixed_length: true\n").shapes, 1);
}

TEST_F(ConfigTest, WhatIsPrintedLoadsToTheSameSettings) {
  loader_.load_yaml(fixture("static_shapes.yaml"));
  loader_.set("mel_preset", "myxtts", "--mel-preset");
  loader_.set("symbols", "a b.txt", "--symbols");
  const std::string printed = loader_.print();
  EXPECT_THAT(printed, HasSubstr("mel_fmax: 11025                            # follows from mel_preset"));
  EXPECT_THAT(printed, HasSubstr("seed: 0                                    # default"));
  ConfigLoader again;
  again.load_yaml(file(printed));
  for (const ConfigKey& key : config_keys())
    EXPECT_EQ(key.get(again.config()), key.get(loader_.config())) << key.name;
}

TEST_F(ConfigTest, TheFilesThatUsersBringLoadAndMeanWhatTheySay) {
  const auto load_fixture = [](const std::string& name) {
    ConfigLoader loader;
    loader.load_yaml(fixture(name));
    return loader.config();
  };
  const Config bottleneck = load_fixture("bottleneck.yaml");
  EXPECT_EQ(bottleneck.preprocessing_mode, PreprocessingMode::precompute);
  EXPECT_TRUE(bottleneck.native_loading);
  EXPECT_EQ(bottleneck.batch_size, 48);
  EXPECT_EQ(bottleneck.num_workers, 16);
  EXPECT_EQ(bottleneck.prefetch_buffer_size, 12);
  EXPECT_TRUE(bottleneck.device_prefetch && bottleneck.overlap);
  const Config oscillation = load_fixture("oscillation.yaml");
  EXPECT_EQ(oscillation.prefetch_buffer_size, 16);
  EXPECT_TRUE(oscillation.autotune);
  EXPECT_TRUE(oscillation.train.plan_steps);
  const Config fixed = load_fixture("static_shapes.yaml");
  EXPECT_TRUE(fixed.pad_to_fixed_length);
  EXPECT_EQ(fixed.max_text_length, 200);
  EXPECT_EQ(fixed.max_mel_frames, 800);
  EXPECT_EQ(fixed.batch_size, 56);
  EXPECT_EQ(fixed.train.learning_rate, 1e-4);
  EXPECT_EQ(load_fixture("rtx3060.yaml").train.gradient_accumulation_steps, 2);
  EXPECT_EQ(load_fixture("rtx3090.yaml").batch_size, 24);
  EXPECT_EQ(load_fixture("rtx4090.yaml").num_workers, 24);
}

TEST_F(ConfigTest, ExtrasAreNamesAndFolders) {
  const Config flat = load("extra: f0=data/f0,energy=e\n");
  ASSERT_EQ(flat.extra.size(), 2);
  EXPECT_EQ(flat.extra[1].name, "energy");
  EXPECT_EQ(flat.extra[1].folder, "e");
  const Config map = load("extra:\n  f0: data/f0\n  energy: e\n");
  ASSERT_EQ(map.extra.size(), 2);
  EXPECT_EQ(map.extra[0].folder, "data/f0");
  for (const char* bad : {"f0", "f0=", "=x", "mel=x", "a=b,a=c", "../x=y", "a b=c"})
    EXPECT_THROW(load(std::string("extra: ") + bad + "\n"), Error) << bad;
}

TEST_F(ConfigTest, EveryKeyHasHelpAndReachesItsOwnMember) {
  std::set<std::string> names;
  const Config defaults;
  for (const ConfigKey& key : config_keys()) {
    EXPECT_TRUE(names.insert(key.name).second) << key.name;
    EXPECT_FALSE(key.help.empty()) << key.name;
    // Some other value is accepted, is read back, and changes no other key.
    Config changed;
    std::string value;
    for (const char* candidate :
         {"false",   "true",    "2",        "3",     "512",       "2000",  "0.25",  "val",        "skip",
          "pad",     "htk",     "none",     "valid", "constant",  "log10", "exact", "bins_first", "runtime",
          "librosa", "float16", "f0=a,e=b", "pcm",   "simulated", "tiny",  "bf16",  "basic",      "text"}) {
      try {
        key.set(changed, candidate);
      } catch (const Error&) {
        continue;
      }
      value = candidate;
      if (key.get(changed) != key.get(defaults)) break;
    }
    EXPECT_EQ(key.get(changed), value) << key.name;
    EXPECT_NE(key.get(changed), key.get(defaults)) << key.name;
    for (const ConfigKey& other : config_keys())
      if (other.name != key.name) {
        EXPECT_EQ(other.get(changed), other.get(defaults)) << key.name << " changes " << other.name;
      }
  }
}

TEST(ConfigKeys, BytesHaveUnits) {
  const ConfigKey& memory = key("device_memory");
  Config config;
  const std::pair<const char*, std::int64_t> good[] = {{"1000000", 1'000'000},
                                                       {"512MB", 512'000'000},
                                                       {"24GB", 24'000'000'000},
                                                       {"1.5GiB", 1'610'612'736},
                                                       {"auto", 0}};
  for (const auto& [text, bytes] : good) {
    memory.set(config, text);
    EXPECT_EQ(config.device_memory, bytes) << text;
  }
  for (const char* bad : {"24 GB", "GB", "-1", "24gb", "0", "1.2.3GB", "nan", ""})
    EXPECT_THAT([&] { memory.set(config, bad); },
                ThrowsMessage<Error>(HasSubstr("must be a number of bytes such as 24GB or auto")))
        << bad;
  EXPECT_THROW(key("frame_memory").set(config, "auto"), Error);
}

TEST(ConfigKeys, ADeviceIsOneOfFour) {
  const ConfigKey& device = key("device");
  Config config;
  for (const char* good : {"cpu", "cuda", "cuda:0", "cuda:12", "simulated"}) {
    device.set(config, good);
    EXPECT_EQ(config.device, good);
  }
  for (const char* bad : {"gpu", "cuda:", "cuda:x", "cuda:1234", "tpu", ""})
    EXPECT_THAT([&] { device.set(config, bad); },
                ThrowsMessage<Error>(HasSubstr("must be cpu, cuda, cuda:N or simulated")))
        << bad;
}

TEST(MelOptions, FramesFollowTheFraming) {
  MelOptions o = *mel_preset("hifigan");
  EXPECT_EQ(o.frames(255), 0);
  EXPECT_EQ(o.frames(256), 1);
  EXPECT_EQ(o.frames(22050), 86);
  o.hop_length = 201;  // odd: one sample less of padding, as in HiFi-GAN
  EXPECT_EQ(o.frames(402), 1);
  EXPECT_EQ(o.frames(403), 2);
  o.hop_length = 256;
  o.framing = MelFraming::centered;
  EXPECT_EQ(o.frames(1), 1);
  EXPECT_EQ(o.frames(22050), 87);
  o.framing = MelFraming::valid;
  EXPECT_EQ(o.frames(1023), 0);
  EXPECT_EQ(o.frames(1024), 1);
  EXPECT_EQ(o.frames(0), 0);
}

}  // namespace
}  // namespace penstock
