# What the tests of device/ need besides: the stand-in as a library that is loaded like CUDA's, one that lacks
# a function, and the comparison with the toolkit's header where there is one.
target_sources(test_device PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/device/schedules.cpp)

add_library(simulated_cudart SHARED ${CMAKE_CURRENT_SOURCE_DIR}/device/simulated_cudart.cpp)
target_link_libraries(simulated_cudart PRIVATE penstock_device)
penstock_warnings(simulated_cudart)
add_library(incomplete_cudart SHARED ${CMAKE_CURRENT_SOURCE_DIR}/device/incomplete_cudart.cpp)
add_dependencies(test_device simulated_cudart incomplete_cudart)
target_compile_definitions(test_device PRIVATE
  SIMULATED_CUDART="$<TARGET_FILE:simulated_cudart>" INCOMPLETE_CUDART="$<TARGET_FILE:incomplete_cudart>")

find_path(PENSTOCK_CUDA_INCLUDE cuda_runtime_api.h HINTS /usr/local/cuda/include)
if(PENSTOCK_CUDA_INCLUDE)
  target_sources(test_device PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/device/cuda_headers.cpp)
  set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/device/cuda_headers.cpp PROPERTIES
    COMPILE_OPTIONS "-isystem;${PENSTOCK_CUDA_INCLUDE}")
  message(STATUS "device/: compared with ${PENSTOCK_CUDA_INCLUDE}/cuda_runtime_api.h")
else()
  message(STATUS "device/: no cuda_runtime_api.h, so its signatures are not compared with ours")
endif()
