// How many rows the batches of each shape have when memory decides it.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "penstock/core/types.h"
#include "penstock/plan/plan.h"

namespace penstock {

/// What a batch has at most, on one rank and over all.
inline constexpr std::int32_t most_rows = 32768;
inline constexpr std::int32_t most_global_rows = 1 << 24;

/// Matrix units work in multiples of this; fewer rows stay as they are.
inline constexpr std::int32_t row_multiple = 8;

/// How many rows of `frames` frames come to `budget` frames at most, in multiples of 8 from 8 on, and
/// `most_rows` at most. 0 where none fits.
std::int32_t rows_within(std::int64_t budget, std::int32_t frames);

/// The chain with each shape's rows over all ranks: rows_within(budget, its frames) for each rank, but no
/// more than the utterances that take the shape fill (Remainder::drop) or need (wrap, pad), and at least 1.
/// So every shape that as many utterances take as there are ranks has a batch; and where the budget has room
/// for a row of the last shape, every batch is within it.
std::vector<Shape> with_rows(std::span<const Lengths> lengths, std::vector<Shape> shapes, std::int64_t budget,
                             std::int32_t world, Remainder remainder);

}  // namespace penstock
