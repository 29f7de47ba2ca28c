#include "penstock/feed/observe.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "penstock/core/clock.h"
#include "penstock/core/file.h"
#include "penstock/core/threads.h"
#include "penstock/feed/device_feed.h"
#include "penstock/feed/tune.h"
#include "penstock/monitor/proc_file.h"
#include "penstock/monitor/step_clock.h"
#include "penstock/monitor/system.h"

namespace penstock {
namespace {

Clock::duration duration(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

double own_cpu_seconds() {
  rusage u{};
  getrusage(RUSAGE_SELF, &u);
  return static_cast<double>(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
         static_cast<double>(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

/// How often threads of this process other than the caller have slept so far.
double times_others_slept() {
  rusage u{};
  getrusage(RUSAGE_SELF, &u);
  return static_cast<double>(u.ru_nvcsw - times_slept());
}

/// Bytes that this process has read from storage; 0 where the kernel does not say.
double bytes_from_disk() {
  std::string buffer;
  return static_cast<double>(number_of(ProcFile("/proc/self/io").read(buffer).value_or(""), "read_bytes"));
}

struct ProcessTicks {
  std::string name;
  double ticks = 0;
  int nice = 0;
};

/// What every process of the machine that we can see has used so far.
std::map<int, ProcessTicks> all_processes() {
  std::map<int, ProcessTicks> all;
  std::string buffer;
  std::error_code failure;
  for (std::filesystem::directory_iterator it("/proc", failure), end; !failure && it != end;
       it.increment(failure)) {
    const std::string folder = it->path().filename();
    int id = 0;
    if (std::from_chars(folder.data(), folder.data() + folder.size(), id).ptr !=
        folder.data() + folder.size())
      continue;
    const auto stat = process_stat(ProcFile(it->path() / "stat").read(buffer).value_or(""));
    if (!stat) continue;
    std::string name(stat->name);
    for (char& c : name)  // a process may call itself anything
      if (std::iscntrl(static_cast<unsigned char>(c))) c = ' ';
    all[id] = {.name = name, .ticks = static_cast<double>(stat->ticks), .nice = stat->nice};
  }
  return all;
}

OtherProcess busiest_between(const std::map<int, ProcessTicks>& before,
                             const std::map<int, ProcessTicks>& after, double seconds) {
  OtherProcess busiest;
  const double tick = 1.0 / static_cast<double>(sysconf(_SC_CLK_TCK));
  for (const auto& [id, now] : after) {
    const auto then = before.find(id);
    const double cpus = (now.ticks - (then == before.end() ? 0 : then->second.ticks)) * tick / seconds;
    if (id != getpid() && cpus > busiest.cpus)
      busiest = {.id = id, .nice = now.nice, .name = now.name, .cpus = cpus};
  }
  return busiest;
}

/// The consumer: takes batches and computes, and lets go of each batch when the next one has come.
class Consumer {
 public:
  Consumer(DeviceFeed& feed, const ObserveOptions& options, bool closed)
      : feed_(feed), options_(options), step_(options.check), compiling_(options.check) {
    for (const Shape& s : feed.feed().plan().shapes()) {
      largest_ = std::max(largest_, static_cast<double>(s.rows) * s.frames);
      if (closed) compiled_.insert(s);
    }
  }

  ObservedBatch take() {
    const auto asked = Clock::now();
    DeviceBatch next = feed_.next();
    const auto full = Clock::now();
    next.wait();
    const auto arrived = Clock::now();
    const Batch& b = next.host();
    ObservedBatch seen{.data = seconds(full - asked - feed_.copy_wait()),
                       .copy = seconds(arrived - full + feed_.copy_wait()),
                       .rows = b.shape.rows,
                       .frames = std::int64_t{b.shape.rows} * b.shape.frames,
                       .shape = b.shape,
                       .first_of_epoch = b.step == 0};
    for (const std::int32_t n : b.mel_lengths) seen.valid_frames += n;
    if (compiled_.insert(b.shape).second) seen.compile = options_.compile_seconds;
    if (seen.compile > 0) compiling_.step(duration(seen.compile));
    seen.step = options_.step_seconds * static_cast<double>(seen.frames) / largest_;
    if (seen.step > 0) step_.start(duration(seen.step));
    batch_ = std::move(next);
    if (seen.step > 0) step_.finish();
    const FeedStats stats = feed_.feed().stats();
    for (std::size_t i = 0; i < stage_count; ++i) seen.stages[i] = stats.stage_seconds[i] - stages_[i];
    stages_ = stats.stage_seconds;
    const auto now = Clock::now();
    seen.elapsed = seconds(now - std::exchange(last_, now));
    ++taken_;
    if (options_.check) options_.check();
    return seen;
  }
  /// Steps from here on count.
  void count() { step_ = StepClock(options_.check); }
  [[nodiscard]] double au() const { return step_.au(); }
  [[nodiscard]] std::int64_t taken() const { return taken_; }
  [[nodiscard]] const Batch& batch() const { return batch_.host(); }

 private:
  DeviceFeed& feed_;
  const ObserveOptions& options_;
  StepClock step_, compiling_;
  DeviceBatch batch_;
  std::set<Shape> compiled_;
  double largest_ = 1;
  std::int64_t taken_ = 0;
  std::array<double, stage_count> stages_{};
  Clock::time_point last_ = Clock::now();
};

/// How long the files of a batch take when they are read once more: now they are in memory, if they ever are.
double read_again(const Dataset& dataset, const Batch& batch) {
  std::vector<std::byte> bytes(1 << 20);
  std::vector<double> times;
  for (const std::int64_t number : batch.utterances) {
    if (number < 0 || times.size() >= 8) continue;
    const auto start = Clock::now();
    const std::filesystem::path path = dataset.index.root() / dataset.index.utterance(number).path;
    const File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (file.fd() < 0) continue;
    for (off_t at = 0;;) {
      const ssize_t n = ::pread(file.fd(), bytes.data(), bytes.size(), at);
      if (n <= 0) break;
      at += n;
    }
    times.push_back(seconds(Clock::now() - start));
  }
  if (times.empty()) return 0;
  std::ranges::sort(times);
  return times[times.size() / 2];
}

}  // namespace

Observation observe(const Config& config, const ObserveOptions& options) {
  const auto opening = Clock::now();
  DeviceFeed opened(config, options.feed);
  const Feed& feed = opened.feed();
  if (const std::int64_t epoch = feed.plan().steps_per_epoch(); options.skip > 0)
    opened.restore(
        {.seed = opened.state().seed, .epoch = options.skip / epoch, .step = options.skip % epoch});
  Consumer consumer(opened, options, config.shapes > 0);
  consumer.take();
  Observation o{.first_batch = seconds(Clock::now() - opening), .cpus = available_cpus()};
  // A full ring at the start hides what cannot be kept up: it is empty as soon as the consumer waits.
  constexpr double noticed = 1e-3;
  const auto warming = Clock::now();
  for (std::int64_t i = 0, waits = 0; i < tune_warm_up(config.prefetch_buffer_size) && waits < 3 &&
                                      seconds(Clock::now() - warming) < options.most_seconds / 4;
       ++i)
    waits += consumer.take().data > noticed && i > 0;

  SystemSampler machine;
  machine.sample();
  const auto processes = all_processes();
  const FeedStats before = feed.stats();
  const DeviceStats copied = opened.device_stats();
  const double cpu = own_cpu_seconds(), disk = bytes_from_disk(), slept = times_others_slept();
  const auto start = Clock::now();
  constexpr std::int64_t fewest = 8;
  consumer.count();
  const auto done = [&] {
    const auto n = static_cast<std::int64_t>(o.batches.size());
    const double passed = seconds(Clock::now() - start);
    return n >= fewest &&
           (passed > options.most_seconds || (n >= options.batches && passed > options.least_seconds));
  };
  while (!done()) o.batches.push_back(consumer.take());

  o.seconds = seconds(Clock::now() - start);
  o.au = options.step_seconds > 0 ? consumer.au() : 0;
  const FeedStats after = feed.stats();
  const SystemSample now = machine.sample();
  o.workers = after.active_workers, o.depth = after.depth;
  o.ring_level = ring_level_between(before, after);
  o.worker_cpu = {.running = after.worker_cpu.running - before.worker_cpu.running,
                  .ready = after.worker_cpu.ready - before.worker_cpu.ready};
  o.worker_sleeps = times_others_slept() - slept;
  const auto cores = static_cast<double>(now.cores.size());
  o.own_cpus = (own_cpu_seconds() - cpu) / o.seconds;
  // On CPUs that the workers leave idle anyway others are in nobody's way.
  const double spare = std::max(0.0, cores - std::min(o.workers, o.cpus));
  o.other_cpus = std::max(0.0, now.busy * cores - o.own_cpus - spare);
  o.stolen_cpus = now.steal * cores;
  o.busiest = busiest_between(processes, all_processes(), o.seconds);
  o.disk_bytes = bytes_from_disk() - disk;
  if (const DeviceStats copies = opened.device_stats(); copies.bytes > copied.bytes)
    o.copy_seconds = (copies.copy_seconds - copied.copy_seconds) / static_cast<double>(o.batches.size());
  o.cache = {.hits = after.cache.hits - before.cache.hits,
             .misses = after.cache.misses - before.cache.misses,
             .recomputed = after.cache.recomputed - before.cache.recomputed,
             .bytes_read = after.cache.bytes_read - before.cache.bytes_read};
  o.skipped = static_cast<std::int64_t>(feed.skipped().size());
  o.rejected = static_cast<std::int64_t>(feed.plan().rejected().size());
  o.device = opened.device().info().name;
  o.taken = consumer.taken();
  o.epoch = feed.plan().steps_per_epoch();
  o.read_again = read_again(feed.dataset(), consumer.batch());
  return o;
}

double headroom(const Observation& like, const std::function<void()>& check) {
  StepClock clock(check);
  for (const ObservedBatch& b : like.batches) {
    if (clock.steps() >= 2 && clock.elapsed().count() > 1) break;
    clock.step(duration(b.step));
  }
  return clock.au();
}

}  // namespace penstock
