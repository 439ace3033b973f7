#ifndef REFRAIN_KERNELS_CUDA_PRODUCT_LIBRARY_H_
#define REFRAIN_KERNELS_CUDA_PRODUCT_LIBRARY_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/stream.h"
#include "kernels/dtype.h"

namespace refrain::kernels::cuda {

// out = x W^T (or +=): x [rows, k] and W [n, k] of one 16-bit type, out [rows, n] in f32, sums in
// f32. Strides are in elements, from row to row. Every row begins at a multiple of 16 bytes.
struct ProductShape {
  DType dtype = DType::kF16;  // kF16 or kBF16
  int64_t rows = 0, n = 0, k = 0;
  int64_t x_stride = 0, weight_stride = 0, out_stride = 0;
  bool accumulate = false;

  friend bool operator==(const ProductShape&, const ProductShape&) = default;
};

struct ProductOperands {
  const std::byte* x = nullptr;
  const std::byte* weight = nullptr;
  float* out = nullptr;
  std::byte* workspace = nullptr;  // as large as was said to Find
};

// One of the library's ways of computing a shape; opaque to everybody else.
struct ProductAlgorithm {
  alignas(16) std::byte bytes[64] = {};
};

// Matrix products by a library of the device's maker, which is found when the daemon runs, or is
// not there. It knows nothing of weights or models. Implementations: cuBLASLt, and one in host
// memory for the emulated device.
//
// Threads: one at a time. The device must be the calling thread's own (Runtime::MakeCurrent).
class ProductLibrary {
 public:
  virtual ~ProductLibrary() = default;

  virtual std::string_view name() const = 0;  // with the version

  // At most `most` algorithms that need no more than `workspace_bytes`, the one that the library
  // takes for the fastest first; none where it cannot compute the shape.
  virtual absl::StatusOr<std::vector<ProductAlgorithm>> Find(const ProductShape& shape,
                                                             size_t workspace_bytes, int most) = 0;
  // Whether an algorithm that was found for other numbers of rows computes this shape, too.
  virtual bool Computes(const ProductShape& shape, const ProductAlgorithm& algorithm,
                        size_t workspace_bytes) = 0;

  // Puts the product on the stream; it may be recorded into a graph. Failure: the library refused,
  // nothing was put there. RESOURCE_EXHAUSTED: it found no memory.
  virtual absl::Status Multiply(const ProductShape& shape, const ProductAlgorithm& algorithm,
                                const ProductOperands& operands, size_t workspace_bytes,
                                Stream& stream) = 0;
};

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_PRODUCT_LIBRARY_H_
