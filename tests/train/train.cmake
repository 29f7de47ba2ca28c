# What tests/python/test_model.py compares its own model with.
add_executable(model_dump ${CMAKE_CURRENT_SOURCE_DIR}/train/model_dump.cpp)
target_link_libraries(model_dump PRIVATE penstock_train)
penstock_warnings(model_dump)

# recogniser_test.cpp tests the example.
target_sources(test_train PRIVATE ${PROJECT_SOURCE_DIR}/examples/ctc/recogniser.cpp)
target_precompile_headers(test_train PRIVATE <torch/torch.h>)
