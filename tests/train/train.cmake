# recogniser_test.cpp tests the example.
target_link_libraries(test_train PRIVATE ctc_recogniser)
target_precompile_headers(test_train PRIVATE <torch/torch.h>)
