#include "penstock/monitor/nvml.h"

#include <array>
#include <set>
#include <span>
#include <utility>

#include <dlfcn.h>
#include <fmt/format.h>

#include "penstock/monitor/gpu_driver.h"

namespace penstock {
namespace {

/// Functions that a library does not have are null.
struct Nvml {
  // NOLINTBEGIN(bugprone-macro-parentheses): lists of parameters
#define PENSTOCK_MEMBER(name, parameters) int(*name) parameters = nullptr;
  PENSTOCK_NVML_CALLS(PENSTOCK_MEMBER)
#undef PENSTOCK_MEMBER
  const char* (*nvmlErrorString)(int result) = nullptr;

  explicit Nvml(void* library) {
#define PENSTOCK_LOAD(name, parameters) name = reinterpret_cast<int(*) parameters>(dlsym(library, #name));
    PENSTOCK_NVML_CALLS(PENSTOCK_LOAD)
#undef PENSTOCK_LOAD
    nvmlErrorString = reinterpret_cast<const char* (*)(int)>(dlsym(library, "nvmlErrorString"));
  }
  // NOLINTEND(bugprone-macro-parentheses)

  [[nodiscard]] std::string reason(int result) const {
    const char* text = nvmlErrorString != nullptr ? nvmlErrorString(result) : nullptr;
    return text != nullptr ? fmt::format("{} ({})", text, result) : fmt::format("error {}", result);
  }
};

struct Gpu {
  int index = 0;
  void* handle = nullptr;
  std::string name;
  bool lost = false;
  Gpus::Clock::time_point asked{};  // for what is slow
  GpuSample slow;                   // pcie_rx, pcie_tx and processes of then
};

class Nvidia final : public GpuDriver {
 public:
  Nvidia(const Nvml& api, std::vector<Gpu> gpus) : api_(api), gpus_(std::move(gpus)) {}
  ~Nvidia() override {
    if (api_.nvmlShutdown != nullptr) api_.nvmlShutdown();
  }

  void sample(Gpus::Clock::time_point now, std::vector<GpuSample>& samples,
              std::vector<std::string>& news) override {
    // The driver counts bytes for 20 ms while we wait, so one GPU in each sample.
    Gpu* oldest = nullptr;
    for (Gpu& gpu : gpus_)
      if (!gpu.lost && now - gpu.asked >= slow_period && (oldest == nullptr || gpu.asked < oldest->asked))
        oldest = &gpu;
    for (Gpu& gpu : gpus_) {
      if (gpu.lost) continue;
      GpuSample sample = read(gpu, news);
      if (&gpu == oldest && !gpu.lost) {
        ask_slowly(gpu, news);
        gpu.asked = now;
      }
      if (gpu.lost) continue;
      sample.pcie_rx = gpu.slow.pcie_rx;
      sample.pcie_tx = gpu.slow.pcie_tx;
      sample.processes = gpu.slow.processes;
      samples.push_back(std::move(sample));
    }
  }

 private:
  /// Whether the call brought something; says what a person should know.
  template <typename Function, typename... Arguments>
  bool ask(Gpu& gpu, const char* what, std::vector<std::string>& news, Function function,
           Arguments... arguments) {
    if (gpu.lost || function == nullptr) return false;
    const int result = function(gpu.handle, arguments...);
    if (result == nvml::success) return true;
    if (result == nvml::gpu_is_lost || result == nvml::reset_required) {
      gpu.lost = true;
      news.push_back(fmt::format("GPU {} ({}) has vanished: {}; the rest goes on", gpu.index, gpu.name,
                                 api_.reason(result)));
    } else if (result == nvml::no_permission && said_.emplace(gpu.index, what).second) {
      news.push_back(fmt::format("GPU {} ({}): {}: {}", gpu.index, gpu.name, what, api_.reason(result)));
    }
    return false;
  }

  GpuSample read(Gpu& gpu, std::vector<std::string>& news) {
    GpuSample s{.index = gpu.index, .name = gpu.name};
    if (nvml::Utilisation u{}; ask(gpu, "utilisation", news, api_.nvmlDeviceGetUtilizationRates, &u))
      s.utilisation = u.gpu / 100.0;
    if (nvml::Memory m{}; ask(gpu, "memory", news, api_.nvmlDeviceGetMemoryInfo, &m)) {
      s.memory_used = m.used;
      s.memory_total = m.total;
    }
    if (unsigned mw = 0; ask(gpu, "power", news, api_.nvmlDeviceGetPowerUsage, &mw)) s.power_w = mw * 1e-3;
    if (unsigned mhz = 0; ask(gpu, "clock", news, api_.nvmlDeviceGetClockInfo, nvml::clock_sm, &mhz))
      s.clock_mhz = mhz;
    return s;
  }

  void ask_slowly(Gpu& gpu, std::vector<std::string>& news) {
    gpu.slow = {};
    const auto throughput = [&](int counter) -> std::optional<double> {
      unsigned kb = 0;
      if (!ask(gpu, "PCIe throughput", news, api_.nvmlDeviceGetPcieThroughput, counter, &kb)) return {};
      return kb * 1e3;
    };
    gpu.slow.pcie_rx = throughput(nvml::pcie_rx);
    gpu.slow.pcie_tx = throughput(nvml::pcie_tx);
    std::array<nvml::Process, 64> found{};
    auto count = static_cast<unsigned>(found.size());
    if (!ask(gpu, "processes", news, api_.nvmlDeviceGetComputeRunningProcesses_v3, &count, found.data()))
      return;
    gpu.slow.processes.emplace();
    for (const nvml::Process& p : std::span(found).first(count))
      gpu.slow.processes->push_back(
          {.id = static_cast<int>(p.pid),
           .memory = p.memory == ~0ULL ? std::nullopt : std::optional<std::uint64_t>(p.memory)});
  }

  const Nvml api_;
  std::vector<Gpu> gpus_;
  std::set<std::pair<int, std::string>> said_;
};

}  // namespace

std::unique_ptr<GpuDriver> open_nvidia(const std::string& library, int first_index,
                                       std::vector<std::string>& news) {
  // It stays loaded: a driver's library has threads of its own.
  void* opened =
      dlopen(library.empty() ? "libnvidia-ml.so.1" : library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (opened == nullptr) {
    if (!library.empty()) news.push_back(fmt::format("no NVIDIA GPU: {}", dlerror()));
    return nullptr;
  }
  const Nvml api(opened);
  if (api.nvmlInit_v2 == nullptr || api.nvmlDeviceGetCount_v2 == nullptr ||
      api.nvmlDeviceGetHandleByIndex_v2 == nullptr) {
    news.emplace_back("no NVIDIA GPU: libnvidia-ml.so.1 is too old or not NVML; update the driver");
    return nullptr;
  }
  if (const int result = api.nvmlInit_v2(); result != nvml::success) {
    news.push_back(fmt::format("no NVIDIA GPU: {}", api.reason(result)));
    return nullptr;
  }
  unsigned count = 0;
  api.nvmlDeviceGetCount_v2(&count);
  std::vector<Gpu> gpus;
  for (unsigned i = 0; i < count; ++i) {
    Gpu gpu{.index = first_index + static_cast<int>(i), .name = "NVIDIA GPU"};
    if (const int result = api.nvmlDeviceGetHandleByIndex_v2(i, &gpu.handle); result != nvml::success) {
      news.push_back(fmt::format("GPU {}: {}; the rest goes on", gpu.index, api.reason(result)));
      continue;
    }
    std::array<char, 96> name{};
    if (api.nvmlDeviceGetName != nullptr && api.nvmlDeviceGetName(gpu.handle, name.data(), name.size()) == 0)
      gpu.name = name.data();
    gpus.push_back(std::move(gpu));
  }
  if (gpus.empty() && news.empty())
    news.emplace_back("no NVIDIA GPU: the driver is there, and knows of none");
  auto driver = std::make_unique<Nvidia>(api, std::move(gpus));
  return count == 0 ? nullptr : std::move(driver);
}

}  // namespace penstock
