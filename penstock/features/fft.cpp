#include "penstock/features/fft.h"

#include <numbers>

namespace penstock {

Fft::Fft(std::size_t size) : size_(size), roots_(size / 2) {
  for (std::size_t i = 0; i < roots_.size(); ++i)
    roots_[i] = std::polar(1.0, -2 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(size));
}

/// Radix 2, decimation in time: `n` points of `in`, `stride` apart.
void Fft::transform(const std::complex<double>* in, std::size_t stride, std::complex<double>* out,
                    std::size_t n) const {
  if (n == 1) {
    out[0] = in[0];
    return;
  }
  transform(in, 2 * stride, out, n / 2);
  transform(in + stride, 2 * stride, out + n / 2, n / 2);
  for (std::size_t k = 0; k < n / 2; ++k) {
    const std::complex<double> even = out[k], odd = roots_[k * stride] * out[k + n / 2];
    out[k] = even + odd;
    out[k + n / 2] = even - odd;
  }
}

}  // namespace penstock
