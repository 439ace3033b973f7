#ifndef REFRAIN_KERNELS_CUDA_ROUNDED_X_H_
#define REFRAIN_KERNELS_CUDA_ROUNDED_X_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/round_rows.h"
#include "kernels/cuda/scratch.h"

namespace refrain::kernels::cuda {

// x of matrix products in 16 bits, the one that the next products read: made by a kernel of its own
// when it is asked for, or by the operation that computes x, which is told where. Knows what it
// holds until Forget, or until anything is copied on the device, allocated or freed; whoever puts a
// kernel on the stream that may write x calls that. Engine thread; the stream and the device
// outlive it. Failure: no memory.
class RoundedX {
 public:
  RoundedX(Stream& stream, CudaDevice& device) : stream_(stream), device_(device) {}

  // Room for x of up to `bytes` bytes; what is there already stays.
  absl::Status Reserve(size_t bytes) { return ReserveScratch(device_, bytes, bytes, &buffer_); }
  // Gives the room back, of which trials may have taken more than steps ever do.
  void GiveBack() {
    Forget();
    buffer_ = DeviceBuffer();
  }

  void Forget() { holds_.reset(); }

  // x [rows, cols] in 16 bits, [rows, RoundedStride(cols)].
  absl::StatusOr<const std::byte*> Have(DType dtype, int64_t rows, int64_t cols,
                                        const DeviceRows& x) {
    absl::StatusOr<RoundRowsLaunch> round = RoomFor(dtype, rows, cols, x);
    if (!round.ok()) return round.status();
    if (holds_ != *round || changes_ != device_.changes()) LaunchRoundRows(stream_, *round);
    Hold(*round);
    return round->out;
  }

  // Where the operation that is put on the stream next leaves x, which it computes; empty where
  // there is no room yet.
  RoundedRows Offer(DType dtype, int64_t rows, int64_t cols, const DeviceRows& x) {
    Forget();
    const size_t bytes = RoundedBytes(rows, cols);
    if (cols % 8 != 0 || buffer_.data() == nullptr || buffer_.bytes() < bytes) return {};
    Hold({dtype, rows, cols, x, buffer_.data(), RoundedStride(cols)});
    return {buffer_.data(), RoundedStride(cols), dtype == DType::kBF16};
  }

 private:
  absl::StatusOr<RoundRowsLaunch> RoomFor(DType dtype, int64_t rows, int64_t cols,
                                          const DeviceRows& x) {
    const size_t bytes = RoundedBytes(rows, cols);
    absl::Status status = ReserveScratch(device_, bytes, bytes + bytes / 2, &buffer_);
    if (!status.ok()) return status;
    return RoundRowsLaunch{dtype, rows, cols, x, buffer_.data(), RoundedStride(cols)};
  }
  void Hold(const RoundRowsLaunch& round) {
    holds_ = round;
    changes_ = device_.changes();
  }

  Stream& stream_;
  CudaDevice& device_;
  DeviceBuffer buffer_;
  std::optional<RoundRowsLaunch> holds_;
  uint64_t changes_ = 0;  // of the device when it came to hold that
};

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_ROUNDED_X_H_
