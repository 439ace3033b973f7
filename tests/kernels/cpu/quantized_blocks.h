#ifndef REFRAIN_TESTS_KERNELS_CPU_QUANTIZED_BLOCKS_H_
#define REFRAIN_TESTS_KERNELS_CPU_QUANTIZED_BLOCKS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/dtype.h"

namespace refrain::kernels::cpu {

// Random stored rows of a quantised type: every bit pattern of quants and of small scales occurs,
// the f16 scales are of moderate size and either sign.
std::vector<std::byte> RandomRows(DType dtype, int64_t rows, int64_t cols, uint32_t seed);

// Of the normal distribution.
std::vector<float> RandomFloats(int64_t count, uint32_t seed);

// The quantised types.
std::vector<DType> QuantizedTypes();

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_TESTS_KERNELS_CPU_QUANTIZED_BLOCKS_H_
