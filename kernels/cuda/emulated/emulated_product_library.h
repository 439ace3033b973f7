#ifndef REFRAIN_KERNELS_CUDA_EMULATED_EMULATED_PRODUCT_LIBRARY_H_
#define REFRAIN_KERNELS_CUDA_EMULATED_EMULATED_PRODUCT_LIBRARY_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "kernels/cuda/product_library.h"

namespace refrain::kernels::cuda::emulated {

// A library of the emulated device, and what is wrong with it.
struct EmulatedLibrary {
  // What it does to one result in the middle of the last row: a sum that lacks a term, one that is
  // no number, none at all, one that only accumulates wrong.
  enum class Fault : uint8_t { kNone, kWrongSum, kNaN, kUnwritten, kWrongAccumulation };

  bool present = false;
  Fault fault = Fault::kNone;
  int algorithms = 2;                      // that Find has; the second is slow
  double slowness = 0;                     // seconds that a product takes beside its arithmetic
  int64_t computes_rows = 1 << 30;         // of no more rows is any algorithm
  int64_t computes_second_rows = 1 << 30;  // nor the second of these
  std::shared_ptr<bool> refuses_now = std::make_shared<bool>(false);  // Multiply fails
  absl::StatusCode refusal = absl::StatusCode::kInternal;             // with this code
  std::shared_ptr<bool> skips_first = std::make_shared<bool>(false);  // Find has it not
  std::shared_ptr<int64_t> products = std::make_shared<int64_t>(0);   // that were put on a stream
};

// Products in double arithmetic, put on the stream like a kernel.
std::unique_ptr<ProductLibrary> MakeEmulatedProductLibrary(const EmulatedLibrary& options);

}  // namespace refrain::kernels::cuda::emulated

#endif  // REFRAIN_KERNELS_CUDA_EMULATED_EMULATED_PRODUCT_LIBRARY_H_
