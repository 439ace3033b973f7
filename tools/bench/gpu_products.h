#ifndef REFRAIN_TOOLS_BENCH_GPU_PRODUCTS_H_
#define REFRAIN_TOOLS_BENCH_GPU_PRODUCTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/backend.h"
#include "tools/bench/gpu_report.h"

namespace refrain::bench {

struct ProductsShape {
  int64_t n = 0, k = 0;
  size_t working_set_bytes = 0;  // of weights that go round, beyond the second-level cache
  std::vector<int> rows = {1, 8, 32, 128, 512};
  int calls = 64;  // of one round: waiting for them counts little
};

// Products x W^T of a few rows by weights as models store them: one call after the other on the
// device, each with another weight. A table of times and of bytes of weights per second. Ends the
// program where the device has no memory. Values are not checked: conformance tests do that.
void RunGpuProducts(kernels::Backend& backend, const ProductsShape& shape, int rounds,
                    GpuReport& report);

}  // namespace refrain::bench

#endif  // REFRAIN_TOOLS_BENCH_GPU_PRODUCTS_H_
