# LibTorch out of the PyPI wheel `torch`, as target penstock_libtorch. The wheel's own TorchConfig.cmake asks for a CUDA
# toolkit; all that a CPU build needs is the headers and two libraries. PENSTOCK_TORCH is the package's folder.
if(NOT PENSTOCK_TORCH)
  file(GLOB found ${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch ${PROJECT_SOURCE_DIR}/.torch/lib/python3*/site-packages/torch)
  if(found)
    list(GET found 0 found)
  endif()
  set(PENSTOCK_TORCH "${found}" CACHE PATH "The torch package's folder" FORCE)
endif()
if(EXISTS "${PENSTOCK_TORCH}/lib/libtorch_cpu.so")
  add_library(penstock_libtorch INTERFACE)
  # Behind the system's folders: the wheel carries headers of another fmt, whose library it keeps to itself.
  target_compile_options(penstock_libtorch INTERFACE "SHELL:-idirafter ${PENSTOCK_TORCH}/include")
  target_include_directories(penstock_libtorch SYSTEM INTERFACE
                             ${PENSTOCK_TORCH}/include/torch/csrc/api/include)
  target_link_libraries(penstock_libtorch INTERFACE ${PENSTOCK_TORCH}/lib/libtorch_cpu.so ${PENSTOCK_TORCH}/lib/libc10.so)
  # Dependants' own: libtorch.so would pull in the CUDA libraries, and -z,now is not needed to find these two.
  target_link_options(penstock_libtorch INTERFACE -Wl,-rpath,${PENSTOCK_TORCH}/lib -Wl,--allow-shlib-undefined)
endif()

# Its CUDA half, as target penstock_libtorch_cuda: two more libraries, and the CUDA runtime's headers out of the nvidia
# packages that the wheel depends on, or out of a toolkit.
if(TARGET penstock_libtorch AND EXISTS "${PENSTOCK_TORCH}/lib/libtorch_cuda.so" AND EXISTS "${PENSTOCK_TORCH}/lib/libc10_cuda.so")
  file(GLOB nvidia ${PENSTOCK_TORCH}/../nvidia/cu*/include ${PENSTOCK_TORCH}/../nvidia/cuda_runtime/include)
  find_path(PENSTOCK_CUDA_HEADERS cuda_runtime_api.h HINTS ${nvidia} PATHS /usr/local/cuda/include)
  if(PENSTOCK_CUDA_HEADERS)
    add_library(penstock_libtorch_cuda INTERFACE)
    target_include_directories(penstock_libtorch_cuda SYSTEM INTERFACE ${PENSTOCK_CUDA_HEADERS})
    target_link_libraries(penstock_libtorch_cuda INTERFACE ${PENSTOCK_TORCH}/lib/libtorch_cuda.so ${PENSTOCK_TORCH}/lib/libc10_cuda.so
                                                           penstock_libtorch)
  endif()
endif()
