// Compares our declarations of the CUDA runtime with the toolkit's, at compile time.
#include <type_traits>

#include <cuda_runtime_api.h>

#include "penstock/device/cuda_api.h"

namespace penstock {
namespace {

/// Whether a caller that passes an Ours passes what a callee that takes a Theirs expects.
template <typename Ours, typename Theirs>
constexpr bool passes_as() {
  if constexpr (std::is_same_v<Ours, Theirs>) return true;
  if constexpr (std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>) {
    using To = std::remove_pointer_t<Theirs>;
    if constexpr (std::is_function_v<To>) return std::is_same_v<std::remove_pointer_t<Ours>, To>;
    // void** for cudaStream_t*, void* for cudaStream_t and for structures.
    else if constexpr (std::is_same_v<Ours, void**>)
      return std::is_pointer_v<To>;
    else
      return std::is_same_v<Ours, void*> && std::is_class_v<To>;
  }
  if constexpr (std::is_enum_v<Theirs>) return std::is_same_v<Ours, int> && sizeof(Theirs) == sizeof(int);
  return false;
}

template <typename Ours, typename Theirs>
struct SameCall : std::false_type {};
template <typename R, typename... A, typename S, typename... B>
struct SameCall<R(A...), S(B...)>
    : std::bool_constant<sizeof...(A) == sizeof...(B) && passes_as<R, S>() && (passes_as<A, B>() && ...)> {};

#define PENSTOCK_COMPARE(result, name, parameters, arguments)                                 \
  static_assert(SameCall<result parameters, std::remove_pointer_t<decltype(&::name)>>::value, \
                #name " has other parameters in cuda_runtime_api.h");
PENSTOCK_CUDA_FUNCTIONS(PENSTOCK_COMPARE)

// The comparison itself can fail.
static_assert(!SameCall<int(void*), cudaError_t(int)>::value);
static_assert(!SameCall<int(int), cudaError_t(std::size_t)>::value);
static_assert(!SameCall<int(void*), cudaError_t(cudaStream_t*)>::value);
static_assert(!SameCall<int(void**), cudaError_t(cudaStream_t)>::value);

static_assert(int{cuda::success} == cudaSuccess);
static_assert(int{cuda::invalid_value} == cudaErrorInvalidValue);
static_assert(int{cuda::memory_allocation} == cudaErrorMemoryAllocation);
static_assert(int{cuda::insufficient_driver} == cudaErrorInsufficientDriver);
static_assert(int{cuda::no_device} == cudaErrorNoDevice);
static_assert(int{cuda::invalid_device} == cudaErrorInvalidDevice);
static_assert(int{cuda::invalid_resource_handle} == cudaErrorInvalidResourceHandle);
static_assert(int{cuda::not_ready} == cudaErrorNotReady);
static_assert(int{cuda::not_permitted} == cudaErrorNotPermitted);
static_assert(cuda::host_to_device == cudaMemcpyHostToDevice);
static_assert(cuda::host_alloc_portable == cudaHostAllocPortable);
static_assert(cuda::stream_non_blocking == cudaStreamNonBlocking);
static_assert(cuda::event_blocking_sync == cudaEventBlockingSync);
static_assert(cuda::event_disable_timing == cudaEventDisableTiming);
static_assert(sizeof(cudaDeviceProp) <= 16384 && offsetof(cudaDeviceProp, name) == 0);

}  // namespace
}  // namespace penstock
