// Reading mapped files that somebody may cut off: an error instead of a dead process.
#pragma once
#include <cstddef>
#include <span>
#include <type_traits>

namespace penstock {

/// Runs `body`, which reads `memory`, a mapped file. False when the file ended inside it (SIGBUS): `body` was
/// then left at that read without unwinding, so it must hold nothing that needs a destructor.
///
/// The first call installs a handler for SIGBUS; a fault outside of `memory` goes to whoever had it before.
bool survives_truncation(std::span<const std::byte> memory, void (*body)(void*), void* context);

template <typename Body>
bool survives_truncation(std::span<const std::byte> memory, Body&& body) {
  return survives_truncation(
      memory, [](void* context) { (*static_cast<std::remove_reference_t<Body>*>(context))(); }, &body);
}

}  // namespace penstock
