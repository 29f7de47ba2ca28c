// What the hypervisor took: a measurement during which it took much shows that instead.
#pragma once
#include <array>
#include <cstdint>
#include <fstream>
#include <numeric>
#include <string>

namespace penstock {

/// Time of all CPUs, in ticks.
struct MachineTime {
  std::int64_t all = 0, stolen = 0;  ///< `stolen`: given to other machines

  static MachineTime now() {
    std::ifstream stat("/proc/stat");
    std::string cpu;
    std::array<std::int64_t, 8> ticks{};  // user nice system idle iowait irq softirq steal
    stat >> cpu;
    for (std::int64_t& t : ticks) stat >> t;
    return {.all = std::reduce(ticks.begin(), ticks.end()), .stolen = ticks.back()};
  }

  /// Of the time since then, 0..1.
  [[nodiscard]] double stolen_until_now() const {
    const MachineTime then = now();
    return then.all > all ? static_cast<double>(then.stolen - stolen) / static_cast<double>(then.all - all)
                          : 0;
  }
};

}  // namespace penstock
