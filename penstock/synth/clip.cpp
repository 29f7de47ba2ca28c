#include "penstock/synth/clip.h"

#include <array>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "penstock/core/error.h"
#include "penstock/synth/draws.h"
#include "penstock/synth/encode.h"
#include "penstock/synth/tone.h"

namespace penstock {
namespace {

/// What a stream of draws is for: with streams of their own, one choice never moves another.
enum class Purpose : std::uint64_t { duration = 1, speaker, words, sound };

Draws draws_for(Purpose purpose, std::uint64_t seed, std::int64_t number) {
  return Draws(mix(mix(seed, static_cast<std::uint64_t>(number)), static_cast<std::uint64_t>(purpose)));
}

struct Recording {
  Line text;
  Sound sound;
};

/// Speaks a text that takes about `target` seconds. A first text of the right length by guess; where that
/// misses, the speaking rate is moved as far as it still sounds natural, and beyond that the text is chosen
/// anew with what has been learnt about this voice.
Recording record(const Voice& usual, const Language& language, double target, Draws& draws) {
  constexpr int most_runs = 10;
  constexpr double near_enough = 0.04, slowest = 0.86, fastest = 1.18;
  constexpr double silence = 0.35;  // before and after the words
  constexpr double margin = 0.001;  // for the rounding to whole samples at another rate
  double per_character = language.seconds_per_character * 165 / usual.speed;
  Line text = compose(language, (target - silence) / per_character, draws);
  Voice voice = usual;
  std::optional<Recording> best;
  double best_miss = HUGE_VAL;
  for (int run = 0; run < most_runs && best_miss > near_enough; ++run) {
    Sound sound = speak(voice, text.spoken);
    const double seconds = sound.seconds(), miss = std::abs(seconds / target - 1);
    if (seconds > shortest_clip + margin && seconds < longest_clip - margin && miss < best_miss) {
      best = Recording{text, std::move(sound)};
      best_miss = miss;
    }
    const double speed = std::round(voice.speed * seconds / target);
    if (speed != voice.speed && speed > slowest * usual.speed && speed < fastest * usual.speed) {
      voice.speed = static_cast<int>(speed);
      continue;
    }
    const double at_usual_speed = seconds * voice.speed / usual.speed;
    per_character =
        std::max(0.005, (at_usual_speed - silence) / static_cast<double>(characters(text.spoken)));
    text = compose(language, (target - silence) / per_character, draws);
    voice = usual;
  }
  if (!best)
    throw Error(fmt::format("voice '{}': no text was spoken within {} to {} s; the last one was '{}'",
                            usual.name, shortest_clip, longest_clip, text.spoken));
  return *std::move(best);
}

Recording hum(std::int32_t speaker, std::int32_t sample_rate, double target, Draws& words, Draws& sound) {
  constexpr double characters_per_second = 15;
  const int pitch = 95 + 25 * (speaker % 7) + 3 * (speaker / 7);  // Hz
  const auto samples = static_cast<std::size_t>(std::llround(target * sample_rate));
  return {compose(english(), target * characters_per_second, words),
          {speech_like_tone(samples, sample_rate, pitch, sound), sample_rate}};
}

}  // namespace

double target_seconds(std::uint64_t seed, std::int64_t number) {
  // Beta(a, b) on the range, drawn by rejection under its mode.
  constexpr double a = 1.83, b = 1.19, low = shortest_clip + 0.01, high = longest_clip - 0.01;
  const auto density = [](double x) { return std::pow(x, a - 1) * std::pow(1 - x, b - 1); };
  const double highest = density((a - 1) / (a + b - 2));
  Draws draws = draws_for(Purpose::duration, seed, number);
  for (;;) {
    const double x = draws.uniform();
    if (draws.uniform() * highest <= density(x)) return low + (high - low) * x;
  }
}

std::int32_t speaker_of(std::uint64_t seed, std::int64_t number, std::int32_t speakers) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(speakers));
  std::iota(order.begin(), order.end(), 0);
  Draws draws = draws_for(Purpose::speaker, seed, number / speakers);
  for (std::size_t i = order.size() - 1; i > 0; --i) std::swap(order[i], order[draws.below(i + 1)]);
  return order[static_cast<std::size_t>(number % speakers)];
}

Voice speaker_voice(const std::string& voice, std::int32_t speaker) {
  static constexpr std::array<const char*, 4> accents = {"en", "en-us", "en-gb-scotland", "en-gb-x-rp"};
  static constexpr std::array<const char*, 13> variants = {"",    "+f2", "+m3", "+f4", "+m1", "+f1", "+m7",
                                                           "+f5", "+m2", "+f3", "+m4", "+m5", "+m6"};
  const auto k = static_cast<std::size_t>(speaker);
  std::string name = voice == "en" ? accents[k % accents.size()] : voice;
  if (name.find('+') == std::string::npos) name += variants[k % variants.size()];
  // 41 pitches and 13 variants have no common divisor, so that no two speakers share both; neither do 41 and
  // 5 speeds.
  return {.name = std::move(name),
          .pitch = 30 + (20 + 17 * speaker) % 41,
          .speed = 153 + 6 * ((2 + speaker) % 5)};
}

Clip make_clip(const SynthOptions& options, std::int64_t number) {
  const double target = target_seconds(options.seed, number);
  const std::int32_t speaker = speaker_of(options.seed, number, options.speakers);
  Draws words = draws_for(Purpose::words, options.seed, number);
  Draws sound = draws_for(Purpose::sound, options.seed, number);
  Recording recording = options.voice == "tone" ? hum(speaker, options.sample_rate, target, words, sound)
                                                : record(speaker_voice(options.voice, speaker),
                                                         language_of(options.voice), target, words);
  return {.id = fmt::format("s{:02}-{:06}", speaker + 1, number + 1),
          .text = std::move(recording.text),
          .sound = resample(recording.sound, options.sample_rate)};
}

}  // namespace penstock
