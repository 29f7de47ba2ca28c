// Calls of a CUDA runtime as C++ likes them: failures are exceptions, handles close themselves.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>

#include "penstock/core/error.h"
#include "penstock/device/cuda_api.h"

namespace penstock::cuda {

using Api = std::shared_ptr<const CudaApi>;

/// "device: cuda: cudaMalloc of 100 bytes: out of memory (2); lower batch_size". Takes the error back from
/// the thread, so that the consumer's own calls do not find it. An empty hint: what is known about `result`.
Error failure(const CudaApi& api, std::string_view call, int result, std::string_view hint = {});

/// Throws it, when there is one.
void check(const CudaApi& api, std::string_view call, int result);

/// Whether the work before its last record is done. Never waits.
bool is_done(const CudaApi& api, void* event);

/// This thread's current device is `ordinal` for a while. The null stream, new streams, events and memory are
/// the current device's. Errors show in the calls that follow.
class OnDevice {
 public:
  OnDevice(const CudaApi& api, int ordinal) : api_(api), ordinal_(ordinal) {
    if (api.cudaGetDevice(&callers_) != success) callers_ = ordinal;
    if (callers_ != ordinal_) api_.cudaSetDevice(ordinal_);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() {
    if (callers_ != ordinal_) api_.cudaSetDevice(callers_);
  }

 private:
  const CudaApi& api_;
  int ordinal_, callers_ = 0;
};

/// A stream, an event or memory. What fails when it is let go of is of no use to anybody.
using Handle = std::unique_ptr<void, std::function<void(void*)>>;
Handle make_stream(const Api& api);
Handle make_event(const Api& api, unsigned flags);
Handle device_memory(const Api& api, std::size_t bytes);

}  // namespace penstock::cuda
