#include "penstock/plan/rows.h"

#include <algorithm>

namespace penstock {
namespace {

std::int64_t rounded_down(std::int64_t rows) {
  return rows < row_multiple ? rows : rows / row_multiple * row_multiple;
}

std::int64_t rounded_up(std::int64_t rows) {
  return rows < row_multiple ? rows : (rows + row_multiple - 1) / row_multiple * row_multiple;
}

}  // namespace

std::int32_t rows_within(std::int64_t budget, std::int32_t frames) {
  return static_cast<std::int32_t>(rounded_down(std::min<std::int64_t>(budget / frames, most_rows)));
}

std::vector<Shape> with_rows(std::span<const Lengths> lengths, std::vector<Shape> shapes, std::int64_t budget,
                             std::int32_t world, Remainder remainder) {
  std::vector<std::int64_t> utterances(shapes.size());
  for (const Lengths length : lengths) {
    if (const int k = first_shape(shapes, length); k >= 0) ++utterances[k];
  }
  for (std::size_t k = 0; k < shapes.size(); ++k) {
    const std::int64_t needed = remainder == Remainder::drop
                                    ? rounded_down(utterances[k] / world)
                                    : rounded_up((utterances[k] + world - 1) / world);
    const std::int64_t rows = std::min<std::int64_t>(
        {rows_within(budget, shapes[k].frames), needed, rounded_down(most_global_rows / world)});
    shapes[k].rows = static_cast<std::int32_t>(std::max<std::int64_t>(1, rows)) * world;
  }
  return shapes;
}

}  // namespace penstock
