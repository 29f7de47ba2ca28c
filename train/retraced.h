// The batch that a retrace is about.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "penstock/core/types.h"

namespace penstock::train {

/// A batch whose shape had no plan.
struct Retrace {
  Shape shape;
  std::int64_t epoch = 0, step = 0;      ///< of the batch in the feed
  std::vector<std::int64_t> utterances;  ///< of the batch
  std::string cause;                     ///< "shape (16, 96, 512) is none of the 4 that were planned"
};

}  // namespace penstock::train
