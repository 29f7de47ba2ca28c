#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "penstock/monitor/performance.h"

namespace penstock {
namespace {

using nlohmann::json;

double hit_rate(const CacheFigures& c) {
  const auto asked = static_cast<double>(c.hits + c.misses);
  return asked > 0 ? static_cast<double>(c.hits) / asked : 0;
}

}  // namespace

std::string text(const PerformanceReport& r) {
  std::string out = fmt::format("{:.1f} s; {}\n", r.seconds, r.reason);
  if (!r.scopes.empty())
    out += fmt::format("\n{:<20} {:>10} {:>8} {:>10} {:>10} {:>7} {:>11}\n", "scope", "calls", "threads",
                       "seconds", "own", "share", "longest ms");
  for (const ScopeReport& s : r.scopes)
    out += fmt::format("{:<20} {:>10} {:>8} {:>10.3f} {:>10.3f} {:>5.1f} % {:>11.3f}\n", s.name, s.calls,
                       s.threads, s.seconds, s.own_seconds, s.share * 100, s.longest_ms);
  for (const auto& [name, c] : r.caches)
    out +=
        fmt::format("\ncache {}: {:.1f} % of {} found, {} recomputed, {:.1f} MB read", name,
                    hit_rate(c) * 100, c.hits + c.misses, c.recomputed, static_cast<double>(c.bytes) * 1e-6);
  if (!r.caches.empty()) out += "\n";
  if (r.samples > 0)
    out += fmt::format(
        "\nthis program {:.2f} of {:.0f} CPUs, others {:.2f}, stolen {:.0f} %; {:.1f} threads waited for a "
        "CPU\n"
        "disk busy {:.0f} %, {:.1f} MB/s read, {:.1f} major faults/s\n",
        r.own_cpus, r.available_cpus, r.others_cpus, r.steal * 100, r.waiting, r.disk_busy * 100,
        r.disk_read * 1e-6, r.faults_major);
  if (r.gpu) out += verdict(*r.gpu, "the GPU") + "\n";
  return out;
}

std::string to_json(const PerformanceReport& r) {
  json scopes = json::array(), caches = json::object();
  for (const ScopeReport& s : r.scopes)
    scopes.push_back({{"name", s.name},
                      {"calls", s.calls},
                      {"threads", s.threads},
                      {"seconds", s.seconds},
                      {"own_seconds", s.own_seconds},
                      {"share", s.share},
                      {"longest_ms", s.longest_ms}});
  for (const auto& [name, c] : r.caches)
    caches[name] = {{"hits", c.hits},
                    {"misses", c.misses},
                    {"hit_rate", hit_rate(c)},
                    {"recomputed", c.recomputed},
                    {"bytes", c.bytes}};
  json out = {{"seconds", r.seconds}, {"scopes", scopes},           {"caches", caches},
              {"samples", r.samples}, {"bottleneck", r.bottleneck}, {"reason", r.reason}};
  if (r.samples > 0)
    out["system"] = {{"cpu", r.cpu},
                     {"steal", r.steal},
                     {"own_cpus", r.own_cpus},
                     {"others_cpus", r.others_cpus},
                     {"waiting", r.waiting},
                     {"available_cpus", r.available_cpus},
                     {"disk_busy", r.disk_busy},
                     {"disk_read", r.disk_read},
                     {"faults_major", r.faults_major}};
  if (r.gpu)
    out["gpu"] = {
        {"mean", r.gpu->values.mean}, {"cv", r.gpu->values.cv}, {"pressure", pressure_name(r.gpu->pressure)}};
  return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace penstock
