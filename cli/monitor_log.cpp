#include "cli/monitor_log.h"

#include <algorithm>
#include <cerrno>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "penstock/core/error.h"
#include "penstock/monitor/system_log.h"

namespace penstock::cli {
namespace {

using nlohmann::json;

std::string csv_header(const std::vector<int>& gpus, std::size_t cores) {
  std::string out = "time";
  for (const int gpu : gpus)
    for (const char* field :
         {"utilisation", "memory_used", "memory_total", "power_w", "clock_mhz", "pcie_rx", "pcie_tx"})
      out += fmt::format(",gpu{}_{}", gpu, field);
  out += ",cpu_busy,cpu_steal";
  for (std::size_t i = 0; i < cores; ++i) out += fmt::format(",core{}", i);
  return out +
         ",memory_total,memory_available,memory_used,page_cache,disk_read,disk_write,disk_busy,faults_major,"
         "command_cpus,command_waiting,command_resident,command_read,command_faults_major";
}

template <typename Value>
std::string field(const std::optional<Value>& value) {
  return value ? fmt::format(",{:.10g}", static_cast<double>(*value)) : ",";
}
std::string field(double value) { return fmt::format(",{:.6g}", value); }
std::string field(std::uint64_t value) { return fmt::format(",{}", value); }

std::string csv_line(const Moment& m, const std::vector<int>& gpus, std::size_t cores) {
  std::string out;
  for (const int index : gpus) {
    const auto found =
        std::find_if(m.gpus.begin(), m.gpus.end(), [&](const GpuSample& g) { return g.index == index; });
    const GpuSample gpu = found != m.gpus.end() ? *found : GpuSample{};
    out += field(gpu.utilisation) + field(gpu.memory_used) + field(gpu.memory_total) + field(gpu.power_w) +
           field(gpu.clock_mhz) + field(gpu.pcie_rx) + field(gpu.pcie_tx);
  }
  const SystemSample& s = m.system;
  out += field(s.busy) + field(s.steal);
  for (std::size_t i = 0; i < cores; ++i) out += i < s.cores.size() ? field(s.cores[i]) : ",";
  out += field(s.memory.total) + field(s.memory.available) + field(s.memory.used) +
         field(s.memory.page_cache) + field(s.disk.read) + field(s.disk.write) + field(s.disk.busy) +
         field(s.faults_major);
  if (!m.command) return out + ",,,,,";
  return out + field(m.command->cpu) + field(m.command->waiting) + field(m.command->resident) +
         field(m.command->read) + field(m.command->faults_major);
}

std::string json_line(const Moment& m, double time) {
  std::string line = fmt::format("{{\"t\":{:.3f},{}", time, system_json(m.system, m.gpus).substr(1));
  if (!m.command) return line;
  json command = {{"cpus", m.command->cpu},
                  {"waiting", m.command->waiting},
                  {"resident", m.command->resident},
                  {"processes", m.command->processes.size()},
                  {"faults_major", m.command->faults_major}};
  if (m.command->read) command["read"] = *m.command->read;
  line.pop_back();
  return line + ",\"command\":" + command.dump() + "}";
}

std::string first_line(const File& file) {
  std::string text(1 << 16, '\0');
  const ssize_t size = ::pread(file.fd(), text.data(), text.size(), 0);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, size)));
  return text.substr(0, text.find('\n'));
}

}  // namespace

MonitorLog::MonitorLog(const std::filesystem::path& path, const Moment& first)
    : path_(path), csv_(path.extension() == ".csv"), cores_(first.system.cores.size()) {
  if (!csv_ && path.extension() != ".jsonl")
    throw Error(fmt::format("--log-file must end in .csv or .jsonl, but is {}", path.string()));
  file_ = File(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (file_.fd() < 0)
    throw Error(
        fmt::format("{}: cannot be written: {}", path.string(), std::generic_category().message(errno)));
  if (!csv_) return;
  for (const GpuSample& gpu : first.gpus) gpus_.push_back(gpu.index);
  const std::string header = csv_header(gpus_, cores_), found = first_line(file_);
  if (found.empty())
    write(header);
  else if (found != header)
    throw Error(fmt::format("{}: has other columns than this machine's; name another file", path.string()));
}

void MonitorLog::add(const Moment& moment, double seconds_since_epoch) {
  write(csv_ ? fmt::format("{:.3f}", seconds_since_epoch) + csv_line(moment, gpus_, cores_)
             : json_line(moment, seconds_since_epoch));
}

void MonitorLog::write(const std::string& line) {
  const std::string text = line + "\n";
  const ssize_t written = ::write(file_.fd(), text.data(), text.size());
  if (written == static_cast<ssize_t>(text.size())) return;
  throw Error(fmt::format("{}: cannot be written: {}", path_.string(),
                          written < 0 ? std::generic_category().message(errno)
                                      : fmt::format("{} of {} bytes went in", written, text.size())));
}

}  // namespace penstock::cli
