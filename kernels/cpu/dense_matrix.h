#ifndef REFRAIN_KERNELS_CPU_DENSE_MATRIX_H_
#define REFRAIN_KERNELS_CPU_DENSE_MATRIX_H_

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cpu/dense_kernels.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/packed_matrix.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/device.h"

namespace refrain::kernels::cpu {

// How the elements of a dense matrix are kept, in panels of 16 output columns (lanes along n):
//   kF32   [n/16][k][16]     4 bytes an element
//   kF16   [n/16][k][16]     2 bytes, widened on load, multiplied with f32 activations
//   kBF16  [n/16][k/2][16][2], k padded with zeros to a multiple of 32. 2 bytes. From
//          Isa::kAvx512Bf16 on multiplied with bf16 activations by bf16 dot instructions (and by
//          AMX tiles where there are many rows); below it widened and multiplied with f32 ones.
// Columns of the last panel beyond n are zeros.
enum class DenseForm : uint8_t { kF32, kF16, kBF16 };

// Packs the slices, one above the other, into one unquantised matrix in `form`, multiplied by the
// kernels of level `isa`. This is both the way in for f32, f16 and bf16 weights and, with kBF16 and
// quantised slices, the second copy for many rows. Elements are rounded to nearest even where the
// form is narrower than the slice. The threads of `pool` share the panels. The matrix does not
// refer to the slices or the pool afterwards; `device` must outlive it.
//
// Arithmetic: every output element is a sum over ascending k that starts at zero; with `accumulate`
// the previous value is added last. Under `reproducible` an element's bits depend on its row of x
// and its row of w only: not on the number of rows, its tile or the way the work is split. Without
// it, AMX tiles (another order inside each 32 elements of k) take over at 8 rows; they add to the
// previous value from the begin.
//
// Multiply uses up to 530 KiB of stack. One call should cover 16 tiles (256 columns) or a multiple,
// and all rows of the operation or a multiple of 108: smaller cuts pack x again and again.
//
// INVALID_ARGUMENT when the slices are empty, disagree in `cols`, hold no whole number of blocks or
// have a row order of the wrong length or out of range; RESOURCE_EXHAUSTED from the device.
absl::StatusOr<std::unique_ptr<PackedMatrix>> PackDense(std::span<const WeightSlice> slices,
                                                        DenseForm form, Isa isa, Device& device,
                                                        ThreadPool& pool);

// What a level computes with.
DenseKernels DenseKernelsOf(Isa isa);

// The same with kernels given by the caller: how tests run kernels whose instructions this machine
// may not have.
absl::StatusOr<std::unique_ptr<PackedMatrix>> PackDense(std::span<const WeightSlice> slices,
                                                        DenseForm form, const DenseKernels& kernels,
                                                        Device& device, ThreadPool& pool);

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_DENSE_MATRIX_H_
