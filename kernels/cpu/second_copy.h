#ifndef REFRAIN_KERNELS_CPU_SECOND_COPY_H_
#define REFRAIN_KERNELS_CPU_SECOND_COPY_H_

#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/packed_matrix.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/device.h"
#include "kernels/dtype.h"

namespace refrain::kernels::cpu {

// Quantised types of which a copy in f16 is multiplied faster than the blocks, where rows are many:
// all in plain C++, where f32 multiply-adds are several times as fast as products of bytes. Of
// other levels none is: unpacking blocks is a few hundredths of such a product, and a copy is twice
// the reading and more (docs/results/second-copy.md).
std::vector<DType> SecondCopiesOf(Isa isa);

// `first`, which holds `slices` quantised, with a second copy of them in f16 (PackDense) beside it,
// which multiplies operations of many rows that are not `reproducible`: weights are rounded to 11
// bits then and activations are f32. Everything else, LinearArgMax among it, is left to `first`.
// `first` alone comes back where a weight is beyond f16. RESOURCE_EXHAUSTED: no memory.
absl::StatusOr<std::unique_ptr<PackedMatrix>> AddSecondCopy(std::unique_ptr<PackedMatrix> first,
                                                            std::span<const WeightSlice> slices,
                                                            Isa isa, Device& device,
                                                            ThreadPool& pool);

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_SECOND_COPY_H_
