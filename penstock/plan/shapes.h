// Which few shapes a dataset's batches should have.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "penstock/core/types.h"

namespace penstock {

/// What an utterance needs of a shape.
struct Lengths {
  std::int32_t tokens = 0;
  std::int32_t frames = 0;
};

/// Lengths of chosen shapes are multiples of this.
inline constexpr std::int32_t shape_multiple = 8;

/// At most `count` shapes that form a chain (tokens and frames both non-decreasing), the last one holding
/// every utterance, such that the padded size of an epoch is least: the sum over shapes of ceil(n / rows) *
/// rows * (frames + tokens), where an utterance takes the first shape that holds it and n counts those. Of
/// equally good chains it is one of the shortest.
///
/// Exact over all multiples of 8 as long as (different token lengths) x (different frame lengths), in
/// multiples of 8, is 4096 at most; beyond that over a grid of so many quantiles of the lengths, which is
/// never worse than `count` buckets cut at quantiles of frames.
///
/// `rows` is the global batch. Every shape has at least one utterance. Utterances without tokens or frames do
/// not count. Throws Error when none is left, when `count` or `rows` is below 1, or when a length is over
/// `longest_length`.
std::vector<Shape> choose_shapes(std::span<const Lengths> lengths, int count, std::int32_t rows);

/// The chain without the shapes that fewer than `rows` utterances take, as far as there are others: with
/// Remainder::drop such a shape would never have a batch, and its utterances would never be seen. They take
/// the next shape; a last shape that is short takes over the one before it.
std::vector<Shape> without_rare_shapes(std::span<const Lengths> lengths, std::vector<Shape> shapes,
                                       std::int32_t rows);

/// Days of audio: more is taken for a damaged header.
inline constexpr std::int32_t longest_length = 1 << 24;

/// What choose_shapes minimises, for any chain. Utterances that fit no shape do not count.
double padded_size(std::span<const Lengths> lengths, std::span<const Shape> shapes, std::int32_t rows);

/// The first shape of a chain that holds the utterance, or -1. An utterance without tokens or frames fits
/// none.
int first_shape(std::span<const Shape> shapes, Lengths lengths);

}  // namespace penstock
