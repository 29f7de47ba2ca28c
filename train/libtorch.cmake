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
