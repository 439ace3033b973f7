// Products whose k is shared out among blocks, on the emulated device.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "kernels/cuda/gemm.h"
#include "kernels/cuda/round_rows.h"
#include "kernels/reference/dequantize.h"
#include "kernels/reference/half_float.h"
#include "tests/kernels/cuda/device_arrays.h"

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
  DeviceArrays device;
  GemmLaunch args;
  args.weight.dtype = DType::kF16;
  args.weight.rows = kOut;
  args.weight.cols = kCols;
  args.weight.row_bytes = kCols * 2;
  args.weight.data = reinterpret_cast<const std::byte*>(device.Upload(product.weight));
  args.rows = kRows;
  args.x = {device.Upload(product.x), kCols};
  args.out = {device.Upload(product.out), kOut};
  args.accumulate = accumulate;
  args.splits = splits;
  const std::vector<float> room(static_cast<size_t>(splits * kRows * kOut), NAN);
  args.split_sums = device.Upload(room);
  const std::vector<uint16_t> room_for_x(RoundedBytes(kRows, kCols) / sizeof(uint16_t), 0x7fff);
  auto* const rounded = reinterpret_cast<std::byte*>(device.Upload(room_for_x));
  LaunchRoundRows(device.stream(),
                  {DType::kF16, kRows, kCols, args.x, rounded, RoundedStride(kCols)});
  args.rounded_x = rounded;
  LaunchGemm(device.stream(), GemmKernel::kTile, args);
  return device.Download(args.out.data, product.out.size());
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

GemmLaunch Shape(int64_t rows, int64_t n, int64_t k, DType dtype = DType::kF16) {
  GemmLaunch args;
  args.weight.dtype = dtype;
  args.rows = rows;
  args.weight.rows = n;
  args.weight.cols = k;
  return args;
}

TEST(GemmSplitsTest, FewTilesAreSplitUntilTheDeviceIsBusy) {
  EXPECT_EQ(ChooseSplits(Shape(32, 4096, 14336), 132), 8);  // 64 tiles, at most 8 splits
  EXPECT_EQ(ChooseSplits(Shape(32, 1024, 2048), 132), 4);   // 16 tiles; no less than 8 steps each
  EXPECT_EQ(ChooseSplits(Shape(16, 1024, 2048), 132), 8);   // a small tile: no less than 4
  EXPECT_EQ(ChooseSplits(Shape(16, 1024, 1024), 132), 4);
  EXPECT_EQ(ChooseSplits(Shape(32, 12288, 4096), 132), 3);  // 192 tiles: 4 * 132 blocks, rounded up
  EXPECT_EQ(ChooseSplits(Shape(32, 12288, 4096, DType::kQ4_K), 132), 5);  // 6 * 132
  EXPECT_EQ(ChooseSplits(Shape(32, 28672, 4096), 132), 2);
  EXPECT_EQ(ChooseSplits(Shape(32, 128256, 4096), 132), 1);  // enough tiles
  EXPECT_EQ(ChooseSplits(Shape(512, 4096, 4096), 132), 1);
  EXPECT_EQ(ChooseSplits(Shape(8, 64, 64), 132), 1);
}

TEST(GemmSplitsTest, TheMostSumsAreThoseOfTheWorstNumberOfRows) {
  const auto most = [](int64_t n, int64_t k, int64_t rows, DType dtype = DType::kF16) {
    return MostSplitSumBytes(Shape(0, n, k, dtype).weight, rows, 132);
  };
  EXPECT_EQ(most(4096, 14336, 512), 3u * 256 * 4096 * 4);
  EXPECT_EQ(most(28672, 4096, 512), 2u * 64 * 28672 * 4);  // behind 64 rows there are tiles enough
  EXPECT_EQ(most(28672, 4096, 20), 2u * 20 * 28672 * 4);
  EXPECT_EQ(most(4096, 14336, 4), 0u);  // products of few rows are not split
  EXPECT_EQ(most(128256, 4096, 512), 0u);
  EXPECT_EQ(most(4096, 14336, 512, DType::kF32), 0u);
}

}  // namespace
}  // namespace refrain::kernels::cuda
