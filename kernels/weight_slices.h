#ifndef REFRAIN_KERNELS_WEIGHT_SLICES_H_
#define REFRAIN_KERNELS_WEIGHT_SLICES_H_

#include <span>

#include "absl/status/status.h"
#include "kernels/backend.h"

namespace refrain::kernels {

// What every back end's PackLinear asks of its slices: one or more, of the same columns, which are
// whole blocks of their types, and row orders that name as many rows as they have. INVALID_ARGUMENT
// names the slice. Pure.
absl::Status CheckSlices(std::span<const WeightSlice> slices);

}  // namespace refrain::kernels

#endif  // REFRAIN_KERNELS_WEIGHT_SLICES_H_
