#include "penstock/plan/plan.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "penstock/core/error.h"
#include "penstock/core/random.h"
#include "penstock/plan/permutation.h"

namespace penstock {
namespace {

constexpr std::int64_t no_utterance = -1;

void check(const PlanOptions& options) {
  if (options.world < 1) throw Error(fmt::format("plan: world must be at least 1, but is {}", options.world));
  if (options.rank < 0 || options.rank >= options.world) {
    throw Error(
        fmt::format("plan: rank must be between 0 and {}, but is {}", options.world - 1, options.rank));
  }
}

void check_chain(std::span<const Shape> shapes) {
  if (shapes.empty()) throw Error("plan: there must be at least one shape, but there is none");
  Shape before{0, 1, 1};
  for (std::size_t k = 0; k < shapes.size(); ++k) {
    const Shape& shape = shapes[k];
    if (shape.rows < 1)
      throw Error(fmt::format("plan: shape {} must have at least 1 row, but has {}", k, shape.rows));
    if (shape.tokens < before.tokens || shape.frames < before.frames) {
      throw Error(fmt::format("plan: shape {} must have at least {} tokens and {} frames, but has {} and {}",
                              k, before.tokens, before.frames, shape.tokens, shape.frames));
    }
    before = shape;
  }
}

std::int32_t rows_of_rank(std::int64_t rows, std::int32_t world) {
  return static_cast<std::int32_t>((rows + world - 1) / world);
}

std::uint64_t epoch_key(const PlanOptions& options, std::int64_t epoch) {
  return mix(options.seed, static_cast<std::uint64_t>(epoch));
}

// Which of the epoch's batches comes at which step, and which utterance of a bucket at which position. The
// order of all runs hangs on these two: they never change.
std::uint64_t sequence_key(std::uint64_t epoch) { return mix(epoch, hash_text("sequence")); }
std::uint64_t bucket_key(std::uint64_t epoch, std::size_t bucket) {
  return mix(mix(epoch, hash_text("bucket")), bucket);
}

}  // namespace

Plan::Plan(std::span<const Lengths> lengths, std::span<const Shape> shapes, const PlanOptions& options)
    : options_(options) {
  check(options);
  check_chain(shapes);
  if (lengths.size() > std::numeric_limits<std::uint32_t>::max()) {
    throw Error(fmt::format("plan: a dataset may have at most {} utterances, but has {}",
                            std::numeric_limits<std::uint32_t>::max(), lengths.size()));
  }
  if (options.dynamic) {
    shapes = shapes.last(1);
    lengths_.assign(lengths.begin(), lengths.end());
  }
  shapes_.assign(shapes.begin(), shapes.end());
  for (Shape& shape : shapes_) {
    buckets_.push_back({.rows = shape.rows});
    shape.rows = rows_of_rank(shape.rows, options.world);
  }
  fill_buckets(lengths);
  count_batches();
}

void Plan::fill_buckets(std::span<const Lengths> lengths) {
  Lengths longest;
  for (std::size_t u = 0; u < lengths.size(); ++u) {
    const int shape = first_shape(shapes_, lengths[u]);
    if (shape < 0) {
      rejected_.push_back(static_cast<std::int64_t>(u));
      continue;
    }
    ++buckets_[shape].size;
    buckets_[shape].frames += lengths[u].frames;
    longest.tokens = std::max(longest.tokens, lengths[u].tokens);
    longest.frames = std::max(longest.frames, lengths[u].frames);
  }
  std::vector<std::int64_t> next(buckets_.size());
  for (std::size_t k = 1; k < buckets_.size(); ++k) {
    next[k] = buckets_[k].first = buckets_[k - 1].first + buckets_[k - 1].size;
  }
  members_.resize(lengths.size() - rejected_.size());
  for (std::size_t u = 0; u < lengths.size(); ++u) {
    const int shape = first_shape(shapes_, lengths[u]);
    if (shape >= 0) members_[next[shape]++] = static_cast<std::uint32_t>(u);
  }
  if (options_.dynamic) shapes_ = {{shapes_[0].rows, longest.tokens, longest.frames}};
}

void Plan::count_batches() {
  const Bucket* fullest = buckets_.data();
  for (Bucket& bucket : buckets_) {
    const std::int64_t begun = options_.remainder == Remainder::drop ? 0 : bucket.rows - 1;
    bucket.first_batch = steps_;
    bucket.batches = (bucket.size + begun) / bucket.rows;
    steps_ += bucket.batches;
    if (bucket.size > fullest->size) fullest = &bucket;
  }
  if (steps_ == 0) {
    throw Error(
        fmt::format("plan: no shape fills a batch: of {} utterances {} are rejected, and the shape that most "
                    "take has {} for the {} rows of its batch{}",
                    members_.size() + rejected_.size(), rejected_.size(), fullest->size, fullest->rows,
                    members_.empty() ? "" : ": lower batch_size, or let remainder be pad"));
  }
}

std::span<const std::uint32_t> Plan::bucket(int shape) const {
  const Bucket& bucket = buckets_.at(shape);
  return std::span(members_).subspan(bucket.first, bucket.size);
}

BatchPlan Plan::batch(std::int64_t epoch, std::int64_t step) const {
  if (step < 0 || step >= steps_) {
    throw Error(fmt::format("plan: step must be between 0 and {}, but is {}", steps_ - 1, step));
  }
  const std::uint64_t key = epoch_key(options_, epoch);
  const auto number = static_cast<std::int64_t>(permute(step, steps_, sequence_key(key)));
  std::size_t k = 0;
  while (number >= buckets_[k].first_batch + buckets_[k].batches) ++k;
  BatchPlan batch{.shape = shapes_[k],
                  .bucket = static_cast<std::int32_t>(k),
                  .position = (number - buckets_[k].first_batch) * buckets_[k].rows,
                  .key = bucket_key(key, k)};
  if (options_.dynamic) {
    const Lengths longest = contents(batch).longest;
    batch.shape.tokens = longest.tokens;
    batch.shape.frames = longest.frames;
  }
  return batch;
}

std::int64_t Plan::utterance(const BatchPlan& batch, std::int32_t row) const {
  const std::int64_t at = position(batch, row);
  return at < 0 ? no_utterance : member(batch, at);
}

std::int64_t Plan::replacement(const BatchPlan& batch, std::int32_t row, int j) const {
  const std::int64_t at = position(batch, row);
  return at < 0 ? no_utterance : member(batch, at + j * buckets_[batch.bucket].rows);
}

/// Of this rank's row in the bucket's order, or -1 for a row of length 0.
std::int64_t Plan::position(const BatchPlan& batch, std::int32_t row) const {
  const std::int64_t global_row = std::int64_t{options_.rank} * batch.shape.rows + row;
  const Bucket& bucket = buckets_[batch.bucket];
  if (global_row >= bucket.rows) return -1;
  const std::int64_t at = batch.position + global_row;
  return options_.remainder == Remainder::pad && at >= bucket.size ? -1 : at;
}

/// The utterance at a position of the bucket's order, which starts again behind its end.
std::int64_t Plan::member(const BatchPlan& batch, std::int64_t at) const {
  const Bucket& bucket = buckets_[batch.bucket];
  return members_[bucket.first + permute(at % bucket.size, bucket.size, batch.key)];
}

Plan::Contents Plan::contents(const BatchPlan& batch) const {
  const Bucket& bucket = buckets_[batch.bucket];
  std::int64_t end = batch.position + bucket.rows;
  if (options_.remainder == Remainder::pad) end = std::min(end, bucket.size);
  Contents contents;
  for (std::int64_t at = batch.position; at < end; ++at) {
    const Lengths& lengths = lengths_[member(batch, at)];
    contents.longest.tokens = std::max(contents.longest.tokens, lengths.tokens);
    contents.longest.frames = std::max(contents.longest.frames, lengths.frames);
    contents.frames += lengths.frames;
  }
  return contents;
}

double Plan::padding() const {
  double valid = 0;
  double size = 0;
  const auto add = [&](std::int64_t batches, const Shape& shape, double valid_frames) {
    size += static_cast<double>(batches) * shape.rows * options_.world * shape.frames;
    valid += valid_frames;
  };
  if (options_.dynamic) {
    for (std::int64_t step = 0; step < steps_; ++step) {
      const BatchPlan one = batch(0, step);
      add(1, one.shape, static_cast<double>(contents(one).frames));
    }
    return 1 - valid / size;
  }
  for (std::size_t k = 0; k < buckets_.size(); ++k) {
    const Bucket& bucket = buckets_[k];
    if (bucket.batches == 0) continue;
    const std::int64_t filled =
        options_.remainder == Remainder::pad ? bucket.size : bucket.batches * bucket.rows;
    const double mean = static_cast<double>(bucket.frames) / static_cast<double>(bucket.size);
    add(bucket.batches, shapes_[k], mean * static_cast<double>(filled));
  }
  return 1 - valid / size;
}

std::int64_t Plan::dropped() const {
  if (options_.remainder != Remainder::drop) return 0;
  std::int64_t left_out = 0;
  for (const Bucket& bucket : buckets_) left_out += bucket.size - bucket.batches * bucket.rows;
  return left_out;
}

}  // namespace penstock
