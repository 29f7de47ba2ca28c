// A manifest and its audio headers -> the bytes of an index.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "penstock/source/index.h"
#include "penstock/source/index_format.h"
#include "penstock/source/manifest.h"

namespace penstock {

/// Reads every header in parallel, but for audio files that `known` has with the stamp that they still have.
/// What is wrong with a row becomes its `problem`; Error only where the machine cannot go on.
std::vector<std::byte> build_index(const Manifest& manifest, const IndexInputs& inputs, std::uint64_t key,
                                   const std::optional<IndexView>& known);

}  // namespace penstock
