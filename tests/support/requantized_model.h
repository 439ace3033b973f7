#ifndef REFRAIN_TESTS_SUPPORT_REQUANTIZED_MODEL_H_
#define REFRAIN_TESTS_SUPPORT_REQUANTIZED_MODEL_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "kernels/dtype.h"

namespace refrain::testing {

// What a matrix with rows of `cols` elements gets where `wanted` is asked for: a K-quant needs
// whole blocks of 256, and rows without get what llama.cpp gives them, Q5_0 for Q4_K, Q5_1 for Q5_K
// and Q8_0 for Q6_K.
kernels::DType TypeOfRows(kernels::DType wanted, int64_t cols);

// Writes a copy of the GGUF file `from` whose matrices are stored as TypeOfRows(wanted, ...), from
// the values that they have there. Metadata are copied byte by byte, vectors too. One tensor at a
// time: the copy is never whole in memory.
absl::Status WriteRequantized(const std::string& from, kernels::DType wanted,
                              const std::string& to);

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SUPPORT_REQUANTIZED_MODEL_H_
