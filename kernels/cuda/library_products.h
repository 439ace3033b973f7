#ifndef REFRAIN_KERNELS_CUDA_LIBRARY_PRODUCTS_H_
#define REFRAIN_KERNELS_CUDA_LIBRARY_PRODUCTS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/product_library.h"
#include "kernels/cuda/rounded_x.h"
#include "kernels/cuda/runtime.h"
#include "kernels/device.h"

namespace refrain::kernels::cuda {

// Which products a library computes instead of our own kernels: those where it was faster on this
// very card, but for the few rows of kFma. Of quantised weights it is given a copy in f16, made
// anew for each product, which pays where the rows are many. Every shape of a weight is tried once,
// when the first of that shape is loaded, at several numbers of rows: our kernel and the library's
// first choices, with nothing of it left in the L2 cache, as other layers' weights leave it. The
// library's results are compared with our kernel's then; a library that computes something else is
// given up.
//
// Its sums are in an order of its own, which may differ with the number of rows: not for
// `reproducible`.
//
// Threads: those of the back end. Failure: Prepare's is the device's own, after which nothing runs;
// what the library refuses, and memory that is not there for it, leave our kernels in place. Want
// of memory passes, so the next product is asked for again; what was refused for another reason,
// which may be want of memory too, after a while.
class LibraryProducts {
 public:
  struct Options {
    // Tried at, ascending, each of so many rows that ours would be kTile; the choice at one holds
    // for fewer rows down to the next below.
    std::vector<int64_t> rows = {8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096};
    int64_t most_rows = 0;               // of a step: no size beyond it is tried; 0: not known
    int64_t least_rows_quantized = 128;  // fewer are not tried, and ours
    // The library is to take less than this part of our kernel's time: a choice within the noise
    // stays ours.
    float worth_it = 0.97f;
    int rounds = 5;      // medians of
    int algorithms = 4;  // the library's first
    size_t workspace_bytes = size_t{32} << 20;
    size_t most_out_bytes = size_t{256} << 20;      // more rows are not tried
    size_t most_widened_bytes = size_t{256} << 20;  // larger quantised weights are not tried
    // A shape that the library refused is asked of it again after so many products of it.
    int refused_products = 1024;
    // Told of the first product that was refused, from the thread that asked for it. May be empty.
    std::function<void(std::string_view)> warn;
  };
  // What came of a shape at a number of rows.
  struct Choice {
    DType dtype = DType::kF16;
    int64_t n = 0, k = 0;
    int64_t rows = 0, least_rows = 0;           // it holds from least_rows to rows
    float own_ms = 0, library_ms = 0;           // 0: it has none
    std::optional<ProductAlgorithm> algorithm;  // empty: ours

    bool IsOf(const DeviceMatrix& weight) const;
  };
  // Puts a product by our own kernels on the stream.
  using OwnProduct = std::function<absl::Status(const GemmLaunch&)>;

  // `device`'s copies are on `stream`. All outlive it.
  LibraryProducts(std::unique_ptr<ProductLibrary> library, Runtime& runtime, Stream& stream,
                  Device& device, RoundedX& rounded_x, Options options);

  // Tries the weight's shape, if that has not been done.
  absl::Status Prepare(const DeviceMatrix& weight, const OwnProduct& own);

  // Puts the product on the stream if it is the library's; false: it is for our kernels.
  bool Multiply(const GemmLaunch& args);

  std::string_view name() const { return library_->name(); }
  // For a log: how many of the sizes tried are the library's.
  std::string Summary() const;
  std::span<const Choice> choices() const { return choices_; }
  // Why the library is not used any more; "" where it is.
  const std::string& fault() const { return fault_; }

 private:
  struct ShapeKey {
    DType dtype;
    int64_t n, k;
    friend bool operator==(const ShapeKey&, const ShapeKey&) = default;
  };
  // Whether the algorithm of a choice, by its index, computes a shape.
  struct Question {
    ProductShape shape;
    ptrdiff_t choice;
    friend bool operator==(const Question&, const Question&) = default;
  };
  struct QuestionHash {
    size_t operator()(const Question& question) const;
  };
  struct Answer {
    bool computes = false;
    int to_pass = 0;  // products that are ours all the same, for the library refused one
  };
  struct Trial;

  absl::Status TryAll(const DeviceMatrix& weight, const OwnProduct& own);
  absl::Status MakeTrial(const DeviceMatrix& weight, int64_t most_rows, Trial* trial);
  absl::Status Try(const DeviceMatrix& weight, int64_t rows, const Trial& trial,
                   const OwnProduct& own);
  absl::StatusOr<float> MedianMs(const Trial& trial, const std::function<absl::Status()>& product);
  // What is wrong with the library's product beside ours; "" where nothing is.
  absl::StatusOr<std::string> Compare(const DeviceMatrix& weight, int64_t rows, bool accumulate,
                                      const Trial& trial, const ProductAlgorithm& algorithm,
                                      const OwnProduct& own);
  void KeepWhatIsNeeded();
  const Choice* ChoiceOrNull(const GemmLaunch& args) const;
  // The answer, asked of the library once, and valid until the next call.
  Answer& Ask(const ProductShape& shape, const Choice& choice);
  void Warn(const absl::Status& refusal);
  absl::Status Put(const GemmLaunch& args, const ProductShape& shape,
                   const ProductAlgorithm& algorithm);
  absl::Status PutAnew(const GemmLaunch& args, const ProductShape& shape,
                       const ProductAlgorithm& algorithm);

  const std::unique_ptr<ProductLibrary> library_;
  Runtime& runtime_;
  Stream& stream_;
  Device& device_;
  RoundedX& rounded_x_;
  const Options options_;
  std::string fault_;
  std::vector<ShapeKey> tried_;
  std::vector<Choice> choices_;
  std::unordered_map<Question, Answer, QuestionHash> asked_;  // the last ones
  bool warned_ = false;
  DeviceBuffer workspace_;
  DeviceBuffer widened_;  // a quantised weight in f16
};

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_LIBRARY_PRODUCTS_H_
