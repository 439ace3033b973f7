// Products whose k is shared out among blocks, on the emulated device.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "kernels/cuda/emulated/emulated_runtime.h"
#include "kernels/cuda/gemm.h"
#include "kernels/reference/dequantize.h"
#include "kernels/reference/half_float.h"

namespace refrain::kernels::cuda {
namespace {

constexpr int64_t kRows = 20, kOut = 70, kCols = 600;

struct Product {
  std::vector<float> x, out;
  std::vector<uint16_t> weight;  // f16
};

Product RandomProduct() {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  Product product;
  for (int64_t i = 0; i < kRows * kCols; ++i) product.x.push_back(normal(random));
  for (int64_t i = 0; i < kOut * kCols; ++i) product.weight.push_back(F32ToF16(normal(random)));
  for (int64_t i = 0; i < kRows * kOut; ++i) product.out.push_back(normal(random));
  return product;
}

std::vector<float> Multiply(const Product& product, int splits, bool accumulate) {
  const auto runtime = emulated::MakeEmulatedRuntime({});
  const auto stream = *runtime->CreateStream(StreamPriority::kNormal);
  std::vector<std::byte*> blocks;
  const auto upload = [&](const void* data, size_t bytes) {
    blocks.push_back(*runtime->AllocateDevice(bytes));
    EXPECT_TRUE(
        runtime->Copy(blocks.back(), static_cast<const std::byte*>(data), bytes, *stream).ok());
    return blocks.back();
  };
  GemmLaunch args;
  args.weight.dtype = DType::kF16;
  args.weight.rows = kOut;
  args.weight.cols = kCols;
  args.weight.row_bytes = kCols * 2;
  args.weight.data = upload(product.weight.data(), product.weight.size() * 2);
  args.rows = kRows;
  args.x = {reinterpret_cast<float*>(upload(product.x.data(), product.x.size() * 4)), kCols};
  args.out = {reinterpret_cast<float*>(upload(product.out.data(), product.out.size() * 4)), kOut};
  args.accumulate = accumulate;
  args.splits = splits;
  const std::vector<float> room(static_cast<size_t>(splits * kRows * kOut), NAN);
  args.split_sums = reinterpret_cast<float*>(upload(room.data(), room.size() * 4));
  LaunchGemm(*stream, GemmKernel::kTile, args);
  std::vector<float> out(kRows * kOut);
  EXPECT_TRUE(runtime
                  ->Copy(reinterpret_cast<std::byte*>(out.data()),
                         reinterpret_cast<const std::byte*>(args.out.data), out.size() * 4, *stream)
                  .ok());
  for (std::byte* block : blocks) runtime->FreeDevice(block);
  return out;
}

TEST(GemmSplitsTest, SplitProductsAreTheWholeOnes) {
  const Product product = RandomProduct();
  for (const bool accumulate : {false, true}) {
    for (const int splits : {1, 2, 3, 5, 10}) {
      const std::vector<float> got = Multiply(product, splits, accumulate);
      for (int64_t row = 0; row < kRows; ++row) {
        for (int64_t n = 0; n < kOut; ++n) {
          double want = accumulate ? product.out[row * kOut + n] : 0;
          for (int64_t k = 0; k < kCols; ++k) {
            want += static_cast<double>(product.x[row * kCols + k]) *
                    F16ToF32(product.weight[n * kCols + k]);
          }
          ASSERT_NEAR(got[row * kOut + n], want, 0.05) << splits << " splits, " << row << ", " << n;
        }
      }
    }
  }
}

GemmLaunch Shape(int64_t rows, int64_t n, int64_t k) {
  GemmLaunch args;
  args.rows = rows;
  args.weight.rows = n;
  args.weight.cols = k;
  return args;
}

TEST(GemmSplitsTest, FewTilesAreSplitUntilTheDeviceIsBusy) {
  EXPECT_EQ(ChooseSplits(Shape(32, 4096, 4096), 132), 4);  // 64 tiles
  EXPECT_EQ(ChooseSplits(Shape(32, 4096, 14336), 132), 4);
  EXPECT_EQ(ChooseSplits(Shape(32, 1024, 4096), 132), 8);   // 16 tiles, 64 steps
  EXPECT_EQ(ChooseSplits(Shape(32, 1024, 2048), 132), 4);   // no less than 8 steps each
  EXPECT_EQ(ChooseSplits(Shape(32, 28672, 4096), 132), 1);  // enough tiles
  EXPECT_EQ(ChooseSplits(Shape(512, 4096, 4096), 132), 1);
  EXPECT_EQ(ChooseSplits(Shape(8, 64, 64), 132), 1);
}

}  // namespace
}  // namespace refrain::kernels::cuda
