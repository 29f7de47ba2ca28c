// A runtime that is too old to be used.
extern "C" int cudaGetDeviceCount(int* count) {  // NOLINT(readability-identifier-naming)
  *count = 1;
  return 0;
}
