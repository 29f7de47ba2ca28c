// The few functions of the CUDA runtime that Penstock calls, declared by us: one list, from which come the
// table that is filled at run time, its loader and the stand-in. Nothing of CUDA is needed to build.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

// F(return type, name, parameters, arguments). Streams and events are handles (void*), enums are int.
// tests/device/cuda_headers.cpp compares it with the toolkit's own header.
#define PENSTOCK_CUDA_CALLS(F)                                                                              \
  F(int, cudaGetDeviceCount, (int* count), (count))                                                         \
  F(int, cudaSetDevice, (int device), (device))                                                             \
  F(int, cudaGetDevice, (int* device), (device))                                                            \
  F(int, cudaGetDeviceProperties, (void* properties, int device), (properties, device))                     \
  F(int, cudaMemGetInfo, (std::size_t * free, std::size_t * total), (free, total))                          \
  F(int, cudaMalloc, (void** memory, std::size_t bytes), (memory, bytes))                                   \
  F(int, cudaFree, (void* memory), (memory))                                                                \
  F(int, cudaHostAlloc, (void** memory, std::size_t bytes, unsigned flags), (memory, bytes, flags))         \
  F(int, cudaFreeHost, (void* memory), (memory))                                                            \
  F(int, cudaMemcpyAsync, (void* to, const void* from, std::size_t bytes, int kind, void* stream),          \
    (to, from, bytes, kind, stream))                                                                        \
  F(int, cudaStreamCreateWithFlags, (void** stream, unsigned flags), (stream, flags))                       \
  F(int, cudaStreamDestroy, (void* stream), (stream))                                                       \
  F(int, cudaStreamWaitEvent, (void* stream, void* event, unsigned flags), (stream, event, flags))          \
  F(int, cudaStreamSynchronize, (void* stream), (stream))                                                   \
  F(int, cudaEventCreateWithFlags, (void** event, unsigned flags), (event, flags))                          \
  F(int, cudaEventRecord, (void* event, void* stream), (event, stream))                                     \
  F(int, cudaEventQuery, (void* event), (event))                                                            \
  F(int, cudaEventSynchronize, (void* event), (event))                                                      \
  F(int, cudaEventElapsedTime, (float* milliseconds, void* begin, void* end), (milliseconds, begin, end))   \
  F(int, cudaEventDestroy, (void* event), (event))                                                          \
  F(int, cudaLaunchHostFunc, (void* stream, void (*function)(void*), void* data), (stream, function, data)) \
  F(int, cudaGetLastError, (), ())

// The calls, which return a cudaError_t, and the one that says what that means.
#define PENSTOCK_CUDA_FUNCTIONS(F) \
  PENSTOCK_CUDA_CALLS(F) F(const char*, cudaGetErrorString, (int error), (error))

namespace penstock {

/// Constants of the runtime that we use, under its own names.
namespace cuda {
enum Result : int {
  success = 0,
  invalid_value = 1,
  memory_allocation = 2,
  insufficient_driver = 35,
  no_device = 100,
  invalid_device = 101,
  invalid_resource_handle = 400,
  not_ready = 600,
  not_permitted = 800,
};
constexpr int host_to_device = 1;
constexpr unsigned host_alloc_portable = 1, stream_non_blocking = 1, event_blocking_sync = 1,
                   event_disable_timing = 2;
}  // namespace cuda

/// A runtime: the real one, or a stand-in. Any thread may call through it.
struct CudaApi {
#define PENSTOCK_MEMBER(result, name, parameters, arguments) std::function<result parameters> name;
  PENSTOCK_CUDA_FUNCTIONS(PENSTOCK_MEMBER)
#undef PENSTOCK_MEMBER
};

/// The runtime of this machine, or the library at `path`. It stays loaded: CUDA cannot be unloaded. Throws
/// Error naming the libraries that were tried, or the function that one of them does not have.
std::shared_ptr<const CudaApi> load_cuda(const std::string& path = {});

}  // namespace penstock
