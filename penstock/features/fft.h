// A plain complex FFT in double precision, for what is written to be read: the mel's definition and its
// inverse.
#pragma once
#include <complex>
#include <cstddef>
#include <vector>

namespace penstock {

/// Powers of two. Immutable after construction.
class Fft {
 public:
  explicit Fft(std::size_t size);
  [[nodiscard]] std::size_t size() const { return size_; }
  /// `in` and `out` have size() elements and are not the same.
  void transform(const std::complex<double>* in, std::complex<double>* out) const {
    transform(in, 1, out, size_);
  }

 private:
  void transform(const std::complex<double>* in, std::size_t stride, std::complex<double>* out,
                 std::size_t n) const;
  std::size_t size_;
  std::vector<std::complex<double>> roots_;  // exp(-2 pi j i / size), half a circle
};

}  // namespace penstock
