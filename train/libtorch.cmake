# LibTorch out of the PyPI wheel `torch`, as target penstock_libtorch. The wheel's own TorchConfig.cmake asks for a CUDA
# toolkit; all that a CPU build needs is the headers and two libraries. PENSTOCK_TORCH is the package's folder; where it is not
# given, .venv's or .torch's is looked for each time, as .venv may have come since.
set(PENSTOCK_TORCH "" CACHE PATH "The torch package's folder")
set(torch "${PENSTOCK_TORCH}")
if(NOT torch)
  file(GLOB found ${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch/lib/libtorch_cpu.so)
  if(NOT found)
    file(GLOB found ${PROJECT_SOURCE_DIR}/.torch/lib/python3*/site-packages/torch/lib/libtorch_cpu.so)
  endif()
  if(found)
    list(GET found 0 found)
    cmake_path(GET found PARENT_PATH found)
    cmake_path(GET found PARENT_PATH torch)
  endif()
endif()
if(EXISTS "${torch}/lib/libtorch_cpu.so")
  message(STATUS "penstock-train: with ${torch}")
  add_library(penstock_libtorch INTERFACE)
  # Behind the system's folders: the wheel carries headers of another fmt, whose library it keeps to itself.
  target_compile_options(penstock_libtorch INTERFACE "SHELL:-idirafter ${torch}/include")
  target_include_directories(penstock_libtorch SYSTEM INTERFACE
                             ${torch}/include/torch/csrc/api/include)
  target_link_libraries(penstock_libtorch INTERFACE ${torch}/lib/libtorch_cpu.so ${torch}/lib/libc10.so)
  # Dependants' own: libtorch.so would pull in the CUDA libraries, and -z,now is not needed to find these two.
  target_link_options(penstock_libtorch INTERFACE -Wl,-rpath,${torch}/lib -Wl,--allow-shlib-undefined)
endif()

# Its CUDA half, as target penstock_libtorch_cuda: two more libraries, and the CUDA runtime's headers out of the nvidia
# packages that pip brings, or out of a toolkit. `torch` alone brings headers that lack crt/: nvidia-cuda-crt has it.
set(no_cuda "the torch package has no CUDA")
if(TARGET penstock_libtorch AND EXISTS "${torch}/lib/libtorch_cuda.so" AND EXISTS "${torch}/lib/libc10_cuda.so")
  set(no_cuda "cuda_runtime_api.h or crt/host_config.h is missing: pip install nvidia-cuda-crt beside torch, or a CUDA toolkit, brings it")
  file(GLOB nvidia ${torch}/../nvidia/cu*/include ${torch}/../nvidia/cuda_runtime/include)
  foreach(headers ${PENSTOCK_CUDA_HEADERS} ${nvidia} /usr/local/cuda/include)
    if(EXISTS ${headers}/cuda_runtime_api.h AND EXISTS ${headers}/crt/host_config.h)
      add_library(penstock_libtorch_cuda INTERFACE)
      target_include_directories(penstock_libtorch_cuda SYSTEM INTERFACE ${headers})
      target_link_libraries(penstock_libtorch_cuda INTERFACE ${torch}/lib/libtorch_cuda.so ${torch}/lib/libc10_cuda.so
                                                             penstock_libtorch)
      break()
    endif()
  endforeach()
endif()
