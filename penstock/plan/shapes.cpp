#include "penstock/plan/shapes.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "penstock/core/error.h"

namespace penstock {
namespace {

/// What the search can look at in a few milliseconds, even where tokens and frames have nothing to do with
/// each other.
constexpr std::size_t grid_corners = 4096;

bool empty(Lengths length) { return length.tokens <= 0 || length.frames <= 0; }

std::int32_t units(std::int32_t length) { return (length + shape_multiple - 1) / shape_multiple; }

/// How many utterances have which length, in units of shape_multiple.
struct Histogram {
  std::vector<std::int64_t> tokens;
  std::vector<std::int64_t> frames;
};

Histogram count_lengths(std::span<const Lengths> lengths) {
  Lengths most;
  for (const Lengths length : lengths) {
    if (empty(length)) continue;
    most.tokens = std::max(most.tokens, length.tokens);
    most.frames = std::max(most.frames, length.frames);
  }
  if (empty(most)) {
    throw Error(fmt::format(
        "plan: shapes need at least one utterance with tokens and frames, but there is none among {}",
        lengths.size()));
  }
  if (std::max(most.tokens, most.frames) > longest_length) {
    throw Error(fmt::format("plan: an utterance must have at most {} tokens and frames, but one has {}",
                            longest_length, std::max(most.tokens, most.frames)));
  }
  Histogram histogram;
  histogram.tokens.resize(units(most.tokens) + 1);
  histogram.frames.resize(units(most.frames) + 1);
  for (const Lengths length : lengths) {
    if (empty(length)) continue;
    ++histogram.tokens[units(length.tokens)];
    ++histogram.frames[units(length.frames)];
  }
  return histogram;
}

/// The first lengths at which 1/parts, 2/parts, ... of the total weight is reached, ascending; the last is
/// the longest.
std::vector<std::int32_t> quantiles(std::span<const std::int64_t> weights, std::int64_t parts) {
  const std::int64_t total = std::accumulate(weights.begin(), weights.end(), std::int64_t{0});
  std::vector<std::int32_t> found;
  std::int64_t seen = 0;
  std::int64_t part = 1;
  for (std::size_t length = 0; length < weights.size(); ++length) {
    seen += weights[length];
    if (seen * parts < part * total) continue;
    found.push_back(static_cast<std::int32_t>(length));
    part = seen * parts / total + 1;
  }
  return found;
}

/// One side of the grid: its lengths, and for every length the place of the first that is not shorter.
struct Axis {
  std::vector<std::int32_t> values;
  std::vector<std::int32_t> place;
};

/// All lengths that occur, or `limit` quantiles of them, and the `wanted` ones.
Axis make_axis(std::vector<std::int64_t> counts, std::size_t limit, std::span<const std::int32_t> wanted) {
  Axis axis{{wanted.begin(), wanted.end()}, {}};
  for (std::size_t length = 0; length < counts.size(); ++length) {
    if (counts[length] > 0) axis.values.push_back(static_cast<std::int32_t>(length));
  }
  if (axis.values.size() > limit + wanted.size()) {
    // Weighted with their length: a long tail has few utterances, but much to pad.
    for (std::size_t length = 0; length < counts.size(); ++length) {
      counts[length] *= static_cast<std::int64_t>(length);
    }
    axis.values = quantiles(counts, static_cast<std::int64_t>(limit));
    axis.values.insert(axis.values.end(), wanted.begin(), wanted.end());
  }
  std::sort(axis.values.begin(), axis.values.end());
  axis.values.erase(std::unique(axis.values.begin(), axis.values.end()), axis.values.end());
  for (std::size_t place = 0; place < axis.values.size(); ++place) {
    axis.place.resize(axis.values[place] + 1, static_cast<std::int32_t>(place));
  }
  return axis;
}

struct Grid {
  Axis tokens;
  Axis frames;
};

/// A grid of grid_corners at most, but for the lengths of `count` buckets cut at quantiles of frames, which
/// it always has.
Grid make_grid(const Histogram& histogram, int count) {
  constexpr std::size_t side = 64;
  static_assert(side * side == grid_corners);
  const auto distinct = [](const std::vector<std::int64_t>& counts) {
    return counts.size() - static_cast<std::size_t>(std::count(counts.begin(), counts.end(), 0));
  };
  const std::size_t most_tokens = std::max(side, grid_corners / distinct(histogram.frames));
  const std::size_t most_frames = std::max(side, grid_corners / distinct(histogram.tokens));
  return {make_axis(histogram.tokens, most_tokens, {}),
          make_axis(histogram.frames, most_frames, quantiles(histogram.frames, count))};
}

/// A shape that a chain may have: just large enough for what a corner of the grid holds. In multiples of
/// shape_multiple.
struct Corner {
  std::int32_t tokens = 0;
  std::int32_t frames = 0;
  std::int64_t inside = 0;  ///< utterances it holds
  std::int64_t least = 0;   ///< their own tokens + frames: no chain holds them in less
  std::int32_t token_place = 0;
  std::int32_t frame_place = 0;

  void add(const Corner& part, int sign) {
    tokens = std::max(tokens, part.tokens);
    frames = std::max(frames, part.frames);
    inside += sign * part.inside;
    least += sign * part.least;
  }
};

/// The corners that hold something their neighbours with fewer tokens and with fewer frames do not, by
/// token_place and then frame_place. No other is needed: one that holds the same as a neighbour is the same
/// shape.
std::vector<Corner> distinct_corners(std::span<const Lengths> lengths, const Grid& grid) {
  const std::size_t width = grid.frames.values.size() + 1;  // row 0 and column 0 hold nothing
  const std::size_t height = grid.tokens.values.size() + 1;
  std::vector<Corner> cells(width * height);
  for (const Lengths length : lengths) {
    if (empty(length)) continue;
    const std::int32_t tokens = units(length.tokens);
    const std::int32_t frames = units(length.frames);
    Corner& cell = cells[(grid.tokens.place[tokens] + 1) * width + grid.frames.place[frames] + 1];
    cell.add({.tokens = tokens, .frames = frames, .inside = 1, .least = std::int64_t{tokens} + frames}, 1);
  }
  std::vector<Corner> corners;
  for (std::size_t t = 1; t < height; ++t) {
    for (std::size_t f = 1; f < width; ++f) {
      Corner& corner = cells[t * width + f];
      const Corner& fewer_tokens = cells[(t - 1) * width + f];
      const Corner& fewer_frames = cells[t * width + f - 1];
      corner.add(fewer_tokens, 1);
      corner.add(fewer_frames, 1);
      corner.add(cells[(t - 1) * width + f - 1], -1);
      if (corner.inside == fewer_tokens.inside || corner.inside == fewer_frames.inside) continue;
      corner.token_place = static_cast<std::int32_t>(t - 1);
      corner.frame_place = static_cast<std::int32_t>(f - 1);
      corners.push_back(corner);
    }
  }
  return corners;
}

/// Finds the cheapest chain of corners that ends with the last: after round k, `cost_` has for every corner
/// the least cost of what it holds in at most k shapes, itself the last of them.
class ChainSearch {
 public:
  ChainSearch(std::span<const Corner> corners, std::int32_t rows) : corners_(corners), rows_(rows) {
    for (const Corner& corner : corners) {
      cost_.push_back((corner.inside + rows - 1) / rows * rows * (corner.tokens + corner.frames));
    }
  }

  /// Corner numbers, smallest first.
  std::vector<std::size_t> run(int count) {
    for (int shapes = 2; shapes <= count; ++shapes) {
      collect_predecessors();
      before_.emplace_back(corners_.size(), none);
      bool better = extend(corners_.size() - 1);
      if (shapes < count) {
        for (std::size_t corner = 0; corner + 1 < corners_.size(); ++corner) better |= extend(corner);
      }
      if (!better) break;
    }
    return trace_back();
  }

 private:
  static constexpr std::int32_t none = -1;

  /// A corner of the round before as the inner loop wants it.
  struct Predecessor {
    std::int64_t cost;
    std::int32_t batches;  // inside = batches * rows + rest
    std::int32_t rest;
    std::int32_t frame_place;
    std::int32_t corner;
  };

  /// Leaves out corners that already carry more padding than the best whole chain so far: it only grows.
  void collect_predecessors() {
    const std::int64_t most_padding = cost_.back() - corners_.back().least;
    predecessors_.clear();
    row_begin_.assign(1, 0);
    for (std::size_t c = 0; c < corners_.size(); ++c) {
      const Corner& corner = corners_[c];
      row_begin_.resize(corner.token_place + 1, predecessors_.size());
      if (cost_[c] - corner.least > most_padding) continue;
      predecessors_.push_back({cost_[c], static_cast<std::int32_t>(corner.inside / rows_),
                               static_cast<std::int32_t>(corner.inside % rows_), corner.frame_place,
                               static_cast<std::int32_t>(c)});
    }
    row_begin_.push_back(predecessors_.size());
  }

  /// Whether the corner costs less behind one of the predecessors it contains.
  bool extend(std::size_t c) {
    const Corner& corner = corners_[c];
    const auto batches = static_cast<std::int32_t>(corner.inside / rows_);
    const auto rest = static_cast<std::int32_t>(corner.inside % rows_);
    const std::int64_t batch_cost = rows_ * (corner.tokens + corner.frames);
    std::int64_t best = cost_[c];
    for (std::int32_t row = 0; row <= corner.token_place; ++row) {
      for (std::size_t p = row_begin_[row]; p < row_begin_[row + 1]; ++p) {
        const Predecessor& before = predecessors_[p];
        if (before.frame_place > corner.frame_place) break;
        // The batches of what is between the two corners, rounded up, without a division.
        const std::int64_t between = batches - before.batches + (rest > before.rest ? 1 : 0);
        const std::int64_t cost = before.cost + between * batch_cost;
        if (cost >= best) continue;
        best = cost;
        before_.back()[c] = before.corner;
      }
    }
    const bool better = best < cost_[c];
    cost_[c] = best;
    return better;
  }

  std::vector<std::size_t> trace_back() const {
    std::vector<std::size_t> chain{corners_.size() - 1};
    for (std::size_t round = before_.size(); round-- > 0;) {
      const std::int32_t before = before_[round][chain.back()];
      if (before != none) chain.push_back(static_cast<std::size_t>(before));
    }
    std::reverse(chain.begin(), chain.end());
    return chain;
  }

  std::span<const Corner> corners_;
  std::int64_t rows_;
  std::vector<std::int64_t> cost_;
  std::vector<std::vector<std::int32_t>> before_;  // by round, from the second
  std::vector<Predecessor> predecessors_;
  std::vector<std::size_t> row_begin_;  // of each token_place
};

}  // namespace

std::vector<Shape> choose_shapes(std::span<const Lengths> lengths, int count, std::int32_t rows) {
  if (count < 1) throw Error(fmt::format("plan: the number of shapes must be at least 1, but is {}", count));
  if (rows < 1) throw Error(fmt::format("plan: a batch must have at least 1 row, but has {}", rows));
  const Grid grid = make_grid(count_lengths(lengths), count);
  const std::vector<Corner> corners = distinct_corners(lengths, grid);
  std::vector<Shape> shapes;
  for (const std::size_t c : ChainSearch(corners, rows).run(count)) {
    shapes.push_back({rows, shape_multiple * corners[c].tokens, shape_multiple * corners[c].frames});
  }
  return shapes;
}

double padded_size(std::span<const Lengths> lengths, std::span<const Shape> shapes, std::int32_t rows) {
  std::vector<std::int64_t> utterances(shapes.size());
  for (const Lengths length : lengths) {
    const int shape = first_shape(shapes, length);
    if (shape >= 0) ++utterances[shape];
  }
  double size = 0;
  for (std::size_t k = 0; k < shapes.size(); ++k) {
    const std::int64_t batches = (utterances[k] + rows - 1) / rows;
    size += static_cast<double>(batches) * rows * (static_cast<double>(shapes[k].frames) + shapes[k].tokens);
  }
  return size;
}

int first_shape(std::span<const Shape> shapes, Lengths lengths) {
  // In a chain those that are too small come first. Counting them has no branch to mispredict: lengths are
  // random.
  std::size_t too_small = 0;
  for (const Shape& shape : shapes) {
    too_small += static_cast<unsigned>(lengths.tokens > shape.tokens) |
                 static_cast<unsigned>(lengths.frames > shape.frames);
  }
  return empty(lengths) || too_small == shapes.size() ? -1 : static_cast<int>(too_small);
}

std::vector<Shape> without_rare_shapes(std::span<const Lengths> lengths, std::vector<Shape> shapes,
                                       std::int32_t rows) {
  std::vector<std::int64_t> counts(shapes.size());
  for (const Lengths length : lengths) {
    if (const int k = first_shape(shapes, length); k >= 0) ++counts[k];
  }
  while (shapes.size() > 1) {
    const auto rare = std::find_if(counts.begin(), counts.end(), [&](std::int64_t n) { return n < rows; });
    if (rare == counts.end()) break;
    const auto gone = std::min<std::ptrdiff_t>(rare - counts.begin(), std::ssize(shapes) - 2);
    counts[gone + 1] += counts[gone];
    counts.erase(counts.begin() + gone);
    shapes.erase(shapes.begin() + gone);
  }
  return shapes;
}

}  // namespace penstock
