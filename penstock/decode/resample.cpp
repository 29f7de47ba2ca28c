#include "penstock/decode/resample.h"

#include <algorithm>
#include <array>
#include <memory>

#include <fmt/format.h>
#include <soxr.h>

#include "penstock/core/error.h"
#include "penstock/decode/decode.h"

namespace penstock {
namespace {

constexpr std::size_t resample_block = 8192;
constexpr std::array<float, resample_block> silence{};

struct Delete {
  void operator()(soxr* resampler) const { soxr_delete(resampler); }
};

void check(soxr_error_t error) {
  if (error != nullptr) throw Error(fmt::format("soxr failed: {}", soxr_strerror(error)));
}

}  // namespace

std::int64_t resampled_length(std::int64_t samples, std::int32_t from, std::int32_t to) {
  return (2 * samples * to + from) / (2 * std::int64_t{from});
}

std::span<float> resample(std::span<const float> in, std::int32_t from, std::int32_t to,
                          Scratch<float>& memory) {
  const auto length =
      static_cast<std::size_t>(resampled_length(static_cast<std::int64_t>(in.size()), from, to));
  const std::span<float> out = memory.of(length + resample_block);

  // A fresh resampler for every clip: soxr_clear() would design the filters again too (measured: the same 20
  // to 200 us), and history that is carried over would change the rounding with the order of the clips.
  soxr_error_t error = nullptr;
  const soxr_quality_spec_t quality = soxr_quality_spec(SOXR_HQ, 0);
  const std::unique_ptr<soxr, Delete> resampler(soxr_create(from, to, 1, &error, nullptr, &quality, nullptr));
  check(error);

  // The clip goes on as silence until the filter has let go of its last sample. This is what soxr's own flush
  // does, but the length is ours to decide, by integers: flushing rounds a floating-point quotient.
  for (std::size_t done = 0; done < length;) {
    const std::span<const float> next = in.empty() ? silence : in.first(std::min(in.size(), resample_block));
    std::size_t taken = 0;
    std::size_t made = 0;
    check(soxr_process(resampler.get(), next.data(), next.size(), &taken, out.data() + done,
                       out.size() - done, &made));
    if (taken == 0 && made == 0) throw Error("soxr failed: it takes no more samples and makes none");
    in = in.subspan(std::min(in.size(), taken));
    done += made;
  }
  return out.first(length);
}

}  // namespace penstock
