#ifndef REFRAIN_KERNELS_CUDA_CUDA_LINEAR_WEIGHT_H_
#define REFRAIN_KERNELS_CUDA_CUDA_LINEAR_WEIGHT_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cuda/device_matrix.h"
#include "kernels/device.h"

namespace refrain::kernels::cuda {

class Stream;

// A weight in device memory: matrices one above the other, one per run of slices of the same type
// (a Q4_K_M file has attention weights of two types in one layer). Quantised ones stay in their
// blocks, and may have a second copy in 16 bits. Made by PackCudaLinear; immutable once in use.
class CudaLinearWeight final : public LinearWeight {
 public:
  struct Part {
    int64_t row_begin;  // first output row
    DeviceMatrix matrix;
    DeviceBuffer buffer;  // what matrix.data points into
    // PackOptions::second_copy: the same in f16, as kTile of gemm.h rounds it; no data: none.
    DeviceMatrix second;
    DeviceBuffer second_buffer;

    bool has_second() const { return second.data != nullptr; }
  };

  // `exact`: products of f32 activations with the stored values (ComputeDType::kF32).
  CudaLinearWeight(std::vector<Part> parts, bool exact);

  int64_t n() const override { return n_; }
  int64_t k() const override { return parts_[0].matrix.cols; }
  size_t resident_bytes() const override;

  size_t second_copy_bytes() const override;

  std::span<const Part> parts() const { return parts_; }
  bool exact() const { return exact_; }

  // From so many rows on the second copy is multiplied where there is one: our kernel has two tiles
  // of rows then, each of which would unpack the weights, and a library's products begin here.
  static constexpr int64_t kSecondCopyRows = 65;
  // Gives every quantised part a second copy. On failure (no memory; what the stream keeps) some
  // may have one. Before the weight is used.
  absl::Status AddSecondCopies(Stream& stream, Device& device);

 private:
  std::vector<Part> parts_;
  int64_t n_ = 0;
  bool exact_;
};

// BackendInfo::packed_as: kBF16 rounds every type to bf16, the others keep what is stored.
constexpr DType PackedAs(DType stored, ComputeDType compute) {
  return compute == ComputeDType::kBF16 ? DType::kBF16 : stored;
}

// Packs `slices` as Backend::PackLinear says.
absl::StatusOr<std::unique_ptr<CudaLinearWeight>> PackCudaLinear(
    std::span<const WeightSlice> slices, const PackOptions& options, Device& device);

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_CUDA_LINEAR_WEIGHT_H_
