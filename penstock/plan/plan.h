// Which utterances make which batch, in which order: a pure function of lengths, options, epoch and step.
//
// Immutable and thread-safe. Nothing here remembers what was asked before, so any batch of any epoch costs
// the same.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "penstock/core/types.h"
#include "penstock/plan/shapes.h"

namespace penstock {

/// What becomes of the utterances that do not fill a shape's last batch: left out (others in each epoch),
/// made up with utterances from the front of the epoch's order, or made up with rows of length 0.
enum class Remainder { drop, wrap, pad };

struct PlanOptions {
  std::int32_t rank = 0;
  std::int32_t world = 1;
  std::uint64_t seed = 0;
  Remainder remainder = Remainder::drop;
  bool dynamic = false;  ///< every batch padded to its own longest (over all ranks): for debugging
};

/// One batch as this rank sees it.
struct BatchPlan {
  Shape shape;                ///< rows: of this rank
  std::int32_t bucket = 0;    ///< which of Plan::shapes()
  std::int64_t position = 0;  ///< of the global batch's first row in the bucket's order
  std::uint64_t key = 0;      ///< of the bucket's permutation in this epoch
};

class Plan {
 public:
  /// `shapes` is a chain (choose_shapes, or one fixed shape), whose rows are those of a batch over all ranks;
  /// each shape has its own. With `dynamic` it is ignored but for its last element, which bounds what is
  /// accepted. Utterances that fit no shape, or whose frames or tokens are 0, are rejected. Throws Error when
  /// the shape list is empty or no chain, a shape has no rows, a rank is not below the world, or no epoch has
  /// a batch (saying how many utterances there were and how many rows a batch needs).
  Plan(std::span<const Lengths> lengths, std::span<const Shape> shapes, const PlanOptions& options);

  [[nodiscard]] std::int64_t steps_per_epoch() const { return steps_; }
  /// Rows as this rank sees them: ceil(rows / world). With `dynamic`, the one that holds every batch.
  /// Memory for a batch is memory for any of these.
  [[nodiscard]] std::span<const Shape> shapes() const { return shapes_; }
  /// The last of the chain: most tokens and frames, but not always most rows.
  [[nodiscard]] Shape largest() const { return shapes_.back(); }
  [[nodiscard]] std::span<const std::int64_t> rejected() const { return rejected_; }  ///< numbers, ascending
  [[nodiscard]] std::span<const std::uint32_t> bucket(int shape) const;  ///< its utterances, ascending

  /// Throws Error unless 0 <= step < steps_per_epoch().
  [[nodiscard]] BatchPlan batch(std::int64_t epoch, std::int64_t step) const;
  /// The utterance in this rank's row `row` (below shape.rows); -1 for a row of length 0.
  [[nodiscard]] std::int64_t utterance(const BatchPlan& batch, std::int32_t row) const;
  /// The j-th (1..8) utterance to try in place of a bad one at position i of the bucket's order: that at
  /// position (i + j * rows) mod n, rows those of all ranks. In a small bucket it may be the bad one again,
  /// and with `dynamic` it may be longer than the batch. -1 for a row of length 0.
  [[nodiscard]] std::int64_t replacement(const BatchPlan& batch, std::int32_t row, int j) const;

  /// The share of mel frames (rows x frames of an epoch's batches on all ranks) that is padding, 0..1, from
  /// the lengths alone. Exact with `pad`; otherwise the mean over epochs, as each leaves out or repeats
  /// others. With `dynamic`, epoch 0's, which is looked up row by row.
  [[nodiscard]] double padding() const;
  /// Utterances of one epoch that `drop` leaves out. A shape with fewer of them than rows has no batch in any
  /// epoch.
  [[nodiscard]] std::int64_t dropped() const;

 private:
  struct Bucket {
    std::int64_t rows = 0;   // of a batch over all ranks
    std::int64_t first = 0;  // of its utterances in members_
    std::int64_t size = 0;
    std::int64_t frames = 0;       // of all its utterances
    std::int64_t first_batch = 0;  // in the epoch's unshuffled sequence of batches
    std::int64_t batches = 0;
  };
  /// What the rows of all ranks hold together (with `dynamic` only).
  struct Contents {
    Lengths longest;
    std::int64_t frames = 0;
  };
  void fill_buckets(std::span<const Lengths> lengths);
  void count_batches();
  [[nodiscard]] std::int64_t position(const BatchPlan& batch, std::int32_t row) const;
  [[nodiscard]] std::int64_t member(const BatchPlan& batch, std::int64_t at) const;
  [[nodiscard]] Contents contents(const BatchPlan& batch) const;

  PlanOptions options_;
  std::vector<Shape> shapes_;
  std::vector<Bucket> buckets_;         // one for each shape
  std::vector<std::uint32_t> members_;  // utterances, bucket after bucket
  std::vector<std::int64_t> rejected_;
  std::vector<Lengths> lengths_;  // with `dynamic` only
  std::int64_t steps_ = 0;
};

}  // namespace penstock
