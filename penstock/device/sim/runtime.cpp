#include "penstock/device/sim/runtime.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>

#include "penstock/core/clock.h"
#include "penstock/core/random.h"

namespace penstock::sim {
namespace {

using Lock = std::unique_lock<std::mutex>;

constexpr int poison_byte = 0xcb;
constexpr std::size_t quarantine_bytes = 64u << 20;
thread_local bool inside_function = false;

/// Sleeps, and spins at the end: accurate to some microseconds.
void wait_until(Clock::time_point deadline) {
  using std::chrono::microseconds;
  if (deadline - Clock::now() > microseconds(60)) std::this_thread::sleep_until(deadline - microseconds(50));
  while (Clock::now() < deadline) {
  }
}

/// Memory of its own pages, so that nothing else ever lies beside it.
class Pages {
 public:
  explicit Pages(std::size_t bytes) : bytes_(bytes) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    data_ = memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
  }
  Pages(Pages&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  Pages& operator=(Pages&&) = delete;
  ~Pages() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return bytes_; }

 private:
  std::byte* data_;
  std::size_t bytes_;
};

struct Region {
  Pages pages;
  int device;  // -1: pinned memory of the host
};

struct Stream;

/// One record of an event: when its stream came to it.
struct Moment {
  std::shared_ptr<Stream> stream;
  std::uint64_t position = 0;
  bool reached = false;
  Clock::time_point time;
};

struct Event {
  int device = 0;
  bool timing = true;
  std::shared_ptr<Moment> last;  // null: never recorded
};

struct Copy {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::size_t bytes = 0;
};

struct Work {
  enum class Kind { copy, function, record, wait } kind = Kind::copy;
  Copy copy;
  void (*function)(void*) = nullptr;
  void* data = nullptr;
  std::shared_ptr<Moment> moment;
};

struct Stream {
  std::uint64_t number = 0;
  int device = 0;
  std::deque<Work> queue;    // the front one is running
  std::uint64_t done = 0;    // the front one's position is done + 1
  std::uint64_t wanted = 0;  // somebody waits for everything up to this position
  bool closing = false;
  std::thread thread;
};

bool touches(const Copy& copy, const std::byte* data, std::size_t bytes) {
  const auto overlap = [&](const std::byte* at) { return at < data + bytes && data < at + copy.bytes; };
  return overlap(copy.to) || overlap(copy.from);
}

}  // namespace

/// One mutex and one condition variable for all: there are a few streams and a few waiting threads.
struct Runtime::State {
  const Options options;
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::map<const void*, Region> regions;
  std::map<const void*, std::shared_ptr<Stream>> streams;
  std::map<const void*, Event> events;
  std::map<int, std::shared_ptr<Stream>> null_streams;  // by device
  std::vector<std::shared_ptr<Stream>> retired;
  std::map<std::thread::id, int> current, last_errors;
  std::map<std::string, int, std::less<>> calls;
  std::deque<Pages> quarantine;
  std::size_t quarantined = 0;
  std::vector<std::string> faults;
  std::uint64_t streams_made = 0, events_made = 0;
  int lost = 0;  // the error that every call returns

  explicit State(Options given) : options(std::move(given)) {}
  ~State() {
    Lock lock(mutex);
    for (auto& [device, stream] : null_streams) close(stream);
    for (auto& [handle, stream] : streams) close(stream);
    lock.unlock();
    for (const auto& stream : retired) stream->thread.join();
  }

  int fault(std::string what, int error) {
    if (lost == 0) faults.push_back(std::move(what));
    return error;
  }

  int device_of_thread() const {
    const auto it = current.find(std::this_thread::get_id());
    return it == current.end() ? 0 : it->second;
  }

  // Streams.

  std::shared_ptr<Stream> make_stream() {
    auto stream = std::make_shared<Stream>();
    stream->number = ++streams_made;
    stream->device = device_of_thread();
    stream->thread = std::thread([this, self = stream.get()] { serve(*self); });
    return stream;
  }

  /// Null for a handle that is none.
  std::shared_ptr<Stream> find_stream(void* handle) {
    if (handle == nullptr) {
      auto& stream = null_streams[device_of_thread()];
      if (stream == nullptr) stream = make_stream();
      return stream;
    }
    const auto it = streams.find(handle);
    return it == streams.end() ? nullptr : it->second;
  }

  void close(const std::shared_ptr<Stream>& stream) {
    stream->closing = true;
    retired.push_back(stream);
    changed.notify_all();
  }

  /// Its position in the stream.
  std::uint64_t enqueue(Stream& stream, Work work) {
    stream.queue.push_back(std::move(work));
    changed.notify_all();
    return stream.done + stream.queue.size();
  }

  /// Somebody waits for this position: nothing in front of it, here or elsewhere, has a reason to be late.
  void want(Stream& stream, std::uint64_t position) {
    if (stream.wanted >= position) return;
    stream.wanted = position;
    for (std::size_t i = 0; i < stream.queue.size() && stream.done + i < position; ++i)
      if (const Work& work = stream.queue[i]; work.kind == Work::Kind::wait && !work.moment->reached)
        want(*work.moment->stream, work.moment->position);
    changed.notify_all();
  }

  int synchronize(Lock& lock, Stream& stream, std::uint64_t position) {
    want(stream, position);
    changed.wait(lock, [&] { return stream.done >= position || lost != 0; });
    return lost;
  }

  void serve(Stream& stream) {
    Lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return !stream.queue.empty() || stream.closing; });
      if (stream.queue.empty()) return;
      if (lost == 0) run(lock, stream, stream.queue.front());
      stream.queue.pop_front();
      ++stream.done;
      changed.notify_all();
    }
  }

  void run(Lock& lock, Stream& stream, const Work& work) {
    switch (work.kind) {
      case Work::Kind::record:
        work.moment->reached = true;
        work.moment->time = Clock::now();
        break;
      case Work::Kind::wait:
        changed.wait(lock, [&] { return work.moment->reached || lost != 0; });
        break;
      case Work::Kind::copy:
        run_copy(lock, stream, work.copy);
        break;
      case Work::Kind::function:
        run_function(lock, stream, work);
        break;
    }
  }

  /// Returns when it is time; never with an order of its own between streams.
  void be_late(Lock& lock, const Stream& stream) {
    const std::uint64_t position = stream.done + 1;
    const std::uint64_t draw = mix(mix(options.seed, stream.number), position);
    if (options.lateness == Lateness::random && draw % 4 != 0)
      changed.wait_for(lock, options.latest * static_cast<std::int64_t>(draw >> 54) / 1024,
                       [&] { return lost != 0; });
    if (options.lateness == Lateness::latest)
      changed.wait_for(lock, options.latest, [&] { return stream.wanted >= position || lost != 0; });
  }

  void run_copy(Lock& lock, const Stream& stream, const Copy& copy) {
    auto deadline = Clock::now() + options.latency;
    if (options.bandwidth > 0)
      deadline += std::chrono::nanoseconds(
          static_cast<std::int64_t>(static_cast<double>(copy.bytes) / options.bandwidth * 1e9));
    if (options.poison) {
      lock.unlock();
      std::memset(copy.to, poison_byte, copy.bytes);
      lock.lock();
    }
    be_late(lock, stream);
    if (lost != 0) return;
    lock.unlock();
    const std::size_t chunk = options.poison ? copy.bytes / 4 + 1 : copy.bytes;
    for (std::size_t at = 0; at < copy.bytes; at += chunk) {
      std::memcpy(copy.to + at, copy.from + at, std::min(chunk, copy.bytes - at));
      if (options.poison) std::this_thread::yield();
    }
    wait_until(deadline);
    lock.lock();
  }

  void run_function(Lock& lock, const Stream& stream, const Work& work) {
    const auto deadline = Clock::now() + options.step;
    be_late(lock, stream);
    if (lost != 0) return;
    lock.unlock();
    inside_function = true;
    work.function(work.data);
    inside_function = false;
    wait_until(deadline);
    lock.lock();
  }

  // Memory.

  int allocate(void** memory, std::size_t bytes, int device) {
    std::uint64_t used = bytes;
    for (const auto& [data, region] : regions)
      if (region.device == device) used += region.pages.size();
    if (device >= 0 && used > options.memory) return cuda::memory_allocation;
    Pages pages(std::max<std::size_t>(bytes, 1));
    if (pages.data() == nullptr) return cuda::memory_allocation;
    if (options.poison) std::memset(pages.data(), poison_byte, bytes);
    *memory = pages.data();
    regions.emplace(*memory, Region{std::move(pages), device});
    return cuda::success;
  }

  /// The region that [data, data + bytes) lies in; null for memory that is not ours.
  const Region* region_of(const void* data, std::size_t bytes) const {
    auto it = regions.upper_bound(data);
    if (it == regions.begin()) return nullptr;
    const Region& region = (--it)->second;
    const auto* begin = static_cast<const std::byte*>(data);
    const auto* end = region.pages.data() + region.pages.size();
    return begin <= end && bytes <= static_cast<std::size_t>(end - begin) ? &region : nullptr;
  }

  /// The last position of `stream` whose copy touches `pages`; 0 for none.
  static std::uint64_t last_use(const Stream& stream, const Pages& pages) {
    for (std::size_t i = stream.queue.size(); i-- > 0;)
      if (stream.queue[i].kind == Work::Kind::copy &&
          touches(stream.queue[i].copy, pages.data(), pages.size()))
        return stream.done + i + 1;
    return 0;
  }

  template <typename Body>
  void for_each_stream(const Body& body) {
    std::vector<std::shared_ptr<Stream>> all = retired;
    for (const auto& [device, stream] : null_streams) all.push_back(stream);
    for (const auto& [handle, stream] : streams) all.push_back(stream);
    for (const auto& stream : all) body(*stream);
  }

  int release(Lock& lock, void* memory, bool pinned, const char* function) {
    if (memory == nullptr) return cuda::success;
    const auto found = regions.find(memory);
    if (found == regions.end() || (found->second.device < 0) != pinned)
      return fault(fmt::format("{}: not memory of this kind", function), cuda::invalid_value);
    const Pages& pages = found->second.pages;
    bool in_use = false;
    for_each_stream([&](Stream& stream) {
      const std::uint64_t position = last_use(stream, pages);
      if (position == 0) return;
      in_use = true;
      want(stream, position);
      changed.wait(lock, [&] { return stream.done >= position; });  // the process shall survive
    });
    if (in_use) fault(fmt::format("{}: a copy was still to use it", function), 0);
    auto region = regions.extract(memory);
    if (options.poison) {
      std::memset(memory, poison_byte, pages.size());
      quarantined += pages.size();
      quarantine.push_back(std::move(region.mapped().pages));
      for (; quarantined > quarantine_bytes; quarantine.pop_front()) quarantined -= quarantine.front().size();
    }
    return cuda::success;
  }
};

Runtime::Runtime(Options options) : state_(std::make_unique<State>(std::move(options))) {}
Runtime::~Runtime() = default;

std::vector<std::string> Runtime::faults() const {
  const Lock lock(state_->mutex);
  return state_->faults;
}

int Runtime::refusal(const char* function) {
  const Lock lock(state_->mutex);
  if (inside_function)
    return state_->fault(fmt::format("{}: called inside a host function", function), cuda::not_permitted);
  const int call = ++state_->calls[function];
  for (const Failure& failure : state_->options.failures) {
    if (failure.function != function || failure.call != call) continue;
    if (failure.lost && state_->lost == 0) {
      state_->lost = failure.error;
      state_->changed.notify_all();
    }
    return failure.error;
  }
  return state_->lost;
}

int Runtime::keep(int result) {
  const Lock lock(state_->mutex);
  if (result != cuda::success) state_->last_errors[std::this_thread::get_id()] = result;
  return result;
}

int Runtime::cudaGetLastError() {
  const Lock lock(state_->mutex);
  return std::exchange(state_->last_errors[std::this_thread::get_id()], cuda::success);
}

int Runtime::cudaGetDeviceCount(int* count) {
  *count = state_->options.devices;
  return *count > 0 ? cuda::success : cuda::no_device;
}

int Runtime::cudaSetDevice(int device) {
  const Lock lock(state_->mutex);
  if (device < 0 || device >= state_->options.devices) return cuda::invalid_device;
  state_->current[std::this_thread::get_id()] = device;
  return cuda::success;
}

int Runtime::cudaGetDevice(int* device) {
  const Lock lock(state_->mutex);
  *device = state_->device_of_thread();
  return cuda::success;
}

int Runtime::cudaGetDeviceProperties(void* properties, int device) {
  if (device < 0 || device >= state_->options.devices) return cuda::invalid_device;
  constexpr char name[256] = "simulated";
  std::memcpy(properties, name, sizeof name);
  return cuda::success;
}

int Runtime::cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const Lock lock(state_->mutex);
  *free = *total = state_->options.memory;
  for (const auto& [data, region] : state_->regions)
    if (region.device == state_->device_of_thread()) *free -= region.pages.size();
  return cuda::success;
}

int Runtime::cudaMalloc(void** memory, std::size_t bytes) {
  const Lock lock(state_->mutex);
  return state_->allocate(memory, bytes, state_->device_of_thread());
}

int Runtime::cudaFree(void* memory) {
  Lock lock(state_->mutex);
  return state_->release(lock, memory, false, "cudaFree");
}

int Runtime::cudaHostAlloc(void** memory, std::size_t bytes, unsigned) {
  const Lock lock(state_->mutex);
  return state_->allocate(memory, bytes, -1);
}

int Runtime::cudaFreeHost(void* memory) {
  Lock lock(state_->mutex);
  return state_->release(lock, memory, true, "cudaFreeHost");
}

int Runtime::cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, int kind, void* handle) {
  Lock lock(state_->mutex);
  const auto stream = state_->find_stream(handle);
  if (stream == nullptr)
    return state_->fault("cudaMemcpyAsync: no such stream", cuda::invalid_resource_handle);
  const Region* target = state_->region_of(to, bytes);
  if (kind != cuda::host_to_device || target == nullptr || target->device < 0)
    return state_->fault("cudaMemcpyAsync: only from the host into a device's memory", cuda::invalid_value);
  const bool pinned = state_->region_of(from, bytes) != nullptr;
  const std::uint64_t position = state_->enqueue(
      *stream, {.copy = {static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes}});
  return pinned ? cuda::success : state_->synchronize(lock, *stream, position);
}

int Runtime::cudaStreamCreateWithFlags(void** handle, unsigned) {
  const Lock lock(state_->mutex);
  auto stream = state_->make_stream();
  *handle = stream.get();
  state_->streams.emplace(stream.get(), std::move(stream));
  return cuda::success;
}

int Runtime::cudaStreamDestroy(void* handle) {
  const Lock lock(state_->mutex);
  const auto found = state_->streams.extract(handle);
  if (found.empty()) return state_->fault("cudaStreamDestroy: no such stream", cuda::invalid_resource_handle);
  state_->close(found.mapped());
  return cuda::success;
}

int Runtime::cudaStreamWaitEvent(void* handle, void* event, unsigned) {
  const Lock lock(state_->mutex);
  const auto stream = state_->find_stream(handle);
  const auto found = state_->events.find(event);
  if (stream == nullptr || found == state_->events.end())
    return state_->fault("cudaStreamWaitEvent: no such stream or event", cuda::invalid_resource_handle);
  if (found->second.last != nullptr)
    state_->enqueue(*stream, {.kind = Work::Kind::wait, .moment = found->second.last});
  return cuda::success;
}

int Runtime::cudaStreamSynchronize(void* handle) {
  Lock lock(state_->mutex);
  const auto stream = state_->find_stream(handle);
  if (stream == nullptr)
    return state_->fault("cudaStreamSynchronize: no such stream", cuda::invalid_resource_handle);
  return state_->synchronize(lock, *stream, stream->done + stream->queue.size());
}

int Runtime::cudaEventCreateWithFlags(void** handle, unsigned flags) {
  const Lock lock(state_->mutex);
  *handle = reinterpret_cast<void*>(static_cast<std::uintptr_t>(++state_->events_made));
  state_->events[*handle] = {.device = state_->device_of_thread(),
                             .timing = (flags & cuda::event_disable_timing) == 0};
  return cuda::success;
}

int Runtime::cudaEventRecord(void* event, void* handle) {
  const Lock lock(state_->mutex);
  const auto stream = state_->find_stream(handle);
  const auto found = state_->events.find(event);
  if (stream == nullptr || found == state_->events.end() || found->second.device != stream->device)
    return state_->fault("cudaEventRecord: no such stream or event, or of different devices",
                         cuda::invalid_resource_handle);
  auto moment = std::make_shared<Moment>();
  moment->stream = stream;
  moment->position = stream->done + stream->queue.size() + 1;
  found->second.last = moment;
  state_->enqueue(*stream, {.kind = Work::Kind::record, .moment = std::move(moment)});
  return cuda::success;
}

int Runtime::cudaEventQuery(void* event) {
  const Lock lock(state_->mutex);
  const auto found = state_->events.find(event);
  if (found == state_->events.end())
    return state_->fault("cudaEventQuery: no such event", cuda::invalid_resource_handle);
  const auto& moment = found->second.last;
  return moment == nullptr || moment->reached ? cuda::success : cuda::not_ready;
}

int Runtime::cudaEventSynchronize(void* event) {
  Lock lock(state_->mutex);
  const auto found = state_->events.find(event);
  if (found == state_->events.end())
    return state_->fault("cudaEventSynchronize: no such event", cuda::invalid_resource_handle);
  const auto moment = found->second.last;
  return moment == nullptr ? cuda::success : state_->synchronize(lock, *moment->stream, moment->position);
}

int Runtime::cudaEventElapsedTime(float* milliseconds, void* begin, void* end) {
  const Lock lock(state_->mutex);
  const auto first = state_->events.find(begin), second = state_->events.find(end);
  if (first == state_->events.end() || second == state_->events.end() || !first->second.timing ||
      !second->second.timing || first->second.last == nullptr || second->second.last == nullptr)
    return cuda::invalid_resource_handle;
  const Moment &from = *first->second.last, &to = *second->second.last;
  if (!from.reached || !to.reached) return cuda::not_ready;
  *milliseconds = std::chrono::duration<float, std::milli>(to.time - from.time).count();
  return cuda::success;
}

int Runtime::cudaEventDestroy(void* event) {
  const Lock lock(state_->mutex);
  if (state_->events.erase(event) == 0)
    return state_->fault("cudaEventDestroy: no such event", cuda::invalid_resource_handle);
  return cuda::success;
}

int Runtime::cudaLaunchHostFunc(void* handle, void (*function)(void*), void* data) {
  const Lock lock(state_->mutex);
  const auto stream = state_->find_stream(handle);
  if (stream == nullptr)
    return state_->fault("cudaLaunchHostFunc: no such stream", cuda::invalid_resource_handle);
  state_->enqueue(*stream, {.kind = Work::Kind::function, .function = function, .data = data});
  return cuda::success;
}

const char* Runtime::cudaGetErrorString(int error) {
  switch (error) {
    case cuda::success:
      return "no error";
    case cuda::invalid_value:
      return "invalid argument";
    case cuda::memory_allocation:
      return "out of memory";
    case cuda::insufficient_driver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case cuda::no_device:
      return "no CUDA-capable device is detected";
    case cuda::invalid_device:
      return "invalid device ordinal";
    case cuda::invalid_resource_handle:
      return "invalid resource handle";
    case cuda::not_ready:
      return "device not ready";
    case cuda::not_permitted:
      return "operation not permitted";
    default:
      return "unspecified failure";
  }
}

namespace {

/// `call` as a real runtime does it: unless it is refused, and with its error kept.
template <typename Call>
int called(Runtime& runtime, const char* function, const Call& call) {
  const int error = runtime.refusal(function);
  const int result = error != cuda::success ? error : call();
  return std::string_view(function) == "cudaGetLastError" ? result : runtime.keep(result);
}

}  // namespace

std::shared_ptr<const CudaApi> api_of(const std::shared_ptr<Runtime>& runtime) {
  auto api = std::make_shared<CudaApi>();
  // NOLINTBEGIN(bugprone-macro-parentheses): lists of parameters
#define PENSTOCK_BIND(result, name, parameters, arguments)                   \
  api->name = [runtime] parameters {                                         \
    return called(*runtime, #name, [&] { return runtime->name arguments; }); \
  };
  PENSTOCK_CUDA_CALLS(PENSTOCK_BIND)
#undef PENSTOCK_BIND
  // NOLINTEND(bugprone-macro-parentheses)
  api->cudaGetErrorString = [runtime](int error) { return runtime->cudaGetErrorString(error); };
  return api;
}

}  // namespace penstock::sim
