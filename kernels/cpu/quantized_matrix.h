#ifndef REFRAIN_KERNELS_CPU_QUANTIZED_MATRIX_H_
#define REFRAIN_KERNELS_CPU_QUANTIZED_MATRIX_H_

#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/packed_matrix.h"
#include "kernels/cpu/quantized_kernels.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/device.h"

namespace refrain::kernels::cpu {

// Packs slices of one quantised type, one above the other, into tiles of 16 rows
// (quantized_kernels.h has the layout). The integers and scales of the file are kept as they are,
// only their order changes: about as many bytes as the file has, and products are those of the
// file's values, exact up to the rounding of activations to fixed point and of float sums.
//
// INVALID_ARGUMENT: no slices, types or cols that differ, cols that are not whole blocks, a source
// row out of range. RESOURCE_EXHAUSTED: no memory. Multiply of the result reads `form`, kFixed or
// kInt8, and gives an output element the same bits for any number of rows, threads and ranges,
// mixed with coarse rows or not. Where the level has tiles of bf16 they multiply many rows (from 12
// to 24), unless `reproducible`: weights are rounded to them, and rows too (2^-8 of each factor);
// of kFixed rows what that takes away of a group of 16 that are not all coarse is multiplied as
// well (TileRows::exact). With `argmax` and kFixed it has bounds(), unless the weight is not
// finite.
absl::StatusOr<std::unique_ptr<PackedMatrix>> PackQuantized(std::span<const WeightSlice> slices,
                                                            ActivationForm form, Isa isa,
                                                            Device& device, ThreadPool& pool,
                                                            bool argmax);

// The table of a level, or of the nearest level below that has one.
const QuantizedKernels& QuantizedKernelsFor(Isa isa);

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_QUANTIZED_MATRIX_H_
