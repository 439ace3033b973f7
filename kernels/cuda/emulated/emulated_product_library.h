#ifndef REFRAIN_KERNELS_CUDA_EMULATED_EMULATED_PRODUCT_LIBRARY_H_
#define REFRAIN_KERNELS_CUDA_EMULATED_EMULATED_PRODUCT_LIBRARY_H_

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/cuda/product_library.h"

namespace refrain::kernels::cuda::emulated {

// A library of the emulated device, and what is wrong with it.
struct EmulatedLibrary {
  // What it does to one result of the last row: a sum that lacks a term, or that is no number.
  enum class Fault : uint8_t { kNone, kWrongSum, kNaN };

  bool present = false;
  Fault fault = Fault::kNone;
  int algorithms = 2;               // that Find has; the second is slow
  double slowness = 0;              // seconds that a product takes beside its arithmetic
  bool refuses = false;             // Multiply fails
  int64_t computes_rows = 1 << 30;  // of no more rows is any algorithm
  std::shared_ptr<int64_t> products = std::make_shared<int64_t>(0);  // that were put on a stream
};

// Products in double arithmetic, put on the stream like a kernel.
std::unique_ptr<ProductLibrary> MakeEmulatedProductLibrary(const EmulatedLibrary& options);

}  // namespace refrain::kernels::cuda::emulated

#endif  // REFRAIN_KERNELS_CUDA_EMULATED_EMULATED_PRODUCT_LIBRARY_H_
