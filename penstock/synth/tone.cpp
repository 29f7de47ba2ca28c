#include "penstock/synth/tone.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <span>

namespace penstock {
namespace {

constexpr double full_scale = 32767;
constexpr double loudness = 0.5;       // the sum of a syllable's harmonics, of full scale
constexpr double noise_floor = 0.001;  // everywhere, as a microphone has it

/// One period of a waveform.
constexpr int period_length = 1024;
using Period = std::array<float, period_length>;

struct Syllable {
  double seconds;
  double pitch_from, pitch_to;  // Hz
  Period vowel;
  double level;
  double breath;  // noise in the onset, as in a fricative
};

/// Harmonics under the two lowest formants of a vowel, their strengths adding up to 1, far below half the
/// rate.
Period make_vowel(double pitch, double first, double second, double sample_rate) {
  static const Period sine = [] {
    Period p;
    for (int i = 0; i < period_length; ++i)
      p[i] = static_cast<float>(std::sin(2 * std::numbers::pi * i / period_length));
    return p;
  }();
  const auto resonance = [](double f, double centre, double width) {
    const double x = (f - centre) / width;
    return 1 / (1 + x * x);
  };
  Period vowel{};
  double sum = 0;
  for (int h = 1; h <= 16 && pitch * h < 0.4 * sample_rate; ++h) {
    const double f = pitch * h;
    const double strength = resonance(f, first, 120) + 0.4 * resonance(f, second, 180) + 0.3 / h;
    sum += strength;
    for (int i = 0; i < period_length; ++i)
      vowel[i] += static_cast<float>(strength) * sine[i * h % period_length];
  }
  for (auto& v : vowel) v /= static_cast<float>(sum);
  return vowel;
}

Syllable draw_syllable(double pitch, double sample_rate, Draws& draws) {
  Syllable s{};
  s.seconds = draws.uniform(0.13, 0.28);
  s.pitch_from = pitch * draws.uniform(0.9, 1.12);
  s.pitch_to = pitch * draws.uniform(0.88, 1.08);
  const double first = draws.uniform(300, 800), second = draws.uniform(900, 2300);
  s.vowel = make_vowel(std::max(s.pitch_from, s.pitch_to), first, second, sample_rate);
  s.level = draws.uniform(0.5, 1);
  s.breath = draws.uniform() < 0.4 ? draws.uniform(0.03, 0.1) : 0;
  return s;
}

/// Adds the syllable to `out`; `phase`, in periods, runs on from syllable to syllable.
void sing(const Syllable& s, std::span<float> out, double sample_rate, double& phase, Draws& draws) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double t = static_cast<double>(i) / static_cast<double>(out.size());
    const double envelope = std::min({1.0, t / 0.2, (1 - t) / 0.35});
    phase += (s.pitch_from + (s.pitch_to - s.pitch_from) * t) / sample_rate;
    if (phase >= 1) phase -= 1;
    const double voice = s.vowel[static_cast<std::size_t>(phase * period_length)];
    const double breath = t < 0.3 ? s.breath * draws.uniform(-1, 1) * t / 0.3 : 0;
    out[i] += static_cast<float>(loudness * s.level * (envelope * voice + breath));
  }
}

}  // namespace

std::vector<std::int16_t> speech_like_tone(std::size_t samples, std::int32_t sample_rate, double pitch,
                                           Draws& draws) {
  std::vector<float> signal(samples);
  for (auto& x : signal) x = static_cast<float>(noise_floor * draws.uniform(-1, 1));

  const auto in_samples = [&](double seconds) { return static_cast<std::size_t>(seconds * sample_rate); };
  double phase = 0;
  std::uint32_t left_in_phrase = 4 + draws.below(6);
  for (std::size_t at = in_samples(draws.uniform(0.02, 0.08)); at < samples;) {
    // The voice falls towards the end of a phrase.
    const Syllable s = draw_syllable(pitch * (0.9 + 0.03 * left_in_phrase), sample_rate, draws);
    const std::size_t length = in_samples(s.seconds);
    if (at + length > samples) break;  // the clip ends in a pause, not within a syllable
    sing(s, std::span(signal).subspan(at, length), sample_rate, phase, draws);
    at += length + in_samples(draws.uniform(0, 0.03));
    if (--left_in_phrase > 0) continue;
    at += in_samples(draws.uniform(0.15, 0.35));
    left_in_phrase = 4 + draws.below(6);
  }

  std::vector<std::int16_t> pcm(samples);
  std::transform(signal.begin(), signal.end(), pcm.begin(),
                 [](float x) { return static_cast<std::int16_t>(std::lrint(x * full_scale)); });
  return pcm;
}

}  // namespace penstock
