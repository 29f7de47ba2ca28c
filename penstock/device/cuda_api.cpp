#include "penstock/device/cuda_api.h"

#include <vector>

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "penstock/core/error.h"

namespace penstock {
namespace {

struct Library {
  void* handle = nullptr;
  std::string name;
};

Library open_library(const std::string& path) {
  const auto names = path.empty() ? std::vector<std::string>{"libcudart.so.13", "libcudart.so.12",
                                                             "libcudart.so.11.0", "libcudart.so"}
                                  : std::vector{path};
  std::string reason;
  for (const auto& name : names) {
    if (void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) return {handle, name};
    if (const char* error = dlerror(); reason.empty() && error != nullptr) reason = error;
  }
  throw Error(
      fmt::format("device: cuda: the CUDA runtime was not found (tried {}; {}): install it or put its "
                  "folder into LD_LIBRARY_PATH, or set `device: cpu`",
                  fmt::join(names, ", "), reason));
}

void* find(const Library& library, const char* name) {
  if (void* function = dlsym(library.handle, name)) return function;
  throw Error(fmt::format("device: cuda: {} has no function {}: a CUDA runtime from 11.0 on is needed",
                          library.name, name));
}

void* find_function(const Library& library, const std::string& name) {
  // CUDA 12 has both, and only the newer one fills the structure that its own headers describe.
  if (name == "cudaGetDeviceProperties")
    if (void* newer = dlsym(library.handle, "cudaGetDeviceProperties_v2")) return newer;
  return find(library, name.c_str());
}

}  // namespace

std::shared_ptr<const CudaApi> load_cuda(const std::string& path) {
  const auto library = open_library(path);
  auto api = std::make_shared<CudaApi>();
  // NOLINTBEGIN(bugprone-macro-parentheses): lists of parameters
#define PENSTOCK_LOAD(result, name, parameters, arguments) \
  api->name = reinterpret_cast<result(*) parameters>(find_function(library, #name));
  PENSTOCK_CUDA_FUNCTIONS(PENSTOCK_LOAD)
#undef PENSTOCK_LOAD
  // NOLINTEND(bugprone-macro-parentheses)
  return api;
}

}  // namespace penstock
