#include "kernels/cuda/emulated/emulated_product_library.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include "kernels/cuda/emulated/emulated_queue.h"
#include "kernels/reference/dequantize.h"

namespace refrain::kernels::cuda::emulated {
namespace {

constexpr double kSlowAlgorithmSeconds = 20e-3;

class Library final : public ProductLibrary {
 public:
  explicit Library(const EmulatedLibrary& options) : options_(options) {}

  std::string_view name() const override { return "emulated library 1.0"; }

  absl::StatusOr<std::vector<ProductAlgorithm>> Find(const ProductShape& shape, size_t,
                                                     int most) override {
    std::vector<ProductAlgorithm> found;
    for (int i = *options_.skips_first ? 1 : 0; i < std::min(most, options_.algorithms); ++i) {
      ProductAlgorithm algorithm;
      algorithm.bytes[0] = static_cast<std::byte>(i);
      if (Computes(shape, algorithm, 0)) found.push_back(algorithm);
    }
    return found;
  }

  bool Computes(const ProductShape& shape, const ProductAlgorithm& algorithm, size_t) override {
    const bool second = algorithm.bytes[0] != std::byte{0};
    return shape.rows <= options_.computes_rows &&
           (!second || shape.rows <= options_.computes_second_rows);
  }

  absl::Status Multiply(const ProductShape& shape, const ProductAlgorithm& algorithm,
                        const ProductOperands& operands, size_t, Stream& stream) override {
    if (*options_.refuses_now) {
      return absl::Status(options_.refusal, "Multiply: the library refuses");
    }
    ++*options_.products;
    const double seconds =
        options_.slowness + (algorithm.bytes[0] != std::byte{0} ? kSlowAlgorithmSeconds : 0);
    static_cast<Queue*>(stream.native())
        ->Put({.run = [this, shape, operands, seconds]() -> std::optional<std::string> {
          std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
          Run(shape, operands);
          return std::nullopt;
        }});
    return absl::OkStatus();
  }

 private:
  static float Element(DType dtype, const std::byte* matrix, int64_t index) {
    uint16_t bits;
    std::memcpy(&bits, matrix + 2 * index, sizeof(bits));
    return dtype == DType::kBF16 ? Bf16ToF32(bits) : F16ToF32(bits);
  }

  static std::vector<float> Elements(DType dtype, const std::byte* matrix, int64_t rows,
                                     int64_t cols, int64_t stride) {
    std::vector<float> elements;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < cols; ++i) {
        elements.push_back(Element(dtype, matrix, row * stride + i));
      }
    }
    return elements;
  }

  void Run(const ProductShape& shape, const ProductOperands& operands) const {
    const auto x = Elements(shape.dtype, operands.x, shape.rows, shape.k, shape.x_stride);
    const auto w = Elements(shape.dtype, operands.weight, shape.n, shape.k, shape.weight_stride);
    for (int64_t row = 0; row < shape.rows; ++row) {
      for (int64_t n = 0; n < shape.n; ++n) {
        double sum = 0;
        for (int64_t k = 0; k < shape.k; ++k) {
          sum += static_cast<double>(x[row * shape.k + k]) * w[n * shape.k + k];
        }
        float& out = operands.out[row * shape.out_stride + n];
        if (shape.accumulate) sum += out;
        if (row == shape.rows - 1 && n == shape.n / 2) Spoil(shape.accumulate, out, &sum);
        out = static_cast<float>(sum);
      }
    }
  }

  void Spoil(bool accumulates, float before, double* sum) const {
    switch (options_.fault) {
      case EmulatedLibrary::Fault::kNone:
        break;
      case EmulatedLibrary::Fault::kWrongSum:
        *sum += 1;
        break;
      case EmulatedLibrary::Fault::kNaN:
        *sum = NAN;
        break;
      case EmulatedLibrary::Fault::kUnwritten:
        *sum = before;
        break;
      case EmulatedLibrary::Fault::kWrongAccumulation:
        if (accumulates) *sum += 1;
        break;
    }
  }

  const EmulatedLibrary options_;
};

}  // namespace

std::unique_ptr<ProductLibrary> MakeEmulatedProductLibrary(const EmulatedLibrary& options) {
  return std::make_unique<Library>(options);
}

}  // namespace refrain::kernels::cuda::emulated
