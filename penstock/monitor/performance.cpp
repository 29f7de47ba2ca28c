#include "penstock/monitor/performance.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "penstock/core/error.h"
#include "penstock/monitor/gpu.h"
#include "penstock/monitor/system.h"

namespace penstock {
namespace {

constexpr std::size_t most_names = 64;
constexpr std::size_t most_samples = 36'000;  // an hour at ten a second; then the older half is left out

/// Written by one thread, read by any: relaxed, since readers want a recent value and no ordering.
struct Counter {
  std::atomic<std::uint64_t> value{0};
  void add(std::uint64_t more) { value.store(get() + more, std::memory_order_relaxed); }
  void raise(std::uint64_t to) {
    if (to > get()) value.store(to, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t get() const { return value.load(std::memory_order_relaxed); }
};

struct Figures {
  Counter calls, ns, own_ns, longest_ns;
};

double seconds_of(std::uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

}  // namespace

struct PerformanceMonitor::Sums {
  std::map<std::string, std::size_t, std::less<>> names;  // that this thread has used
  std::array<Figures, most_names> figures;
  Scope* inside = nullptr;
};

struct PerformanceMonitor::State {
  Clock::time_point start = Clock::now();
  std::mutex mutex;  // over all below; nobody takes it who times a scope whose name is known to its thread
  std::vector<std::string> names;
  std::vector<std::shared_ptr<Sums>> threads;
  std::map<std::string, CacheFigures> caches;
  PerformanceReport sums;  // of the samples
  std::vector<double> gpu;
  double sampled_seconds = 0;
  std::jthread sampler;  // last: ends first

  void sample(const SystemSample& s, const TreeSample& own, const std::vector<GpuSample>& gpus) {
    const std::lock_guard lock(mutex);
    ++sums.samples;
    sampled_seconds += s.seconds;
    sums.cpu += s.busy;
    sums.steal += s.steal;
    sums.disk_busy += s.disk.busy;
    sums.disk_read += s.disk.read;
    sums.faults_major += s.faults_major;
    sums.own_cpus += own.cpu;
    sums.others_cpus += cpus_of_others(s, own);
    sums.waiting += own.waiting;
    sums.available_cpus = s.available_cpus;
    if (gpus.empty() || !gpus.front().utilisation) return;
    if (gpu.size() == most_samples) gpu.erase(gpu.begin(), gpu.begin() + most_samples / 2);
    gpu.push_back(*gpus.front().utilisation);
  }
};

PerformanceMonitor::PerformanceMonitor(std::chrono::milliseconds period) : state_(std::make_shared<State>()) {
  if (period.count() == 0) return;
  state_->sampler = std::jthread([state = state_.get(), period](const std::stop_token& stop) {
    SystemSampler machine;
    ProcessTree own(::getpid());
    Gpus gpus;
    machine.sample();
    own.sample();
    std::mutex mutex;
    std::condition_variable_any ended;
    std::unique_lock lock(mutex);
    for (auto next = Clock::now() + period;; next = std::max(next + period, Clock::now())) {
      ended.wait_until(lock, stop, next, [] { return false; });
      if (stop.stop_requested()) return;
      state->sample(machine.sample(), own.sample(), gpus.sample());
    }
  });
}

PerformanceMonitor::~PerformanceMonitor() = default;

/// This thread's sums of this monitor. Those of monitors that have ended are dropped when a new one comes.
PerformanceMonitor::Sums& PerformanceMonitor::own_sums() {
  struct Entry {
    std::weak_ptr<State> monitor;
    State* key;
    std::shared_ptr<Sums> sums;
  };
  thread_local std::vector<Entry> entries;
  for (Entry& entry : entries)
    if (entry.key == state_.get() && !entry.monitor.expired()) return *entry.sums;
  std::erase_if(entries, [](const Entry& entry) { return entry.monitor.expired(); });
  auto sums = std::make_shared<Sums>();
  {
    const std::lock_guard lock(state_->mutex);
    state_->threads.push_back(sums);
  }
  entries.push_back({state_, state_.get(), sums});
  return *sums;
}

PerformanceMonitor::Scope PerformanceMonitor::time(std::string_view name) {
  Sums& sums = own_sums();
  auto found = sums.names.find(name);
  if (found == sums.names.end()) {
    const std::lock_guard lock(state_->mutex);
    auto known = std::find(state_->names.begin(), state_->names.end(), name);
    if (known == state_->names.end()) {
      if (state_->names.size() == most_names)
        throw Error(fmt::format("performance: {} names at most, and '{}' is one more", most_names, name));
      known = state_->names.emplace(known, name);
    }
    found = sums.names.emplace(name, static_cast<std::size_t>(known - state_->names.begin())).first;
  }
  return {sums, found->second};
}

PerformanceMonitor::Scope::Scope(Sums& sums, std::size_t name)
    : sums_(sums), name_(name), outer_(std::exchange(sums.inside, this)) {}

PerformanceMonitor::Scope::~Scope() {
  const auto ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(Clock::now() - start_).count());
  Figures& figures = sums_.figures[name_];
  figures.calls.add(1);
  figures.ns.add(ns);
  figures.own_ns.add(ns - std::min(ns, inner_ns_));
  figures.longest_ns.raise(ns);
  if (outer_ != nullptr) outer_->inner_ns_ += ns;
  sums_.inside = outer_;
}

void PerformanceMonitor::cache(const std::string& name, const CacheFigures& figures) {
  const std::lock_guard lock(state_->mutex);
  state_->caches[name] = figures;
}

void name_bottleneck(PerformanceReport& r) {
  const auto say = [&](const char* what, std::string reason) {
    r.bottleneck = what;
    r.reason = std::move(reason);
  };
  const std::string most = r.scopes.empty() ? std::string("no scope was timed")
                                            : fmt::format("{} takes {:.0f} % of the scopes' time",
                                                          r.scopes[0].name, r.scopes[0].share * 100);
  if (r.samples == 0) return say("unknown", fmt::format("The system was not sampled; {}.", most));
  if (r.gpu && r.gpu->pressure == Pressure::steady) return say("device", verdict(*r.gpu, "the GPU"));
  const double lost = r.others_cpus + r.steal * r.available_cpus;
  if (r.cpu + r.steal > 0.9 && lost > 0.25 * r.available_cpus)
    return say("others",
               fmt::format("The CPUs are full, and {:.1f} of {:.0f} are busy with other programs or stolen.",
                           lost, r.available_cpus));
  if (r.own_cpus > 0.9 * r.available_cpus)
    return say("cpu", fmt::format("All {:.0f} CPUs are busy with this program: {}.", r.available_cpus, most));
  if (r.disk_busy > 0.8)
    return say("disk", fmt::format("A disk is busy {:.0f} % of the time and gives {:.1f} MB/s.",
                                   r.disk_busy * 100, r.disk_read * 1e-6));
  if (!r.scopes.empty() && r.scopes[0].threads == 1 && r.scopes[0].own_seconds > 0.8 * r.seconds &&
      r.own_cpus > 0.8)
    return say("one thread",
               fmt::format("One thread is in {} all the time, while {:.1f} of {:.0f} CPUs work.",
                           r.scopes[0].name, r.own_cpus, r.available_cpus));
  say("waiting",
      fmt::format("Neither the CPUs nor a disk nor a device is full: threads wait for each other; {}.",
                  most));
}

PerformanceReport PerformanceMonitor::report() const {
  const std::lock_guard lock(state_->mutex);
  PerformanceReport r = state_->sums;
  r.seconds = std::chrono::duration<double>(Clock::now() - state_->start).count();
  const auto n = static_cast<double>(std::max<std::size_t>(1, r.samples));
  for (double* sum : {&r.cpu, &r.steal, &r.disk_busy, &r.disk_read, &r.faults_major, &r.own_cpus,
                      &r.others_cpus, &r.waiting})
    *sum /= n;
  if (!state_->gpu.empty()) r.gpu = judge_utilisation(state_->gpu, state_->sampled_seconds / n);
  r.caches.assign(state_->caches.begin(), state_->caches.end());
  double all = 0;
  for (std::size_t i = 0; i < state_->names.size(); ++i) {
    ScopeReport scope{.name = state_->names[i]};
    for (const auto& sums : state_->threads) {
      const Figures& f = sums->figures[i];
      if (f.calls.get() == 0) continue;
      ++scope.threads;
      scope.calls += f.calls.get();
      scope.seconds += seconds_of(f.ns.get());
      scope.own_seconds += seconds_of(f.own_ns.get());
      scope.longest_ms = std::max(scope.longest_ms, seconds_of(f.longest_ns.get()) * 1e3);
    }
    all += scope.own_seconds;
    if (scope.calls > 0) r.scopes.push_back(std::move(scope));
  }
  for (ScopeReport& scope : r.scopes) scope.share = all > 0 ? scope.own_seconds / all : 0;
  std::sort(r.scopes.begin(), r.scopes.end(),
            [](const ScopeReport& a, const ScopeReport& b) { return a.own_seconds > b.own_seconds; });
  name_bottleneck(r);
  return r;
}

}  // namespace penstock
