# A stand-in for NVIDIA's library, under its name: programs find it by LD_LIBRARY_PATH.
add_library(nvml_stand_in SHARED ${CMAKE_CURRENT_SOURCE_DIR}/monitor/nvml_stand_in.cpp)
target_include_directories(nvml_stand_in PRIVATE ${PROJECT_SOURCE_DIR})
penstock_warnings(nvml_stand_in)
set_target_properties(nvml_stand_in PROPERTIES OUTPUT_NAME nvidia-ml SUFFIX .so.1
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/nvml)
add_dependencies(test_monitor nvml_stand_in)
target_compile_definitions(test_monitor PRIVATE NVML_STAND_IN="$<TARGET_FILE:nvml_stand_in>")
