// Every wait that cuda.cpp has for the sake of a batch's bytes, by name. tests/device/waits_test.cpp compiles
// cuda.cpp again, leaves out each of them in turn and shows what goes wrong.
#pragma once

namespace penstock {

enum class Wait {
  copy_before_use,     ///< a consumer's stream, for the batch's copy
  use_before_copy,     ///< the stream of a copy, for the work that used the buffer before
  copy_before_refill,  ///< letting go of a slot, for its copy (asked without waiting)
  copy_before_reuse,   ///< a buffer's next copy, for its last one, whose slot is let go with it
  use_before_growth,   ///< freeing a buffer that is too small, for the work that used it
  free_buffer,         ///< the stage, for a buffer that the consumer has let go of
  arrival,             ///< DeviceBatch::wait() and Device::copy()
  copies_at_the_end,   ///< the stage's destructor
  uses_at_the_end,     ///< freeing the buffers, for the work that used them
  copy_after_failure,  ///< a copy that could not be marked with an event
  use_after_failure,   ///< work that could not be
};
constexpr int wait_count = 11;

}  // namespace penstock
