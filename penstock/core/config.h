// Every setting of a feed and of a trainer behind it: one struct, filled from a YAML file, from flags or in
// code, under the same names.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/core/mel_options.h"

namespace penstock {

enum class Split { train, val, all };
enum class OnBadSample { fail, skip };
/// Whether features are computed while training (runtime) or read from the cache (precompute; built first
/// where it is missing); automatic uses what is there and computes the rest.
enum class PreprocessingMode { automatic, runtime, precompute };
enum class CacheType { float32, float16 };
/// What of a sample is cached: its mel, its samples as 16-bit PCM, or what pays (chosen when a cache is
/// built).
enum class CacheKind { mel, pcm, automatic };
/// What becomes of utterances that do not fill a batch; `automatic` drops in training and pads in validation.
enum class RemainderRule { automatic, drop, wrap, pad };

/// Arrays beside the mel: `<id>.npy` in a folder.
struct ExtraSource {
  std::string name, folder;
};

enum class LearningSchedule { constant, cosine, noam };
enum class ComputePrecision { fp32, bf16 };
/// Presets of the trainer's settings, one file each in configs/levels/.
enum class OptimizationLevel { basic, enhanced, experimental };

/// What the trainer alone reads. A step here is an update of the weights.
struct TrainSettings {
  std::string model_size = "nano";
  std::int64_t steps = 0;  ///< 0: auto, as many as `epochs` makes
  std::int64_t epochs = 10;
  double learning_rate = 1e-3;  ///< the schedule's peak
  LearningSchedule schedule = LearningSchedule::cosine;
  std::int64_t warmup_steps = 100;
  double weight_decay = 0.01;
  double clip_norm = 1.0;    ///< 0: none
  double ema_decay = 0.999;  ///< 0: no averaged weights
  ComputePrecision precision = ComputePrecision::fp32;
  std::int32_t gradient_accumulation_steps = 1;
  bool plan_steps = true;
  std::int32_t compute_threads = 0;  ///< 0: auto, those of the run so far, else one for each CPU
  OptimizationLevel optimization_level = OptimizationLevel::enhanced;
  std::int64_t log_every = 10, val_every = 500, save_every = 500;  ///< 0: never (but at the end)
  std::int32_t keep_checkpoints = 3;
};

/// What config_keys() documents key by key. Behaviour first, performance last.
struct Config {
  // Where the data is.
  std::string dataset_path, train_data, val_data;
  std::string metadata_train_file, wavs_train_dir, metadata_eval_file, wavs_eval_dir;
  std::string cache_dir;
  Split split = Split::train;
  double val_fraction = 0.05;

  // What a batch is.
  std::int32_t batch_size = 16;  ///< 0: auto, as many rows in each shape as device_memory has room for
  std::int32_t shapes = 4;       ///< 0: dynamic
  bool pad_to_fixed_length = false;
  std::int32_t max_text_length = 0;  ///< tokens; 0: the dataset's longest
  std::int32_t max_mel_frames = 0;   ///< 0: the dataset's longest
  RemainderRule remainder = RemainderRule::automatic;
  std::uint64_t seed = 0;
  std::int32_t rank = 0;
  std::int32_t world = 1;
  OnBadSample on_bad_sample = OnBadSample::fail;

  // What a sample is.
  std::string mel_preset = "hifigan";
  MelOptions mel = *penstock::mel_preset("hifigan");
  double mel_pad_value = 0;
  bool resample = true;
  bool add_blank = false;
  std::string symbols;
  CacheType cache_type = CacheType::float32;  ///< of cached mels; float16 rounds live ones too
  CacheKind cache_kind = CacheKind::mel;      ///< pcm rounds live audio to 16 bits too
  std::string npy_mels, npy_tokens;           ///< trees of .npy files to use as caches; empty: looked for
  std::vector<ExtraSource> extra;

  // How the work is done.
  PreprocessingMode preprocessing_mode = PreprocessingMode::automatic;
  bool cache_verification = true;
  bool auto_rebuild_mel_cache = true;
  bool auto_rebuild_token_cache = true;
  bool enable_memory_mapping = true;
  bool native_loading = true;
  std::int32_t num_workers = 0;  ///< 0: auto
  std::int32_t prefetch_buffer_size = 8;
  bool autotune = true;

  // Where batches go.
  std::string device = "cpu";
  bool device_prefetch = true;
  bool overlap = true;
  std::int32_t device_buffer_size = 2;
  std::int64_t device_memory = 0;         ///< bytes; 0: what the device has free
  std::int64_t frame_memory = 1'000'000;  ///< bytes of it that a training step needs for each frame of a row

  TrainSettings train;

  /// Settings that cannot go together, or a mel that cannot be computed: Error naming the keys.
  void validate() const;
};

/// What a key's values are. `words` of a key beside it: the choices, or what stands for a number (auto).
enum class ValueKind { text, path, boolean, whole, real, bytes, choice, folders };

/// One key: how it is spelled, checked, read and written.
struct ConfigKey {
  std::string name;
  std::string help;
  ValueKind kind = ValueKind::text;
  std::vector<std::string> words;
  bool trainer = false;  ///< of TrainSettings: a feed takes it from a file, and does not read it
  std::function<void(Config&, const std::string&)>
      set;  ///< throws Error("must be from 1 to 65536, but is 0")
  std::function<std::string(const Config&)> get;
};

/// A spelling of other systems for one of our keys.
struct ConfigAlias {
  std::string_view name;
  std::string_view key;
  bool negated = false;
};

/// A key of other systems that has nothing to set here, and why.
struct RetiredKey {
  std::string_view name, why;
  bool boolean = false;
};

/// All keys, in the order in which they are shown.
std::span<const ConfigKey> config_keys();
std::span<const ConfigAlias> config_aliases();
std::span<const RetiredKey> retired_keys();
/// A value as YAML has it: in quotes where it needs them.
std::string yaml_scalar(const std::string& value);
/// The key that somebody who wrote `name` may have meant; empty when none is near.
std::string nearest_key(std::string_view name);

/// Collects settings from a file and from flags, remembers where each came from, and makes a Config of them.
/// A flag beats the file, which beats a preset, which beats the default; the order of the calls does not
/// matter.
class ConfigLoader {
 public:
  /// Flat, or in sections data:, model:, training:. Error as `a.yaml:12: batch_sise: unknown key; did you
  /// mean batch_size?`
  void load_yaml(const std::filesystem::path& path);
  /// One key or alias, from a flag (`--batch-size 16`) or a Python argument.
  void set(std::string_view name, const std::string& value, const std::string& origin);

  /// What a command takes for a key that neither the file nor a flag sets.
  void set_default(std::string_view name, const std::string& value, const std::string& origin);

  /// The file or a flag sets this key.
  [[nodiscard]] bool is_set(std::string_view key) const;
  /// The validated result.
  [[nodiscard]] Config config() const;
  /// Lines for the user: other spellings, retired keys.
  [[nodiscard]] std::span<const std::string> notes() const { return notes_; }
  /// Every key, its value and its origin, as YAML that can be loaded again. The trainer's keys: those that
  /// are set, or with `trainer` all.
  [[nodiscard]] std::string print(bool trainer = false) const;

 private:
  struct Setting {
    std::string value, origin;
    int priority = 0;  // 1: a command's default, 2: file, 3: flag
  };
  void put(std::string_view name, std::string value, const std::string& origin, int priority);
  void note(const std::string& line);

  std::map<std::string, Setting, std::less<>> settings_;
  std::vector<std::string> notes_;
};

}  // namespace penstock
