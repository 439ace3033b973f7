#ifndef REFRAIN_KERNELS_DEVICE_TIMES_H_
#define REFRAIN_KERNELS_DEVICE_TIMES_H_

#include <cstdint>

namespace refrain::kernels {

// What a device that works beside the host did with its time so far, by its own clock.
struct DeviceTimes {
  // Of steps, and between two of them where the second was launched before the first was awaited:
  // there was work for the device all the time.
  double step_seconds = 0;
  // Of these, with nothing to do: the host was late. Not the gaps inside of a forward pass whose
  // kernels it launches one by one.
  double idle_seconds = 0;
  int64_t unrecorded_steps = 0;  // which had such passes
};

}  // namespace refrain::kernels

#endif  // REFRAIN_KERNELS_DEVICE_TIMES_H_
