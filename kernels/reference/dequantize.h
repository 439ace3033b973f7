#ifndef REFRAIN_KERNELS_REFERENCE_DEQUANTIZE_H_
#define REFRAIN_KERNELS_REFERENCE_DEQUANTIZE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/dtype.h"

namespace refrain::kernels {

// The meaning of stored weights, and of K and V, one naive scalar loop per element type: what
// packed and vectorised forms are compared with, and how the reference back end reads weights. Not
// tuned. Pure functions, callable from any thread; they cannot fail, the caller has checked the
// extents.

float F16ToF32(uint16_t bits);   // exact, subnormals, infinities and NaN included
float Bf16ToF32(uint16_t bits);  // exact
float E4m3ToF32(uint8_t bits);   // exact, subnormals and NaN included

// Writes the `elements` values stored at `src` to `dst`. `elements` is a whole number of blocks of
// `dtype`; `src` holds RowBytes(dtype, elements) bytes and needs no alignment. Each value is
// rounded once per product and once per sum, never fused, so results are equal bit for bit
// wherever this runs.
void DequantizeRow(DType dtype, const std::byte* src, int64_t elements, float* dst);

}  // namespace refrain::kernels

#endif  // REFRAIN_KERNELS_REFERENCE_DEQUANTIZE_H_
