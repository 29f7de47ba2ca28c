#include "train/bf16.h"

#include <cstdlib>
#include <string_view>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace penstock::train {
namespace {

#if defined(__x86_64__)
struct Leaf {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

/// Zeros for a leaf that the CPU, or the hypervisor before it, does not have.
Leaf cpuid(unsigned leaf, unsigned part) {
  Leaf r;
  if (__get_cpuid_count(leaf, part, &r.a, &r.b, &r.c, &r.d) == 0) return {};
  return r;
}

bool advertises_amx() { return ((cpuid(7, 0).d >> 24) & 1) != 0; }

/// oneDNN sizes its tiles by leaf 0x1d. Some hypervisors pass the AMX bits on and hide that leaf: tiles of no
/// size, and the first instruction on one of them is illegal.
bool describes_tiles() {
  const Leaf palette = cpuid(0x1d, 1);
  const unsigned row_bytes = palette.b & 0xffff, tiles = palette.b >> 16, rows = palette.c & 0xffff;
  return row_bytes >= 64 && tiles >= 8 && rows >= 16;
}

/// The tile registers are large: Linux gives them to processes that ask.
bool may_use_tiles() {
  constexpr int request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return ::syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

bool ask() {
  if (!advertises_amx()) return false;
  if (describes_tiles() && may_use_tiles()) return true;
  // A lower cap that the user has set stays.
  const char* set = std::getenv("ONEDNN_MAX_CPU_ISA");
  const std::string_view cap = set == nullptr ? "" : set;
  const bool lower = (cap.starts_with("SSE") || cap.starts_with("AVX")) && cap.find("AMX") == cap.npos;
  if (!lower) ::setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16", 1);
  return false;
}
#else
bool ask() { return false; }
#endif

[[maybe_unused]] const bool asked_before_main = prepare_bf16();

}  // namespace

bool prepare_bf16() {
  static const bool amx = ask();
  return amx;
}

}  // namespace penstock::train
