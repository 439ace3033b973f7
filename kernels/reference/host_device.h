#ifndef REFRAIN_KERNELS_REFERENCE_HOST_DEVICE_H_
#define REFRAIN_KERNELS_REFERENCE_HOST_DEVICE_H_

#include <cstddef>

#include "kernels/device.h"

namespace refrain::kernels {

// Host memory as a Device: anonymous mappings, whose pages exist from the first touch on, and
// memcpy. Called as Device says; Allocate fails with RESOURCE_EXHAUSTED when the system refuses.
class HostDevice final : public Device {
 public:
  absl::StatusOr<DeviceBuffer> Allocate(size_t bytes, bool huge_pages) override;
  absl::Status Copy(std::byte* to, const std::byte* from, size_t bytes) override;
  absl::Status CopyToHost(std::byte* host, const std::byte* from, size_t bytes) override;
  absl::Status CopyFromHost(std::byte* to, const std::byte* host, size_t bytes) override;
  size_t AvailableBytes() const override;
  size_t TotalBytes() const override;

 private:
  void Free(std::byte* data, size_t bytes) override;
};

}  // namespace refrain::kernels

#endif  // REFRAIN_KERNELS_REFERENCE_HOST_DEVICE_H_
