#ifndef REFRAIN_TESTS_SUPPORT_QUANTIZE_H_
#define REFRAIN_TESTS_SUPPORT_QUANTIZE_H_

#include <cstdint>
#include <span>
#include <string>

#include "kernels/dtype.h"

namespace refrain::testing {

// Stores a row of floats as `dtype`: plain round-to-nearest per block, good enough for tests and
// for nothing else. The row is a whole number of blocks. Pure.
std::string QuantizeRow(kernels::DType dtype, std::span<const float> row);

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SUPPORT_QUANTIZE_H_
