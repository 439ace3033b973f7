#ifndef REFRAIN_KERNELS_CUDA_CUDA_DEVICE_H_
#define REFRAIN_KERNELS_CUDA_CUDA_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>

#include "kernels/cuda/runtime.h"
#include "kernels/device.h"

namespace refrain::kernels::cuda {

// A CUDA device's memory as a Device. Copies are put on one stream, behind the kernels there: those
// inside the device return at once, those from and to the host when they are done. Freeing waits
// for the stream. The runtime and the stream outlive it. Called as Device says. A failed copy from
// the host is kept, too: operations put behind it would compute with what it should have
// replaced.
class CudaDevice final : public Device {
 public:
  CudaDevice(Runtime& runtime, Stream& stream) : runtime_(runtime), stream_(stream) {}

  absl::StatusOr<DeviceBuffer> Allocate(size_t bytes, bool huge_pages) override;
  absl::Status Copy(std::byte* to, const std::byte* from, size_t bytes) override;
  absl::Status CopyToHost(std::byte* host, const std::byte* from, size_t bytes) override;
  absl::Status CopyFromHost(std::byte* to, const std::byte* host, size_t bytes) override;
  size_t AvailableBytes() const override { return runtime_.FreeBytes(); }

  // Another number after every allocation and release: with the same one, all lies where it lay.
  uint64_t layout() const { return layout_; }
  // The same after every copy to the device or on it, too.
  uint64_t changes() const { return layout_ + copies_; }

  // What was kept since the last call.
  absl::Status TakeFailure() { return std::exchange(failure_, absl::OkStatus()); }

 private:
  absl::Status Keep(absl::Status status) {
    failure_.Update(status);
    return status;
  }
  void Free(std::byte* data, size_t bytes) override;

  Runtime& runtime_;
  Stream& stream_;
  uint64_t layout_ = 0, copies_ = 0;
  absl::Status failure_;
  std::unordered_map<std::byte*, std::byte*> blocks_;  // aligned address to the runtime's
};

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_CUDA_DEVICE_H_
