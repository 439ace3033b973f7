#ifndef REFRAIN_KERNELS_DEVICE_TIMES_H_
#define REFRAIN_KERNELS_DEVICE_TIMES_H_

namespace refrain::kernels {

// What a device that works beside the host did with its time so far, by its own clock.
struct DeviceTimes {
  // Of steps, and between two of them where the second was launched before the first was awaited:
  // there was work for the device all the time.
  double step_seconds = 0;
  // Of these, with nothing to do: the host was late.
  double idle_seconds = 0;
};

}  // namespace refrain::kernels

#endif  // REFRAIN_KERNELS_DEVICE_TIMES_H_
