#include "examples/ctc/hearing.h"

#include <algorithm>
#include <numeric>

namespace penstock::train {

std::vector<Tokens> hear(const Recogniser& model, const torch::Tensor& mel, const torch::Tensor& lengths) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor best = model.outputs(mel, lengths).argmax(2).to(torch::kCPU, torch::kInt).contiguous();
  const torch::Tensor frames = lengths.to(torch::kCPU);
  std::vector<Tokens> rows(static_cast<std::size_t>(best.size(0)));
  for (std::int64_t row = 0; row < best.size(0); ++row) {
    const std::int32_t* symbols = best[row].const_data_ptr<std::int32_t>();
    const std::int64_t pairs = (frames[row].item<std::int64_t>() + 1) / 2;
    for (std::int64_t i = 0; i < pairs; ++i)
      if (symbols[i] != model.blank() && (i == 0 || symbols[i] != symbols[i - 1]))
        rows[static_cast<std::size_t>(row)].push_back(symbols[i]);
  }
  return rows;
}

std::int64_t edit_distance(std::span<const std::int32_t> a, std::span<const std::int32_t> b) {
  std::vector<std::int64_t> distances(b.size() + 1);  // from the first i of a to the first j of b
  std::iota(distances.begin(), distances.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::int64_t diagonal = distances[0];
    distances[0] = static_cast<std::int64_t>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::int64_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = distances[j];
      distances[j] = std::min({changed, distances[j] + 1, distances[j - 1] + 1});
    }
  }
  return distances.back();
}

}  // namespace penstock::train
