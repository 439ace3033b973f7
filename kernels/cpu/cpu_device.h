#ifndef REFRAIN_KERNELS_CPU_CPU_DEVICE_H_
#define REFRAIN_KERNELS_CPU_CPU_DEVICE_H_

#include <cstddef>

#include "kernels/device.h"

namespace refrain::kernels::cpu {

// Host memory as a Device: anonymous pages straight from the kernel, zero-filled on first touch,
// huge where asked for. It pools nothing: every allocation is one mapping, given back whole, so it
// is for arenas and not for small objects. Thread-safe (it has no state). Failure: Allocate returns
// RESOURCE_EXHAUSTED naming the size; copies cannot fail.
class CpuDevice : public Device {
 public:
  absl::StatusOr<DeviceBuffer> Allocate(size_t bytes, bool huge_pages) override;
  absl::Status Copy(std::byte* to, const std::byte* from, size_t bytes) override;
  absl::Status CopyToHost(std::byte* host, const std::byte* from, size_t bytes) override;
  absl::Status CopyFromHost(std::byte* to, const std::byte* host, size_t bytes) override;

  // Needs Linux 5.14.
  bool Populate(std::byte* data, size_t bytes) override;

  // What the kernel estimates a process can take without swapping, or what the tightest memory
  // control group above this process still grants, if that is less (LeftInControlGroups).
  size_t AvailableBytes() const override;
  // RAM, whatever control groups grant of it: their limits may change.
  size_t TotalBytes() const override;

 private:
  void Free(std::byte* data, size_t bytes) override;
};

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_CPU_DEVICE_H_
