#ifndef REFRAIN_TOOLS_BENCH_RANDOM_WEIGHT_H_
#define REFRAIN_TOOLS_BENCH_RANDOM_WEIGHT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/dtype.h"

namespace refrain::bench {

// [n, k] elements in file format, in [-1, 1] or so.
std::vector<std::byte> RandomWeight(kernels::DType dtype, int64_t n, int64_t k, uint32_t seed);

}  // namespace refrain::bench

#endif  // REFRAIN_TOOLS_BENCH_RANDOM_WEIGHT_H_
