// What a dataset holds, what is wrong with it, and the shapes it would get.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "penstock/core/config.h"
#include "penstock/core/types.h"
#include "penstock/feed/cache.h"
#include "penstock/feed/dataset.h"

namespace penstock {

struct DatasetProblem {
  std::string id, reason;
};

/// What at most `count` shapes would be.
struct ShapeChoice {
  int count = 0;
  std::vector<Shape> shapes;
  double padding = 0;  ///< share of the frames
  std::int64_t dropped = 0;
};

struct DatasetInfo {
  std::int64_t clips = 0, train = 0, validation = 0;  ///< all of the dataset's, those with problems too
  double hours = 0, min_seconds = 0, max_seconds = 0;
  std::vector<double> seconds;  ///< of each readable clip
  /// No audio, or no text; and those of the split that are too long, or have nothing in them.
  std::vector<DatasetProblem> unreadable, rejected;
  std::vector<ShapeChoice> shapes;  ///< for 1, 2, 4 and 8, as far as batches can be filled
  std::vector<ListedPack> packs;
};

DatasetInfo describe(const Dataset& dataset, const Config& config);

}  // namespace penstock
