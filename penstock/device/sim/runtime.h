// A stand-in for the CUDA runtime, for machines without a GPU: what is asynchronous there is asynchronous
// here, and as late and as unfriendly as CUDA's rules allow.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "penstock/device/cuda_api.h"

namespace penstock::sim {

/// When a copy or a host function runs, once its stream has come to it.
enum class Lateness {
  none,    ///< at once
  random,  ///< after a delay of up to `latest`
  latest,  ///< when somebody waits for it or for what depends on it, or after `latest`
};

/// The n-th call of a function (from 1) does nothing but return `error`.
struct Failure {
  std::string function;
  int call = 1;
  int error = 0;
  bool lost = false;  ///< from then on every call does, and nothing runs any more: the device is lost
};

struct Options {
  std::uint64_t seed = 0;               ///< of the random delays
  double bandwidth = 0;                 ///< bytes a second; 0: what memory has
  std::chrono::nanoseconds latency{0};  ///< of a copy, before its first byte
  std::chrono::nanoseconds step{0};     ///< that a host function takes at least
  Lateness lateness = Lateness::none;
  std::chrono::nanoseconds latest = std::chrono::milliseconds(2);
  bool poison = true;  ///< scribble over what may not be read: targets of copies, memory that was freed
  int devices = 1;
  std::uint64_t memory = 24'000'000'000;  ///< of each device
  std::vector<Failure> failures;
};

/// Behaves as CUDA: a stream runs its work in order and streams run side by side; an event stands for its
/// last record; a wait is for the last record before the call. The null stream is an ordinary stream.
/// Differences are in favour of finding mistakes: freeing never waits, and device memory can be read by host
/// functions, but may only be read there (or after a synchronisation). Any thread.
class Runtime {
 public:
  explicit Runtime(Options options = {});
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  /// What a real runtime would not have survived, or not have reported: memory freed that a copy was still
  /// to use, handles used after they were destroyed, calls inside host functions.
  [[nodiscard]] std::vector<std::string> faults() const;

  /// The error that this call shall return instead of doing anything; each call must ask.
  int refusal(const char* function);
  /// Keeps what a call returns for this thread's cudaGetLastError(), and returns it.
  int keep(int result);
#define PENSTOCK_DECLARE(result, name, parameters, arguments) result name parameters;
  PENSTOCK_CUDA_FUNCTIONS(PENSTOCK_DECLARE)
#undef PENSTOCK_DECLARE

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// `runtime` as a table of functions, which keeps it alive.
std::shared_ptr<const CudaApi> api_of(const std::shared_ptr<Runtime>& runtime);

}  // namespace penstock::sim
