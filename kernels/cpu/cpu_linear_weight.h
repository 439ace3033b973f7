#ifndef REFRAIN_KERNELS_CPU_CPU_LINEAR_WEIGHT_H_
#define REFRAIN_KERNELS_CPU_CPU_LINEAR_WEIGHT_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/packed_matrix.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/device.h"

namespace refrain::kernels::cpu {

// A weight as the CPU back end holds it: packed matrices one above the other, one per run of slices
// that are packed the same way (a Q4_K_M file has attention weights of two types in one layer).
// Immutable; made by PackCpuLinear.
class CpuLinearWeight : public LinearWeight {
 public:
  struct Part {
    int64_t row_begin;   // first output row
    int64_t tile_begin;  // number of tiles of the parts before it
    std::unique_ptr<PackedMatrix> matrix;

    int64_t tiles() const { return (matrix->n() + kTileN - 1) / kTileN; }
  };

  explicit CpuLinearWeight(std::vector<std::unique_ptr<PackedMatrix>> matrices);  // not empty

  int64_t n() const override { return n_; }
  int64_t k() const override { return parts_[0].matrix->k(); }
  size_t resident_bytes() const override;
  size_t second_copy_bytes() const override;

  // Tiles of all parts, counted through.
  int64_t tiles() const { return tiles_; }
  std::span<const Part> parts() const { return parts_; }

  // PackedMatrix::Multiply for tiles [tile_begin, tile_end) of the whole weight; `out` points to
  // row 0, output row 0.
  void Multiply(const Activations& x, int64_t row_begin, int64_t row_end, int64_t tile_begin,
                int64_t tile_end, float* out, int64_t out_stride, bool accumulate,
                bool reproducible) const;

  void DequantizeRow(int64_t row, float* out) const;

 private:
  std::vector<Part> parts_;
  int64_t n_ = 0;
  int64_t tiles_ = 0;
};

// Packs `slices` as Backend::PackLinear says. Quantised slices stay quantised unless
// `options.compute` asks for another arithmetic.
absl::StatusOr<std::unique_ptr<CpuLinearWeight>> PackCpuLinear(std::span<const WeightSlice> slices,
                                                               const PackOptions& options, Isa isa,
                                                               Device& device, ThreadPool& pool);

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_CPU_LINEAR_WEIGHT_H_
