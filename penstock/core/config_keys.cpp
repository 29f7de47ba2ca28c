// The table of keys. A new key is a line here and a member of Config.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "penstock/core/config.h"
#include "penstock/core/error.h"

namespace penstock {
namespace {

template <typename T>
T parse_number(const std::string& text, T low, T high) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc::result_out_of_range ||
      (error == std::errc{} && stop == end && !(value >= low && value <= high)))
    throw Error(fmt::format("must be from {} to {}, but is {}", low, high, text));
  if (error != std::errc{} || stop != end)
    throw Error(fmt::format("must be a {}number, but is '{}'", std::is_integral_v<T> ? "whole " : "", text));
  return value;
}

bool parse_bool(const std::string& text) {
  if (text == "true" || text == "yes" || text == "on" || text == "1") return true;
  if (text == "false" || text == "no" || text == "off" || text == "0") return false;
  throw Error(fmt::format("must be true or false, but is '{}'", text));
}

/// The words of a choice, in the order of the enumerators.
template <typename E, std::size_t N>
E parse_choice(const std::string& text, const std::array<std::string_view, N>& words) {
  for (std::size_t i = 0; i < N; ++i)
    if (words[i] == text) return static_cast<E>(i);
  throw Error(fmt::format("must be one of {}, but is '{}'", fmt::join(words, ", "), text));
}

template <typename Member>
ConfigKey path(const std::string& name, Member member, const std::string& help) {
  return {.name = name,
          .help = help,
          .kind = ValueKind::path,
          .set = [=](Config& c, const std::string& v) { member(c) = v; },
          .get = [=](const Config& c) { return member(const_cast<Config&>(c)); }};
}

template <typename T, typename Member>
ConfigKey number(const std::string& name, Member member, T low, T high, const std::string& help) {
  return {.name = name,
          .help = help,
          .kind = std::is_integral_v<T> ? ValueKind::whole : ValueKind::real,
          .set = [=](Config& c, const std::string& v) { member(c) = parse_number<T>(v, low, high); },
          .get = [=](const Config& c) { return fmt::format("{}", member(const_cast<Config&>(c))); }};
}

/// A number of bytes: 1000000, 512MB, 24GB, 24GiB; with `word`, that word for 0.
template <typename Member>
ConfigKey bytes(const std::string& name, const std::string& word, Member member, const std::string& help) {
  static constexpr std::pair<std::string_view, double> units[] = {
      {"KB", 1e3},         {"MB", 1e6},         {"GB", 1e9},         {"TB", 1e12},
      {"KiB", 1ULL << 10}, {"MiB", 1ULL << 20}, {"GiB", 1ULL << 30}, {"TiB", 1ULL << 40}};
  const auto set = [=](Config& c, const std::string& v) {
    if (!word.empty() && v == word) return void(member(c) = 0);
    const std::size_t digits = std::min(v.find_first_not_of("0123456789."), v.size());
    const std::string unit = v.substr(digits);
    const auto* known = std::ranges::find(units, unit, [](const auto& u) { return u.first; });
    try {
      if (!unit.empty() && known == std::end(units)) throw Error("");
      member(c) = static_cast<std::int64_t>(parse_number<double>(v.substr(0, digits), 1, 1e15) *
                                            (unit.empty() ? 1 : known->second));
    } catch (const Error&) {
      throw Error(fmt::format("must be a number of bytes such as 24GB{}, but is '{}'",
                              word.empty() ? "" : " or " + word, v));
    }
  };
  const auto get = [=](const Config& c) {
    const std::int64_t v = member(const_cast<Config&>(c));
    return v == 0 ? word : std::to_string(v);
  };
  std::vector<std::string> words;
  if (!word.empty()) words.push_back(word);
  return {.name = name,
          .help = help,
          .kind = ValueKind::bytes,
          .words = std::move(words),
          .set = set,
          .get = get};
}

ConfigKey device(const std::string& name, const std::string& help) {
  const auto set = [](Config& c, const std::string& v) {
    const bool numbered = v.starts_with("cuda:") && v.size() > 5 && v.size() < 9 &&
                          v.find_first_not_of("0123456789", 5) == std::string::npos;
    if (v != "cpu" && v != "cuda" && v != "simulated" && !numbered)
      throw Error(fmt::format("must be cpu, cuda, cuda:N or simulated, but is '{}'", v));
    c.device = v;
  };
  return {.name = name, .help = help, .set = set, .get = [](const Config& c) { return c.device; }};
}

/// A whole number with a word for 0: `auto`, `dynamic`.
template <typename T, typename Member>
ConfigKey number_or(const std::string& name, const std::string& word, Member member, T high,
                    const std::string& help) {
  return {.name = name,
          .help = help,
          .kind = ValueKind::whole,
          .words = {word},
          .set =
              [=](Config& c, const std::string& v) {
                try {
                  member(c) = v == word ? 0 : parse_number<T>(v, 1, high);
                } catch (const Error& e) {
                  throw Error(fmt::format(
                      "{} or {}, but is '{}'",
                      std::string(e.what()).substr(0, std::string(e.what()).find(", but")), word, v));
                }
              },
          .get =
              [=](const Config& c) {
                const T v = member(const_cast<Config&>(c));
                return v == 0 ? word : std::to_string(v);
              }};
}

template <typename Member>
ConfigKey boolean(const std::string& name, Member member, const std::string& help) {
  return {
      .name = name,
      .help = help,
      .kind = ValueKind::boolean,
      .set = [=](Config& c, const std::string& v) { member(c) = parse_bool(v); },
      .get = [=](const Config& c) { return std::string(member(const_cast<Config&>(c)) ? "true" : "false"); }};
}

template <typename E, std::size_t N, typename Member>
ConfigKey choice(const std::string& name, Member member, std::array<std::string_view, N> words,
                 const std::string& help) {
  return {.name = name,
          .help = fmt::format("{}: {}", fmt::join(words, " | "), help),
          .kind = ValueKind::choice,
          .words = {words.begin(), words.end()},
          .set = [=](Config& c, const std::string& v) { member(c) = parse_choice<E>(v, words); },
          .get =
              [=](const Config& c) {
                return std::string(words[static_cast<std::size_t>(member(const_cast<Config&>(c)))]);
              }};
}

ConfigKey preset(const std::string& name, const std::string& help) {
  const std::vector<std::string> presets = {"hifigan", "myxtts", "librosa"};
  const auto set = [presets](Config& c, const std::string& v) {
    if (!mel_preset(v))
      throw Error(fmt::format("must be one of {}, but is '{}'", fmt::join(presets, ", "), v));
    c.mel_preset = v;
  };
  return {.name = name,
          .help = help,
          .kind = ValueKind::choice,
          .words = presets,
          .set = set,
          .get = [](const Config& c) { return c.mel_preset; }};
}

bool is_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

/// name=folder, several with commas between them.
ConfigKey extra(const std::string& name, const std::string& help) {
  const auto set = [](Config& c, const std::string& v) {
    c.extra.clear();
    for (std::size_t at = 0; at < v.size();) {
      const std::size_t end = std::min(v.find(',', at), v.size());
      const std::string item = v.substr(at, end - at);
      const std::size_t equals = std::min(item.find('='), item.size());
      ExtraSource source{.name = item.substr(0, equals),
                         .folder = item.substr(std::min(equals + 1, item.size()))};
      if (!is_name(source.name) || source.folder.empty())
        throw Error(fmt::format("must be name=folder (a name of letters, digits and _), but is '{}'", item));
      if (source.name == "mel" || source.name == "pcm" || source.name == "tokens" ||
          std::any_of(c.extra.begin(), c.extra.end(),
                      [&](const ExtraSource& e) { return e.name == source.name; }))
        throw Error(
            fmt::format("must name each array once, and none mel, pcm or tokens, but has '{}'", source.name));
      c.extra.push_back(std::move(source));
      at = end + 1;
    }
  };
  const auto get = [](const Config& c) {
    std::string out;
    for (const ExtraSource& e : c.extra)
      out += fmt::format("{}{}={}", out.empty() ? "" : ",", e.name, e.folder);
    return out;
  };
  return {.name = name, .help = help, .kind = ValueKind::folders, .set = set, .get = get};
}

/// One of a few words, kept as it is.
template <typename Member>
ConfigKey one_of(const std::string& name, Member member, const std::vector<std::string>& words,
                 const std::string& help) {
  const auto set = [=](Config& c, const std::string& v) {
    if (std::ranges::find(words, v) == words.end())
      throw Error(fmt::format("must be one of {}, but is '{}'", fmt::join(words, ", "), v));
    member(c) = v;
  };
  return {.name = name,
          .help = fmt::format("{}: {}", fmt::join(words, " | "), help),
          .kind = ValueKind::choice,
          .words = words,
          .set = set,
          .get = [=](const Config& c) { return member(const_cast<Config&>(c)); }};
}

// The member a key stands for; const-ness is the caller's business (get never writes).
// NOLINTBEGIN(bugprone-macro-parentheses): a member's name cannot stand in parentheses
#define MEMBER(expression) \
  [](Config & c) -> auto& { return c.expression; }
// NOLINTEND(bugprone-macro-parentheses)

std::vector<ConfigKey> make_keys() {
  using std::int32_t;
  constexpr int32_t many = 1 << 20;
  return {
      path("dataset_path", MEMBER(dataset_path), "the dataset's folder (metadata.csv, wavs/)"),
      path("train_data", MEMBER(train_data), "a folder of its own for training"),
      path("val_data", MEMBER(val_data), "a folder of its own for validation"),
      path("metadata_train_file", MEMBER(metadata_train_file),
           "manifest of the training data, where it has another name"),
      path("wavs_train_dir", MEMBER(wavs_train_dir),
           "folder of the training audio, where it has another name"),
      path("metadata_eval_file", MEMBER(metadata_eval_file), "manifest of the validation data"),
      path("wavs_eval_dir", MEMBER(wavs_eval_dir), "folder of the validation audio"),
      path("cache_dir", MEMBER(cache_dir),
           "where the index and the caches are kept (default: .penstock in the dataset's folder)"),
      choice<Split>("split", MEMBER(split), std::array<std::string_view, 3>{"train", "val", "all"},
                    "which utterances the feed delivers"),
      number<double>("val_fraction", MEMBER(val_fraction), 0, 0.9,
                     "share of the ids, by hash, that is held out for validation"),

      number_or("batch_size", "auto", MEMBER(batch_size), 32768,
                "rows of a batch, per rank (auto: in each shape as many as device_memory has room for)"),
      number_or("shapes", "dynamic", MEMBER(shapes), 64,
                "how many fixed shapes the batches may have, or dynamic: each batch its own (for debugging)"),
      boolean("pad_to_fixed_length", MEMBER(pad_to_fixed_length),
              "one shape of exactly (max_text_length, max_mel_frames)"),
      number_or("max_text_length", "auto", MEMBER(max_text_length), many,
                "tokens; longer utterances are rejected by name (auto: the dataset's longest)"),
      number_or("max_mel_frames", "auto", MEMBER(max_mel_frames), many,
                "frames; longer utterances are rejected by name (auto: the dataset's longest)"),
      choice<RemainderRule>("remainder", MEMBER(remainder),
                            std::array<std::string_view, 4>{"auto", "drop", "wrap", "pad"},
                            "utterances that do not fill a batch (auto: drop, in validation pad)"),
      number<std::uint64_t>("seed", MEMBER(seed), 0, std::numeric_limits<std::uint64_t>::max(),
                            "all that the order depends on"),
      number<int32_t>("rank", MEMBER(rank), 0, many, "this process among `world`"),
      number<int32_t>("world", MEMBER(world), 1, many, "processes that share each global batch"),
      choice<OnBadSample>("on_bad_sample", MEMBER(on_bad_sample),
                          std::array<std::string_view, 2>{"fail", "skip"},
                          "stop at an unreadable sample, or fill its place, count it and name it"),

      preset("mel_preset", "hifigan | myxtts | librosa: the mel that the other keys vary"),
      number<int32_t>("sample_rate", MEMBER(mel.sample_rate), 1000, 384000,
                      "Hz; audio at other rates is resampled"),
      number<int32_t>("n_fft", MEMBER(mel.n_fft), 256, 4096, "FFT size, a power of two"),
      number<int32_t>("win_length", MEMBER(mel.win_length), 2, 4096, "window (periodic Hann), at most n_fft"),
      number<int32_t>("hop_length", MEMBER(mel.hop_length), 1, 4096, "samples from frame to frame"),
      number<int32_t>("n_mels", MEMBER(mel.n_mels), 1, 512, "mel bins"),
      number<double>("mel_fmin", MEMBER(mel.fmin), 0, 192000, "lower edge of the filterbank, Hz"),
      number<double>("mel_fmax", MEMBER(mel.fmax), 1, 192000, "upper edge of the filterbank, Hz"),
      choice<MelScale>("mel_scale", MEMBER(mel.scale), std::array<std::string_view, 2>{"slaney", "htk"},
                       "mel scale"),
      choice<MelNorm>("mel_norm", MEMBER(mel.norm), std::array<std::string_view, 2>{"slaney", "none"},
                      "area normalisation of the filters"),
      number<int32_t>("mel_power", MEMBER(mel.power), 1, 2, "1: magnitude, 2: power"),
      number<double>("mel_eps", MEMBER(mel.magnitude_eps), 0, 1, "added to re^2 + im^2 before the root"),
      choice<MelFraming>("mel_framing", MEMBER(mel.framing),
                         std::array<std::string_view, 3>{"centered", "same", "valid"},
                         "padding: n_fft / 2, (n_fft - hop) / 2, or none at both ends"),
      choice<MelPad>("mel_pad_mode", MEMBER(mel.pad), std::array<std::string_view, 2>{"reflect", "constant"},
                     "what the ends are padded with"),
      choice<MelLog>("mel_log", MEMBER(mel.log), std::array<std::string_view, 3>{"ln", "log10", "db"},
                     "logarithm"),
      number<double>("mel_floor", MEMBER(mel.floor), 1e-30, 1, "least value before the logarithm"),
      choice<MelPrecision>("mel_precision", MEMBER(mel.precision),
                           std::array<std::string_view, 2>{"fast", "exact"},
                           "float32 in window and FFT, as torch, or float64, as librosa"),
      choice<MelLayout>("mel_layout", MEMBER(mel.layout),
                        std::array<std::string_view, 2>{"frames_first", "bins_first"},
                        "[frames, bins] or [bins, frames]"),
      number<double>("mel_pad_value", MEMBER(mel_pad_value), -1e6, 1e6,
                     "what fills a row behind its last frame"),
      boolean("resample", MEMBER(resample), "convert audio of another rate (else it is a bad sample)"),
      boolean("add_blank", MEMBER(add_blank), "a blank token between all others and at both ends"),
      path("symbols", MEMBER(symbols), "symbol table to use (default: the characters of the dataset)"),
      choice<CacheType>("cache_type", MEMBER(cache_type),
                        std::array<std::string_view, 2>{"float32", "float16"},
                        "what cached mels are stored as; float16 rounds live ones as well"),
      choice<CacheKind>(
          "cache_kind", MEMBER(cache_kind), std::array<std::string_view, 3>{"mel", "pcm", "auto"},
          "what is cached: the mel, the decoded samples (16 bits; rounds live ones as well), or what "
          "pays when the cache is built"),
      path("npy_mels", MEMBER(npy_mels),
           "folder of <id>.npy mels to use as a cache (default: looked for in the dataset's folder)"),
      path("npy_tokens", MEMBER(npy_tokens),
           "folder of <id>.npy token ids to use as a cache (looked for as well)"),
      extra("extra",
            "name=folder of <id>.npy arrays that go beside the mel, such as f0=data/f0; several with commas"),

      choice<PreprocessingMode>("preprocessing_mode", MEMBER(preprocessing_mode),
                                std::array<std::string_view, 3>{"auto", "runtime", "precompute"},
                                "use what is cached and compute the rest; compute all; or cache all first"),
      boolean("cache_verification", MEMBER(cache_verification),
              "compare a cached record's checksum the first time it is read"),
      boolean("auto_rebuild_mel_cache", MEMBER(auto_rebuild_mel_cache),
              "compute a damaged cached mel again (else it is a bad sample)"),
      boolean("auto_rebuild_token_cache", MEMBER(auto_rebuild_token_cache),
              "compute damaged cached tokens again (else it is a bad sample)"),
      boolean("enable_memory_mapping", MEMBER(enable_memory_mapping),
              "map the cache; false: read it with pread"),
      boolean("native_loading", MEMBER(native_loading),
              "the fused kernel; false: the double-precision reference"),
      number_or("num_workers", "auto", MEMBER(num_workers), 1024,
                "threads that fill batches (auto: what the consumer needs, see autotune; else one per CPU)"),
      number<int32_t>("prefetch_buffer_size", MEMBER(prefetch_buffer_size), 2, 1024,
                      "batches in the ring, the consumer's included"),

      boolean("autotune", MEMBER(autotune),
              "with num_workers auto: as few active workers and as little depth as keep the consumer from "
              "waiting"),

      device("device", "cpu | cuda | cuda:N | simulated: where batches go"),
      boolean(
          "device_prefetch", MEMBER(device_prefetch),
          "copy batches to the device ahead, from pinned memory; false: when they are asked for, from any"),
      boolean("overlap", MEMBER(overlap), "copy the next batch while the device computes; false: in turn"),
      number<int32_t>("device_buffer_size", MEMBER(device_buffer_size), 2, 64,
                      "batches in the device's memory, the consumer's included"),
      bytes("device_memory", "auto", MEMBER(device_memory),
            "what batch_size auto may fill, such as 24GB (auto: what the device has free)"),
      bytes("frame_memory", "", MEMBER(frame_memory),
            "how much of it a training step needs for each frame of a row"),
  };
}

/// Keys of TrainSettings.
std::vector<ConfigKey> make_trainer_keys() {
  using std::int32_t, std::int64_t;
  constexpr int64_t most = int64_t{1} << 40;
  std::vector<ConfigKey> keys = {
      one_of("model_size", MEMBER(train.model_size), {"nano", "tiny", "small", "normal", "big"},
             "how large the model is"),
      number_or<int64_t>("steps", "auto", MEMBER(train.steps), most,
                         "updates of the weights in all (auto: as many as epochs makes)"),
      number<int64_t>("epochs", MEMBER(train.epochs), 1, 1 << 30,
                      "times that the data is gone through, where steps does not say"),
      number<double>("learning_rate", MEMBER(train.learning_rate), 0, 1000, "the schedule's highest"),
      choice<LearningSchedule>("schedule", MEMBER(train.schedule),
                               std::array<std::string_view, 3>{"constant", "cosine", "noam"},
                               "the learning rate's way behind the warm-up"),
      number<int64_t>("warmup_steps", MEMBER(train.warmup_steps), 0, most,
                      "updates in which the learning rate rises"),
      number<double>("weight_decay", MEMBER(train.weight_decay), 0, 10, "of AdamW"),
      number<double>("clip_norm", MEMBER(train.clip_norm), 0, 1e9,
                     "the longest that all gradients together may be; 0: any"),
      number<double>("ema_decay", MEMBER(train.ema_decay), 0, 1, "of the averaged weights; 0: none"),
      choice<ComputePrecision>("precision", MEMBER(train.precision),
                               std::array<std::string_view, 2>{"fp32", "bf16"},
                               "what the model computes in; weights are always fp32"),
      number<int32_t>("gradient_accumulation_steps", MEMBER(train.gradient_accumulation_steps), 1, 65536,
                      "batches that make one update"),
      boolean("plan_steps", MEMBER(train.plan_steps),
              "on CUDA: capture the step once for each shape in a graph, and replay it"),
      number_or<int32_t>("compute_threads", "auto", MEMBER(train.compute_threads), 1024,
                         "CPU threads that the step computes with (auto: as the run had, else one per CPU)"),
      choice<OptimizationLevel>("optimization_level", MEMBER(train.optimization_level),
                                std::array<std::string_view, 3>{"basic", "enhanced", "experimental"},
                                "a preset of these keys, see configs/levels"),
      number<int64_t>("log_every", MEMBER(train.log_every), 0, most,
                      "updates from one line on the console to the next; 0: none"),
      number<int64_t>("val_every", MEMBER(train.val_every), 0, most,
                      "updates from one validation to the next; 0: none"),
      number<int64_t>("save_every", MEMBER(train.save_every), 0, most,
                      "updates from one checkpoint to the next; 0: one at the end"),
      number<int32_t>("keep_checkpoints", MEMBER(train.keep_checkpoints), 1, 1 << 20,
                      "how many of the newest checkpoints stay; the best by validation stays too"),
  };
  for (ConfigKey& key : keys) key.trainer = true;
  return keys;
}
#undef MEMBER

}  // namespace

std::span<const ConfigKey> config_keys() {
  static const std::vector<ConfigKey> keys = [] {
    std::vector<ConfigKey> all = make_keys();
    std::ranges::move(make_trainer_keys(), std::back_inserter(all));
    return all;
  }();
  return keys;
}

std::span<const ConfigAlias> config_aliases() {
  static constexpr ConfigAlias aliases[] = {
      {"use_tf_native_loading", "native_loading"},
      {"tf_native_loading", "native_loading"},
      {"enable_static_shapes", "pad_to_fixed_length"},
      {"prefetch_to_gpu", "device_prefetch"},
      {"enhanced_gpu_prefetch", "device_prefetch"},
      {"gpu_prefetch", "device_prefetch"},
      {"optimize_cpu_gpu_overlap", "overlap"},
      {"cpu_gpu_overlap", "overlap"},
      {"auto_tune_performance", "autotune"},
      {"memory_mapping", "enable_memory_mapping"},
      {"enable_graph_mode", "plan_steps"},
      {"enable_xla_compilation", "plan_steps"},
      {"enable_eager_debug", "plan_steps", true},
  };
  return aliases;
}

}  // namespace penstock
