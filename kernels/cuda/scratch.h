#ifndef REFRAIN_KERNELS_CUDA_SCRATCH_H_
#define REFRAIN_KERNELS_CUDA_SCRATCH_H_

#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"

namespace refrain::kernels::cuda {

// Makes `buffer` hold at least `bytes`; where it does not, what it held is given back first, so
// that memory need not be there for both, and `grown_bytes` (at least `bytes`) are asked for. Its
// content is lost then. Failure: the device's status, with an empty buffer.
inline absl::Status ReserveScratch(Device& device, size_t bytes, size_t grown_bytes,
                                   DeviceBuffer* buffer) {
  if (buffer->data() != nullptr && buffer->bytes() >= bytes) return absl::OkStatus();
  *buffer = DeviceBuffer();
  absl::StatusOr<DeviceBuffer> grown = device.Allocate(grown_bytes, false);
  if (absl::IsResourceExhausted(grown.status()) && grown_bytes > bytes) {
    grown = device.Allocate(bytes, false);
  }
  if (!grown.ok()) return grown.status();
  *buffer = *std::move(grown);
  return absl::OkStatus();
}

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_SCRATCH_H_
