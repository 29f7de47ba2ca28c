# recogniser_test.cpp tests the example.
target_link_libraries(test_train PRIVATE ctc_recogniser)
