// Products of few rows on the emulated device, bit for bit in the order that the kernel promises.

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "kernels/cuda/gemm.h"
#include "tests/kernels/cuda/device_arrays.h"

namespace refrain::kernels::cuda {
namespace {

constexpr int64_t kOut = 37;

struct Product {
  int64_t rows, cols;
  std::vector<float> x;       // [rows, cols]
  std::vector<float> weight;  // [kOut, cols]
};

Product RandomProduct(int64_t rows, int64_t cols) {
  std::mt19937 random(static_cast<uint32_t>(rows * 1000 + cols));
  std::normal_distribution<float> normal;
  Product product{rows, cols, {}, {}};
  for (int64_t i = 0; i < rows * cols; ++i) product.x.push_back(normal(random));
  for (int64_t i = 0; i < kOut * cols; ++i) product.weight.push_back(normal(random));
  return product;
}

// Lane l sums elements 8 l to 8 l + 7 of every 256, then lanes 16 apart are added, 8 apart, ...
float InOrder(const float* x, const float* w, int64_t cols) {
  float lanes[32] = {};
  for (int64_t k = 0; k < cols; ++k) {
    float& sum = lanes[k % 256 / 8];
    sum = std::fma(x[k], w[k], sum);
  }
  for (int half = 16; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

// x begins `shift` elements behind a multiple of 16 bytes, its rows are `stride` apart. Elements
// that are not the matrix's are NaN.
std::vector<float> Multiply(const Product& product, int64_t shift, int64_t stride) {
  DeviceArrays device;
  std::vector<float> x(static_cast<size_t>(shift + product.rows * stride), NAN);
  for (int64_t row = 0; row < product.rows; ++row) {
    for (int64_t k = 0; k < product.cols; ++k) {
      x[shift + row * stride + k] = product.x[row * product.cols + k];
    }
  }
  GemmLaunch args;
  args.weight = LayOut(DType::kF32, kOut, product.cols);
  std::vector<std::byte> weight(args.weight.row_bytes * kOut);
  for (int64_t n = 0; n < kOut; ++n) {
    RepackRow(args.weight, reinterpret_cast<const std::byte*>(&product.weight[n * product.cols]),
              weight.data() + n * args.weight.row_bytes);
  }
  args.weight.data = device.Upload(weight);
  args.rows = product.rows;
  args.x = {device.Upload(x) + shift, stride};
  const std::vector<float> out(product.rows * kOut);
  args.out = {device.Upload(out), kOut};
  LaunchGemm(device.stream(), GemmKernel::kFma, args);
  return device.Download(args.out.data, out.size());
}

TEST(GemmFmaTest, EveryShapeAndPlaceSumsInOneOrder) {
  for (const int64_t cols : {7, 256, 300, 521}) {
    for (const int64_t rows : {1, 2, 3, 4, 5, 9}) {
      const Product product = RandomProduct(rows, cols);
      std::vector<float> want;
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t n = 0; n < kOut; ++n) {
          want.push_back(InOrder(&product.x[row * cols], &product.weight[n * cols], cols));
        }
      }
      const int64_t stride = (cols + 3) / 4 * 4;
      EXPECT_EQ(Multiply(product, 0, stride), want) << rows << " rows of " << cols;
      EXPECT_EQ(Multiply(product, 0, stride + 1), want) << rows << " rows of " << cols;
      EXPECT_EQ(Multiply(product, 2, stride), want) << rows << " rows of " << cols;
    }
  }
}

}  // namespace
}  // namespace refrain::kernels::cuda
