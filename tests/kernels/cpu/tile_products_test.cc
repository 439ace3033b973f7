// Products of quantised weights by AMX tiles of bf16: emulated, and those of the processor where it
// has them.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/quantized_kernels.h"
#include "kernels/cpu/quantized_matrix.h"
#include "kernels/cpu/quantized_packing.h"
#include "kernels/cpu/tile_kernels.h"
#include "kernels/cpu/tile_rows_memory.h"
#include "kernels/reference/dequantize.h"
#include "kernels/reference/half_float.h"
#include "tests/kernels/cpu/quantized_blocks.h"
#include "tests/kernels/cpu/quantized_emulated_kernels.h"

namespace refrain::kernels::cpu {
namespace {

struct Type {
  DType dtype;
  MultiplyTilesFn TileKernels::*function;
};

constexpr Type kTypes[] = {
    {DType::kQ8_0, &TileKernels::q8_0}, {DType::kQ4_0, &TileKernels::q4_0},
    {DType::kQ4_1, &TileKernels::q4_1}, {DType::kQ5_0, &TileKernels::q5_0},
    {DType::kQ5_1, &TileKernels::q5_1}, {DType::kQ4_K, &TileKernels::q4_k},
    {DType::kQ5_K, &TileKernels::q5_k}, {DType::kQ6_K, &TileKernels::q6_k},
};

float Bf16(float value) { return Bf16ToF32(F32ToBf16(value)); }

// A random weight in the packed layout.
struct Weight {
  Weight(DType dtype, int64_t n, int64_t k, uint32_t seed) : values(n * k) {
    const QuantizedFormat format = FormatOf(dtype);
    const int64_t blocks = k / kBlockK;
    memory.resize(static_cast<size_t>((n + 15) / 16 * TileBytes(format, blocks)) + 64);
    auto* data =
        reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
    panels = {data, n, blocks, TileBytes(format, blocks), ScaleBytes(format, blocks)};
    const std::vector<std::byte> stored = RandomRows(dtype, n, k, seed);
    for (int64_t row = 0; row < n; ++row) {
      const std::byte* const from = stored.data() + row * *RowBytes(dtype, k);
      PackRow(dtype, from, blocks, static_cast<int>(row % 16), data + row / 16 * panels.tile_bytes);
      DequantizeRow(dtype, from, k, &values[row * k]);
    }
  }

  std::vector<uint8_t> memory;
  QuantizedPanels panels{};
  std::vector<float> values;  // [n, k]
};

// Random rows, of which every third group is coarse.
struct Rows {
  Rows(const TileKernels& kernels, int64_t rows, int64_t k, bool exact, uint32_t seed)
      : x(RandomFloats(rows * k, seed)) {
    memory.Resize(rows, k, exact);
    for (int64_t row = 0; row < rows && exact; ++row) {
      if (row / kTileRows % 3 != 1) memory.SetExact(row);
    }
    for (int64_t row = 0; row < rows; ++row) {
      kernels.pack_row(&x[row * k], k, memory.high(row), memory.low(row));
    }
  }

  bool exact(int64_t row) {
    return memory.view().exact != nullptr && memory.view().exact[row / kTileRows] != 0;
  }

  std::vector<float> x;  // [rows, k]
  TileRowsMemory memory;
};

class TileProductsTest : public testing::TestWithParam<Type> {
 protected:
  void SetUp() override {
    if (DetectIsa() < Isa::kAvx512Vnni) GTEST_SKIP() << "needs AVX-512 VNNI";
    TakeQuantizedTileLog();
  }

  // After every test: no tile instruction was used wrongly, and no tile was left in use.
  void TearDown() override {
    if (DetectIsa() < Isa::kAvx512Vnni) return;  // the log is compiled for it, too
    const EmulatedTileLog log = TakeQuantizedTileLog();
    EXPECT_EQ(log.violations, 0) << log.violation;
    EXPECT_FALSE(log.in_use);
  }

  int64_t unit() const { return Traits(GetParam().dtype).block_elements == 256 ? 256 : 32; }

  // Emulated tiles and, on a processor that has them, its own.
  static std::vector<const TileKernels*> Kernels() {
    std::vector<const TileKernels*> kernels = {EmulatedAmxQuantizedKernels().tiles};
    if (DetectIsa() == Isa::kAmx) kernels.push_back(QuantizedKernelsFor(Isa::kAmx).tiles);
    return kernels;
  }

  void Multiply(const TileKernels& kernels, const Weight& w, Rows& x,
                const TileRange& range) const {
    (kernels.*GetParam().function)(w.panels, x.memory.view(), range);
  }
};

// A frame around the products, and what they are added to.
std::vector<float> Frame(int64_t rows, int64_t stride) {
  std::vector<float> out((rows + 1) * stride);
  for (size_t i = 0; i < out.size(); ++i) out[i] = std::sin(static_cast<float>(i));
  return out;
}

// What coarse rows are multiplied with: the products of unit vectors.
TEST_P(TileProductsTest, WeightsAreRoundedAndNeitherGreaterNorSmaller) {
  for (const TileKernels* kernels : Kernels()) {
    const int64_t k = 3 * unit(), n = 50;
    const Weight w(GetParam().dtype, n, k, 1);
    Rows x(*kernels, k, k, /*exact=*/false, 2);
    for (int64_t row = 0; row < k; ++row) {
      std::vector<float> one(k, 0.0f);
      one[row] = 1;
      kernels->pack_row(one.data(), k, x.memory.high(row), nullptr);
    }
    std::vector<float> used(k * n);
    Multiply(*kernels, w, x, {0, k, 0, (n + 15) / 16, n, used.data(), n, false});
    double sum = 0, squares = 0;
    int64_t compared = 0;
    for (int64_t i = 0; i < k * n; ++i) {
      const float want = w.values[i % n * k + i / n];
      ASSERT_EQ(used[i], Bf16(used[i]));
      // The floats that are rounded may differ by their own rounding, 2^-16 of a scale.
      const float scale = std::fabs(want) + 1;
      ASSERT_LE(std::fabs(used[i] - want), std::fabs(want) * kWeightError + scale * 0x1p-14f)
          << i / n << ", " << i % n << ": " << used[i] << " of " << want;
      if (std::fabs(want) < 0.01f) continue;  // that rounding counts
      if (want == Bf16(want)) {
        ASSERT_EQ(used[i], want);
      }
      const double error = used[i] / double{want} - 1;
      sum += error;
      squares += error * error;
      ++compared;
    }
    // To nearest it would be 0 and 0.0017; cut off without being lifted -0.0028 and 0.0036.
    ASSERT_GT(compared, 1000);
    EXPECT_LT(std::fabs(sum / static_cast<double>(compared)), 5e-4);
    EXPECT_LT(std::sqrt(squares / static_cast<double>(compared)), 2e-3);
  }
}

TEST_P(TileProductsTest, AreThoseOfRoundedFactorsAndOfExactRowsTheTrueOnes) {
  int64_t exact_products = 0;
  for (const TileKernels* kernels : Kernels()) {
    for (const int64_t k : {unit(), 3 * unit(), (1280 / unit() + 1) * unit()}) {
      for (const int64_t n : {1, 16, 17, 50}) {
        for (const int64_t rows : {1, 16, 31, 70}) {
          SCOPED_TRACE(testing::Message() << "k " << k << " n " << n << " rows " << rows);
          const bool exact = (rows + n) % 3 != 0, accumulate = (rows + n) % 2 == 0;
          const Weight w(GetParam().dtype, n, k, 1);
          Rows x(*kernels, rows, k, exact, 2);
          const int64_t stride = n + 3;
          const std::vector<float> before = Frame(rows, stride);
          std::vector<float> out = before;
          Multiply(*kernels, w, x, {0, rows, 0, (n + 15) / 16, n, out.data(), stride, accumulate});
          for (int64_t i = 0; i < (rows + 1) * stride; ++i) {
            const int64_t row = i / stride, column = i % stride;
            if (row == rows || column >= n) {
              ASSERT_EQ(out[i], before[i]) << row << ", " << column;
              continue;
            }
            // All columns of some rows.
            if (row % 5 != 0 && row != rows - 1) continue;
            double want = accumulate ? before[i] : 0, size = std::fabs(want), squares = 0;
            for (int64_t j = 0; j < k; ++j) {
              const float a = x.x[row * k + j], b = w.values[column * k + j];
              const double term = double{x.exact(row) ? a : Bf16(a)} * b;
              want += term;
              size += std::fabs(term);
              squares += term * term;
            }
            // Sums of 32 bits. Of exact rows what is left of each factor is 2^-16 of it; weights of
            // the others are off by up to kWeightError, in either direction: six times what is
            // likely.
            double limit = size * static_cast<double>(k + 4) * 0x1p-24;
            limit += x.exact(row) ? size * 3 * 0x1p-16 : 6 * std::sqrt(squares / 3) * kWeightError;
            exact_products += x.exact(row);
            ASSERT_LE(std::fabs(out[i] - want), limit) << row << ", " << column << ": " << out[i];
          }
        }
      }
    }
  }
  EXPECT_GT(exact_products, 100);
}

// The emulation shows the kernels' logic, this that the processor agrees with the manual.
TEST_P(TileProductsTest, TheProcessorsBitsAreTheEmulations) {
  if (Kernels().size() == 1) GTEST_SKIP() << "needs AMX";
  const int64_t k = (640 / unit() + 1) * unit(), n = 70, rows = 45;
  const Weight w(GetParam().dtype, n, k, 3);
  std::vector<std::vector<float>> outs;
  for (const TileKernels* kernels : Kernels()) {
    Rows x(*kernels, rows, k, /*exact=*/true, 4);
    Multiply(*kernels, w, x, {0, rows, 0, 5, n, outs.emplace_back(Frame(rows, n)).data(), n, true});
  }
  EXPECT_EQ(std::memcmp(outs[0].data(), outs[1].data(), outs[0].size() * sizeof(float)), 0);
}

// Threads take any groups of rows and any tiles: the bits are those of one call.
TEST_P(TileProductsTest, AnyCutGivesTheSameBits) {
  const int64_t k = (640 / unit() + 1) * unit(), n = 70, rows = 45;
  const Weight w(GetParam().dtype, n, k, 5);
  std::mt19937 random(6);
  for (const TileKernels* kernels : Kernels()) {
    Rows x(*kernels, rows, k, /*exact=*/true, 7);
    std::vector<float> whole = Frame(rows, n);
    Multiply(*kernels, w, x, {0, rows, 0, 5, n, whole.data(), n, false});
    for (int i = 0; i < 10; ++i) {
      const int64_t group = random() % 3, tile = random() % 5;
      const int64_t group_end = group + 1 + random() % (3 - group);
      const int64_t tile_end = tile + 1 + random() % (5 - tile);
      const int64_t row_end = std::min(rows, group_end * kTileRows);
      const std::vector<float> before = Frame(rows, n);
      std::vector<float> part = before;
      Multiply(*kernels, w, x,
               {group * kTileRows, row_end, tile, tile_end, n, part.data(), n, false});
      for (int64_t j = 0; j < rows * n; ++j) {
        const bool inside = j / n >= group * kTileRows && j / n < row_end && j % n >= tile * 16 &&
                            j % n < tile_end * 16;
        ASSERT_EQ(part[j], inside ? whole[j] : before[j]) << j / n << ", " << j % n;
      }
    }
  }
}

// Sums that wait, between stretches of k for the next and between its blocks in the result, are as
// those that stay in tiles.
TEST_P(TileProductsTest, BlocksOfRowsAndOfKGiveTheBitsOfOne) {
  const int64_t k = (640 / unit() + 1) * unit(), n = 40, rows = 1100;
  const Weight w(GetParam().dtype, n, k, 11);
  for (const TileKernels* kernels : Kernels()) {
    for (const bool accumulate : {false, true}) {
      Rows x(*kernels, rows, k, /*exact=*/true, 12);
      std::vector<float> whole = Frame(rows, n), parts = whole;
      Multiply(*kernels, w, x, {0, rows, 0, 3, n, whole.data(), n, accumulate});
      for (int64_t row = 0; row < rows; row += kTileRows) {
        const int64_t row_end = std::min(rows, row + kTileRows);
        for (const auto& [tile, tile_end] : {std::pair{0, 2}, std::pair{2, 3}}) {
          Multiply(*kernels, w, x, {row, row_end, tile, tile_end, n, parts.data(), n, accumulate});
        }
      }
      EXPECT_EQ(std::memcmp(whole.data(), parts.data(), whole.size() * sizeof(float)), 0);
    }
  }
}

// Infinities and NaN go no further than the row they are in.
TEST_P(TileProductsTest, WhatIsNotFiniteStaysInItsRow) {
  const int64_t k = unit(), n = 16, rows = 20;
  const Weight w(GetParam().dtype, n, k, 8);
  for (const TileKernels* kernels : Kernels()) {
    Rows x(*kernels, rows, k, /*exact=*/true, 9);
    x.x[3 * k + 5] = NAN;
    x.x[17 * k] = INFINITY;
    for (const int64_t row : {3, 17}) {
      kernels->pack_row(&x.x[row * k], k, x.memory.high(row), x.memory.low(row));
    }
    std::vector<float> out = Frame(rows, n);
    Multiply(*kernels, w, x, {0, rows, 0, 1, n, out.data(), n, false});
    for (int64_t i = 0; i < rows * n; ++i) {
      const int64_t row = i / n;
      ASSERT_EQ(std::isfinite(out[i]), row != 3 && row != 17) << row;
    }
  }
}

// A weight that is not finite, whatever the bits of its NaN.
TEST_P(TileProductsTest, WeightsThatAreNotFiniteSpoilTheirColumn) {
  const int64_t k = unit(), n = 20, rows = 24;
  for (const TileKernels* kernels : Kernels()) {
    for (const uint8_t high_byte : {0x7f, 0xff}) {
      for (const bool exact : {false, true}) {
        const Weight w(GetParam().dtype, n, k, 8);
        auto* const data = const_cast<uint8_t*>(w.panels.data);
        data[2 * 3] = 0xff;  // d of column 3 in the first block: an f16 NaN
        data[2 * 3 + 1] = high_byte;
        Rows x(*kernels, rows, k, exact, 9);
        std::vector<float> out = Frame(rows, n);
        Multiply(*kernels, w, x, {0, rows, 0, 2, n, out.data(), n, false});
        for (int64_t i = 0; i < rows * n; ++i) ASSERT_EQ(std::isnan(out[i]), i % n == 3) << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, TileProductsTest, testing::ValuesIn(kTypes), [](const auto& info) {
  return std::string(Traits(info.param.dtype).name);
});

TEST(TileRowsMemoryTest, RowsLieInGroupsOnCacheLines) {
  TileRowsMemory memory;
  for (const int64_t rows : {1, 17, 40}) {
    memory.Resize(rows, /*k=*/65, /*exact=*/true);
    memory.SetExact(rows - 1);
    const TileRows view = memory.view();
    EXPECT_EQ(view.rows, rows);
    EXPECT_EQ(view.steps, 3);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(view.high) % 64, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(view.low) % 64, 0u);
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t at = row / 16 * 3 * kTileElements + row % 16 * kTileK;
      const bool exact = row / 16 == (rows - 1) / 16;
      EXPECT_EQ(memory.high(row), view.high + at);
      EXPECT_EQ(memory.low(row), exact ? view.low + at : nullptr);
      EXPECT_EQ(view.exact[row / 16] != 0, exact);
    }
  }
  memory.Resize(5, 65, /*exact=*/false);
  EXPECT_EQ(memory.view().exact, nullptr);
  EXPECT_EQ(memory.low(0), nullptr);
}

// Of 16 rows and fewer, by the emulated instructions and by those of the processor.
TEST(PackSwiGluTest, IsSiluMulAndThenPackRow) {
  if (DetectIsa() < Isa::kAvx512Vnni) GTEST_SKIP() << "needs AVX-512 VNNI";
  const std::vector<float> up = RandomFloats(kTileElements, 8);
  std::vector<float> gate = RandomFloats(kTileElements, 7);
  for (int i = 0; i < kTileElements; i += 3) {
    gate[i] = static_cast<float>(i - kTileElements / 2) * 0.45f;  // up to 115
  }
  gate[1] = std::nanf("");
  gate[2] = -0.0f;
  std::vector<const QuantizedKernels*> all = {&EmulatedAmxQuantizedKernels()};
  if (DetectIsa() >= Isa::kAmx) all.push_back(&QuantizedKernelsFor(Isa::kAmx));
  for (const QuantizedKernels* kernels : all) {
    for (const int64_t rows : {1, 7, 16}) {
      alignas(64) uint16_t got[kTileElements], want[kTileElements];
      std::fill_n(got, kTileElements, uint16_t{0x1234});
      std::fill_n(want, kTileElements, uint16_t{0x1234});
      kernels->tiles->pack_swiglu(gate.data(), up.data(), rows, got);
      std::vector<float> products = gate;
      kernels->silu_mul(products.data(), up.data(), rows * kTileK);
      for (int64_t r = 0; r < rows; ++r) {
        kernels->tiles->pack_row(&products[r * kTileK], kTileK, want + r * kTileK, nullptr);
      }
      for (int i = 0; i < kTileElements; ++i) ASSERT_EQ(got[i], want[i]) << gate[i];
    }
  }
}

}  // namespace
}  // namespace refrain::kernels::cpu
