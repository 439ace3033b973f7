#ifndef REFRAIN_KERNELS_REFERENCE_HALF_FLOAT_H_
#define REFRAIN_KERNELS_REFERENCE_HALF_FLOAT_H_

#include <cstdint>

namespace refrain::kernels {

// Rounding to 16-bit floats and to E4M3, to nearest even, as the vector instructions do it: the
// inverse of F16ToF32, Bf16ToF32 and E4m3ToF32 (dequantize.h). Overflow gives infinity, in E4M3,
// which has none, the greatest number (448, of infinities too); NaN stays a (quiet) NaN. Not tuned.
// Pure functions.
uint16_t F32ToF16(float value);
uint16_t F32ToBf16(float value);
uint8_t F32ToE4m3(float value);

}  // namespace refrain::kernels

#endif  // REFRAIN_KERNELS_REFERENCE_HALF_FLOAT_H_
