#include "penstock/device/cuda_calls.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace penstock::cuda {
namespace {

struct Hint {
  int first, last;  // results
  std::string_view text;
};
constexpr std::string_view lost = "; this process cannot use the device any more: start it again";
constexpr std::array hints = {
    Hint{memory_allocation, memory_allocation, "; lower device_buffer_size or batch_size"},
    Hint{insufficient_driver, insufficient_driver,
         "; install an NVIDIA driver, or a newer one; without a GPU set `device: cpu`"},
    Hint{no_device, no_device, "; is the NVIDIA driver loaded? Without a GPU set `device: cpu`"},
    Hint{invalid_resource_handle, invalid_resource_handle,
         "; a stream must exist until the batches that it used are let go of"},
    Hint{214, 214, lost},  // an uncorrectable ECC error
    Hint{700, 799, lost},  // an illegal address, a failed launch and the like
    Hint{999, 999, lost},
};

}  // namespace

Error failure(const CudaApi& api, std::string_view call, int result, std::string_view hint) {
  (void)api.cudaGetLastError();
  if (hint.empty())
    for (const Hint& known : hints)
      if (known.first <= result && result <= known.last) hint = known.text;
  return Error(
      fmt::format("device: cuda: {}: {} ({}){}", call, api.cudaGetErrorString(result), result, hint));
}

void check(const CudaApi& api, std::string_view call, int result) {
  if (result != success) throw failure(api, call, result);
}

bool is_done(const CudaApi& api, void* event) {
  const int result = api.cudaEventQuery(event);
  // An answer, but kept like an error: the consumer's next look for errors on this thread would find it.
  if (result == not_ready) (void)api.cudaGetLastError();
  return result == success;
}

Handle make_stream(const Api& api) {
  void* stream = nullptr;
  check(*api, "cudaStreamCreateWithFlags", api->cudaStreamCreateWithFlags(&stream, stream_non_blocking));
  return {stream, [api](void* handle) { api->cudaStreamDestroy(handle); }};
}

Handle make_event(const Api& api, unsigned flags) {
  void* event = nullptr;
  check(*api, "cudaEventCreateWithFlags", api->cudaEventCreateWithFlags(&event, flags));
  return {event, [api](void* handle) { api->cudaEventDestroy(handle); }};
}

Handle device_memory(const Api& api, std::size_t bytes) {
  void* memory = nullptr;
  check(*api, fmt::format("cudaMalloc of {} bytes", bytes), api->cudaMalloc(&memory, bytes));
  return {memory, [api](void* handle) { api->cudaFree(handle); }};
}

}  // namespace penstock::cuda
