// The amdgpu driver's files.
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <future>
#include <set>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "penstock/monitor/gpu_driver.h"
#include "penstock/monitor/proc_file.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

std::vector<fs::path> entries(const fs::path& folder) {
  std::error_code none;
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(folder, none)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string text_of(const fs::path& path) {
  std::string buffer;
  auto text = ProcFile(path, false).read(buffer).value_or("");
  return std::string(next_line(text));
}

/// "1: 1700Mhz *": the level in use.
std::optional<double> marked_mhz(std::string_view levels) {
  while (!levels.empty()) {
    std::string_view line = next_line(levels);
    if (line.find('*') == std::string_view::npos) continue;
    next_number(line);
    return static_cast<double>(next_number(line));
  }
  return {};
}

/// Bytes a second, to the GPU and from it.
struct Traffic {
  double received = 0, sent = 0;
};

/// The driver counts packets of the largest size for a second before it answers, so a thread of its own asks.
/// Nothing where it does not count.
std::optional<Traffic> count_traffic(const fs::path& file) {
  std::string buffer;
  auto text = ProcFile(file, false).read(buffer).value_or("");
  const auto received = next_number(text), sent = next_number(text), bytes = next_number(text);
  if (bytes == 0) return {};
  return Traffic{.received = static_cast<double>(received * bytes),
                 .sent = static_cast<double>(sent * bytes)};
}

struct Card {
  Card(int number, const fs::path& folder)
      : index(number),
        device(folder),
        busy(folder / "gpu_busy_percent"),
        used(folder / "mem_info_vram_used"),
        total(folder / "mem_info_vram_total"),
        levels(folder / "pp_dpm_sclk") {
    name = text_of(device / "product_name");
    if (name.empty()) name = "AMD GPU " + text_of(device / "device");
    std::error_code none;
    for (const fs::path& sensor : entries(device / "hwmon")) {
      power = ProcFile(fs::exists(sensor / "power1_average", none) ? sensor / "power1_average"
                                                                   : sensor / "power1_input");
      frequency = ProcFile(sensor / "freq1_input");
    }
    for (const fs::path& node : entries(device / "drm"))
      if (const std::string file = node.filename(); file.starts_with("renderD")) render = file.substr(7);
  }

  int index;
  std::string name, render, compute;  // the numbers of its node for programs, and in the compute driver
  fs::path device;
  ProcFile busy, used, total, levels, power, frequency;
  bool lost = false;
  Gpus::Clock::time_point asked{};
  std::optional<std::vector<GpuProcess>> processes;
  std::optional<Traffic> traffic;
  std::future<std::optional<Traffic>> counting;
};

class Amd final : public GpuDriver {
 public:
  Amd(fs::path compute, std::vector<Card> cards) : compute_(std::move(compute)), cards_(std::move(cards)) {
    for (const fs::path& node : entries(compute_ / "topology" / "nodes")) {
      std::string buffer;
      const auto properties = ProcFile(node / "properties", false).read(buffer).value_or("");
      const std::string render = std::to_string(number_of(properties, "drm_render_minor"));
      for (Card& card : cards_)
        if (card.render == render) card.compute = text_of(node / "gpu_id");
    }
  }

  void sample(Gpus::Clock::time_point now, std::vector<GpuSample>& samples,
              std::vector<std::string>& news) override {
    for (Card& card : cards_) {
      if (card.lost) continue;
      GpuSample s{.index = card.index, .name = card.name};
      failed_ = false;
      if (const auto percent = ask(card, "utilisation", card.busy, news)) s.utilisation = *percent / 100;
      if (const auto bytes = ask(card, "memory", card.used, news))
        s.memory_used = static_cast<std::uint64_t>(*bytes);
      if (const auto bytes = ask(card, "memory", card.total, news))
        s.memory_total = static_cast<std::uint64_t>(*bytes);
      if (const auto microwatts = ask(card, "power", card.power, news)) s.power_w = *microwatts * 1e-6;
      s.clock_mhz = marked_mhz(card.levels.read(buffer_).value_or(""));
      if (!s.clock_mhz)
        if (const auto hertz = ask(card, "clock", card.frequency, news)) s.clock_mhz = *hertz * 1e-6;
      std::error_code none;
      if (failed_ && !fs::exists(card.device / "vendor", none)) {
        card.lost = true;
        news.push_back(fmt::format("GPU {} ({}) has vanished; the rest goes on", card.index, card.name));
        continue;
      }
      if (card.counting.valid() && card.counting.wait_for(0s) == std::future_status::ready)
        card.traffic = card.counting.get();
      if (now - card.asked >= slow_period) {
        card.processes = processes(card);
        if (const fs::path file = card.device / "pcie_bw"; !card.counting.valid() && fs::exists(file, none))
          card.counting = std::async(std::launch::async, count_traffic, file);
        card.asked = now;
      }
      s.processes = card.processes;
      if (card.traffic) s.pcie_rx = card.traffic->received, s.pcie_tx = card.traffic->sent;
      samples.push_back(std::move(s));
    }
  }

 private:
  std::optional<double> ask(const Card& card, const char* what, ProcFile& file,
                            std::vector<std::string>& news) {
    if (auto text = file.read(buffer_)) return static_cast<double>(next_number(*text));
    failed_ = true;
    if (const int error = file.error();
        (error == EACCES || error == EPERM) && said_.emplace(card.index, what).second)
      news.push_back(fmt::format("GPU {} ({}): {}: {}", card.index, card.name, what,
                                 std::generic_category().message(error)));
    return {};
  }

  [[nodiscard]] std::optional<std::vector<GpuProcess>> processes(const Card& card) const {
    if (card.compute.empty()) return {};
    std::vector<GpuProcess> found;
    for (const fs::path& process : entries(compute_ / "proc")) {
      const std::string id = process.filename(), memory = text_of(process / ("vram_" + card.compute));
      std::uint64_t bytes = 0;
      std::from_chars(memory.data(), memory.data() + memory.size(), bytes);
      std::string_view digits = id;
      if (bytes > 0) found.push_back({.id = static_cast<int>(next_number(digits)), .memory = bytes});
    }
    return found;
  }

  fs::path compute_;
  std::vector<Card> cards_;
  std::string buffer_;
  bool failed_ = false;
  std::set<std::pair<int, std::string>> said_;
};

}  // namespace

std::unique_ptr<GpuDriver> open_amd(const fs::path& sys, int first_index) {
  std::vector<Card> cards;
  for (const fs::path& path : entries(sys / "class" / "drm")) {
    const std::string name = path.filename();
    const bool card =
        name.starts_with("card") && name.find('-') == std::string::npos;  // with one: its outputs
    if (card && text_of(path / "device" / "vendor") == "0x1002")
      cards.emplace_back(first_index + static_cast<int>(cards.size()), path / "device");
  }
  if (cards.empty()) return nullptr;
  return std::make_unique<Amd>(sys / "class" / "kfd" / "kfd", std::move(cards));
}

}  // namespace penstock
