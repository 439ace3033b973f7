// Rough products by AMX tiles of bytes: emulated, and those of the processor where it has them.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/quantized_matrix.h"
#include "kernels/cpu/search_copy.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/tile_rows_memory.h"
#include "tests/kernels/cpu/quantized_blocks.h"
#include "tests/kernels/cpu/quantized_emulated_kernels.h"

namespace refrain::kernels::cpu {
namespace {

// Rows of digits as ActivationBuffer keeps them.
struct Rows {
  Rows(const TileKernels& kernels, const std::vector<float>& x, int64_t k)
      : rows(static_cast<int64_t>(x.size()) / k), scales(rows) {
    // What was there before must not matter.
    memory.Resize(rows, 40 * k, /*exact=*/true);
    for (int64_t row = 0; row < rows; ++row) memory.SetExact(row);
    for (int64_t row = 0; row < rows; ++row) {
      std::fill_n(memory.high(row), kTileK, uint16_t{0x5555});
      std::fill_n(memory.low(row), kTileK, uint16_t{0x5555});
    }
    memory.Resize(rows, k / 2, /*exact=*/true);
    for (int64_t row = 0; row < rows; ++row) memory.SetExact(row);
    for (int64_t row = 0; row < rows; ++row) {
      kernels.pack_bytes(x.data() + row * k, k, High(row), Low(row), &scales[row]);
    }
  }

  int8_t* High(int64_t row) { return reinterpret_cast<int8_t*>(memory.high(row)); }
  int8_t* Low(int64_t row) { return reinterpret_cast<int8_t*>(memory.low(row)); }
  double Element(int64_t row, int64_t k) {
    const int64_t at = k / kByteTileK * (kTileRows * kByteTileK) + k % kByteTileK;
    return scales[row].scale * (256.0 * High(row)[at] + Low(row)[at]);
  }
  ByteRows view() { return {rows, memory.view().steps, High(0), Low(0), scales.data()}; }

  int64_t rows;
  TileRowsMemory memory;
  std::vector<ByteRowScale> scales;
};

class ByteTilesTest : public testing::Test {
 protected:
  void SetUp() override {
    if (DetectIsa() < Isa::kAvx512Vnni) GTEST_SKIP() << "needs AVX-512 VNNI";
    TakeQuantizedTileLog();
  }
  void TearDown() override {
    const EmulatedTileLog log = TakeQuantizedTileLog();
    EXPECT_EQ(log.violations, 0) << log.violation;
    EXPECT_FALSE(log.in_use);
  }

  static std::vector<const TileKernels*> Kernels() {
    std::vector<const TileKernels*> kernels = {EmulatedAmxQuantizedKernels().tiles};
    if (DetectIsa() == Isa::kAmx) kernels.push_back(QuantizedKernelsFor(Isa::kAmx).tiles);
    return kernels;
  }

  SearchCopy Copy(const std::vector<float>& w, int64_t k) {
    const int64_t n = static_cast<int64_t>(w.size()) / k;
    ProductBounds exact{std::vector<float>(n), 7};
    for (int64_t i = 0; i < n; ++i) exact.norms[i] = static_cast<float>(Length(&w[i * k], k));
    auto copy = SearchCopy::Make(
        n, k, [&](int64_t i, float* out) { std::copy_n(&w[i * k], k, out); }, exact, device_,
        pool_);
    EXPECT_TRUE(copy.ok()) << copy.status();
    return *std::move(copy);
  }
  static double Length(const float* x, int64_t k) {
    double squares = 0;
    for (int64_t i = 0; i < k; ++i) squares += double{x[i]} * x[i];
    return std::sqrt(squares);
  }
  // The weight that `panels` has at (i, k).
  static double Weight(const BytePanels& panels, int64_t i, int64_t k) {
    const int64_t step = i / kTileRows * panels.steps + k / kByteTileK;
    const uint8_t byte =
        panels.data[step * 1024 + k % kByteTileK / 4 * 64 + i % kTileRows * 4 + k % 4];
    return double{panels.scales[i]} * (byte - 128);
  }

  CpuDevice device_;
  ThreadPool pool_{2};
};

TEST_F(ByteTilesTest, DigitsAreTheRowToHalfAUnit) {
  for (const TileKernels* kernels : Kernels()) {
    for (const int64_t k : {32, 64, 96, 576}) {
      std::vector<float> x = RandomFloats(20 * k, static_cast<uint32_t>(k));
      for (int64_t i = 0; i < k; ++i) x[i] = 0;  // row 0
      x[k + 3] = 1000;                           // far larger than the others
      for (int64_t i = 0; i < k; ++i) x[2 * k + i] *= 1e-35f;
      for (int64_t i = 0; i < k; ++i) x[3 * k + i] *= 1e30f;
      for (int64_t i = 0; i < k; ++i) x[4 * k + i] = i % 2 == 0 ? 3.0f : -3.0f;
      Rows rows(*kernels, x, k);
      for (int64_t row = 0; row < 20; ++row) {
        float most = 0;
        for (int64_t i = 0; i < k; ++i) most = std::max(most, std::fabs(x[row * k + i]));
        int64_t high = 0, low = 0;
        const double unit = most < 1e-30f ? 2 * most : most / 32512.0 * 1.01;  // floats round, too
        for (int64_t i = 0; i < k; ++i) {
          ASSERT_LE(std::fabs(rows.Element(row, i) - x[row * k + i]), unit / 2) << row << ", " << i;
        }
        for (int64_t step = 0; step < rows.view().steps; ++step) {
          for (int64_t i = 0; i < kByteTileK; ++i) {
            high += rows.High(row)[step * 1024 + i];
            low += rows.Low(row)[step * 1024 + i];
          }
        }
        EXPECT_EQ(rows.scales[row].high_zero, -128 * high) << "k " << k << " row " << row;
        EXPECT_EQ(rows.scales[row].low_zero, -128 * low);
      }
    }
    for (const float wild :
         {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
          std::numeric_limits<float>::quiet_NaN()}) {
      for (const int64_t at : {0, 40, 95}) {
        std::vector<float> x = RandomFloats(2 * 96, 1);
        x[at] = wild;
        Rows rows(*kernels, x, 96);
        EXPECT_FALSE(std::isfinite(rows.scales[0].scale)) << wild << " at " << at;
        EXPECT_TRUE(std::isfinite(rows.scales[1].scale));
      }
    }
  }
}

TEST_F(ByteTilesTest, ACopyTellsHowFarItIsOff) {
  constexpr int64_t kN = 50, kK = 96;
  std::vector<float> w = RandomFloats(kN * kK, 3);
  std::fill_n(w.begin() + 4 * kK, kK, 0.0f);
  w[5 * kK + 7] = 300;
  std::fill_n(w.begin() + 6 * kK, kK, 1e-42f);
  const SearchCopy copy = Copy(w, kK);
  EXPECT_EQ(copy.bounds().terms, 7);
  for (int64_t i = 0; i < kN; ++i) {
    double squares = 0;
    for (int64_t k = 0; k < kK; ++k) {
      const double off = Weight(copy.panels(), i, k) - w[i * kK + k];
      squares += off * off;
    }
    const double length = Length(&w[i * kK], kK);
    EXPECT_GE(copy.bounds().norms[i], std::sqrt(squares) + kByteShare * length) << i;
    EXPECT_LE(copy.bounds().norms[i], (std::sqrt(squares) + kByteShare * length) * 1.01) << i;
    if (i > 6) {
      EXPECT_LT(std::sqrt(squares), 0.02 * length) << i;
    }
  }
}

TEST_F(ByteTilesTest, ProductsAreThoseOfTheDigits) {
  for (const TileKernels* kernels : Kernels()) {
    for (const int64_t k : {32, 96, 640}) {
      for (const int64_t n : {1, 16, 17, 50}) {
        for (const int64_t num_rows : {1, 16, 31, 70}) {
          SCOPED_TRACE(testing::Message() << "k " << k << " n " << n << " rows " << num_rows);
          const SearchCopy copy = Copy(RandomFloats(n * k, 4), k);
          Rows rows(*kernels, RandomFloats(num_rows * k, 5), k);
          const int64_t stride = n + 3;
          std::vector<float> out((num_rows + 1) * stride, -7.0f);
          kernels->bytes(copy.panels(), rows.view(),
                         {0, num_rows, 0, (n + 15) / 16, n, out.data(), stride, false});
          for (int64_t row = 0; row <= num_rows; ++row) {
            for (int64_t column = 0; column < stride; ++column) {
              const float got = out[row * stride + column];
              if (row == num_rows || column >= n) {
                ASSERT_EQ(got, -7.0f) << row << ", " << column;
                continue;
              }
              double want = 0, size = 0;
              for (int64_t i = 0; i < k; ++i) {
                const double term = rows.Element(row, i) * Weight(copy.panels(), column, i);
                want += term;
                size += std::fabs(term);
              }
              ASSERT_LE(std::fabs(got - want), size * 6 * 0x1p-24) << row << ", " << column;
            }
          }
        }
      }
    }
  }
}

// Threads take any groups of rows and any tiles.
TEST_F(ByteTilesTest, AnyCutGivesTheSameBits) {
  constexpr int64_t kN = 70, kK = 160, kRows = 45;
  const SearchCopy copy = Copy(RandomFloats(kN * kK, 6), kK);
  std::mt19937 random(7);
  for (const TileKernels* kernels : Kernels()) {
    Rows rows(*kernels, RandomFloats(kRows * kK, 8), kK);
    std::vector<float> whole(kRows * kN);
    kernels->bytes(copy.panels(), rows.view(), {0, kRows, 0, 5, kN, whole.data(), kN, false});
    for (int i = 0; i < 10; ++i) {
      const int64_t group = random() % 3, tile = random() % 5;
      const int64_t row_end =
          std::min<int64_t>(kRows, (group + 1 + random() % (3 - group)) * kTileRows);
      const int64_t tile_end = tile + 1 + random() % (5 - tile);
      std::vector<float> part(kRows * kN, -7.0f);
      kernels->bytes(copy.panels(), rows.view(),
                     {group * kTileRows, row_end, tile, tile_end, kN, part.data(), kN, false});
      for (int64_t j = 0; j < kRows * kN; ++j) {
        const bool inside = j / kN >= group * kTileRows && j / kN < row_end &&
                            j % kN >= tile * kTileRows && j % kN < tile_end * kTileRows;
        ASSERT_EQ(part[j], inside ? whole[j] : -7.0f) << j / kN << ", " << j % kN;
      }
    }
  }
}

}  // namespace
}  // namespace refrain::kernels::cpu
