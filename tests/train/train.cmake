# recogniser_test.cpp tests the example.
target_sources(test_train PRIVATE ${PROJECT_SOURCE_DIR}/examples/ctc/recogniser.cpp)
target_precompile_headers(test_train PRIVATE <torch/torch.h>)
