#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/fixed_rows_memory.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/quantized_kernels.h"
#include "kernels/cpu/quantized_matrix.h"
#include "kernels/cpu/quantized_packing.h"
#include "tests/kernels/cpu/quantized_blocks.h"
#include "tests/kernels/cpu/quantized_emulated_kernels.h"

namespace refrain::kernels::cpu {
namespace {

// A random weight in the packed layout, and activations.
struct Product {
  Product(DType dtype, int64_t n, int64_t k, int64_t rows, uint32_t seed) : blocks(k / kBlockK) {
    const QuantizedFormat format = FormatOf(dtype);
    const int64_t tiles = (n + 15) / 16;
    memory.resize(static_cast<size_t>(tiles * TileBytes(format, blocks)) + 64);
    auto* data =
        reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
    panels = {data, n, blocks, TileBytes(format, blocks), ScaleBytes(format, blocks)};
    const std::vector<std::byte> stored = RandomRows(dtype, n, k, seed);
    for (int64_t row = 0; row < n; ++row) {
      PackRow(dtype, stored.data() + row * *RowBytes(dtype, k), blocks, static_cast<int>(row % 16),
              data + row / 16 * panels.tile_bytes);
    }
    activations.Resize(2, rows, blocks);
    for (int64_t row = 0; row < rows; ++row) {
      const std::vector<float> x = RandomFloats(k, seed + static_cast<uint32_t>(row));
      QuantizedKernelsFor(Isa::kPortable)
          .by_digits[1]
          .quantize_row(x.data(), blocks, /*stands_out=*/0, activations.Row(row));
    }
  }

  int64_t blocks;
  std::vector<uint8_t> memory;
  QuantizedPanels panels;
  FixedRowsMemory activations;
};

struct Type {
  DType dtype;
  MultiplyQuantizedFn FixedKernels::*function;
};

constexpr Type kTypes[] = {
    {DType::kQ8_0, &FixedKernels::q8_0}, {DType::kQ4_0, &FixedKernels::q4_0},
    {DType::kQ4_1, &FixedKernels::q4_1}, {DType::kQ5_0, &FixedKernels::q5_0},
    {DType::kQ5_1, &FixedKernels::q5_1}, {DType::kQ4_K, &FixedKernels::q4_k},
    {DType::kQ5_K, &FixedKernels::q5_k}, {DType::kQ6_K, &FixedKernels::q6_k},
};

class QuantizedTilesTest : public testing::TestWithParam<Type> {
 protected:
  const Type& type() const { return GetParam(); }

  void SetUp() override {
    const std::vector<Isa> isas = SupportedIsas();
    if (std::find(isas.begin(), isas.end(), Isa::kAvx512Vnni) == isas.end()) {
      GTEST_SKIP() << "needs AVX-512 VNNI";
    }
    TakeQuantizedTileLog();
  }

  // Emulated tiles and, on a processor that has them, its own.
  static std::vector<const QuantizedKernels*> Kernels() {
    std::vector<const QuantizedKernels*> kernels = {&EmulatedAmxQuantizedKernels()};
    if (DetectIsa() == Isa::kAmx) kernels.push_back(&QuantizedKernelsFor(Isa::kAmx));
    return kernels;
  }

  // Multiplies rows [begin, end) by tiles and by vectors; the results must be the same bits, and
  // nothing else may be written. `out_rows`: where row i's products belong, if not at row i.
  void ExpectSameBits(const Product& product, int64_t rows, int64_t row_begin, int64_t row_end,
                      int64_t tile_begin, int64_t tile_end, bool accumulate,
                      const std::vector<int32_t>& out_rows = {}) {
    const int64_t n = product.panels.n;
    const auto out_row = [&](int64_t row) { return out_rows.empty() ? row : out_rows[row]; };
    const auto multiply = [&](const QuantizedKernels& kernels, const int32_t* to_rows) {
      std::vector<float> out(rows * n);
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t i = 0; i < n; ++i) {
          out[(to_rows == nullptr ? row : to_rows[row]) * n + i] =
              std::sin(static_cast<float>(row * n + i));
        }
      }
      const ProductRange range = {row_begin,  row_end, tile_begin, tile_end,
                                  out.data(), n,       accumulate, to_rows};
      (kernels.by_digits[1].*type().function)(product.panels, product.activations.view(), range);
      return out;
    };
    const std::vector<float> vectors = multiply(kQuantizedKernelsAvx512Vnni, nullptr);
    for (const QuantizedKernels* kernels : Kernels()) {
      const std::vector<float> tiles =
          multiply(*kernels, out_rows.empty() ? nullptr : out_rows.data());
      for (int64_t row = 0; row < rows; ++row) {
        ASSERT_EQ(std::memcmp(&tiles[out_row(row) * n], &vectors[row * n], n * sizeof(float)), 0)
            << "row " << row << " of " << rows << ", of which " << row_begin << " to " << row_end
            << ", tiles " << tile_begin << " to " << tile_end
            << (kernels == Kernels().front() ? ", emulated" : "");
      }
    }
  }
};

TEST_P(QuantizedTilesTest, GivesTheBitsOfTheVectorKernels) {
  const int64_t unit = Traits(type().dtype).block_elements == 256 ? 256 : 32;
  int64_t dots = 0;
  // Up to more blocks than are unpacked at once, and blocks that leave a part of those summed.
  for (const int64_t k : {unit, 3 * unit, int64_t{768}, int64_t{1280}}) {
    const Product product(type().dtype, 53, k, 90, static_cast<uint32_t>(k));
    for (const int64_t rows : {1, 63, 64, 65, 79, 81, 90}) {
      ExpectSameBits(product, rows, 0, rows, 0, 4, false);
      const EmulatedTileLog log = TakeQuantizedTileLog();
      EXPECT_EQ(log.violations, 0) << log.violation;
      EXPECT_FALSE(log.in_use) << "tiles left in use";
      EXPECT_EQ(log.dots > 0, rows >= 64);
      dots += log.dots;
    }
    ExpectSameBits(product, 90, 3, 69, 1, 2, true);
    ExpectSameBits(product, 90, 11, 90, 1, 4, true);
    std::vector<int32_t> scattered(90);
    for (int i = 0; i < 90; ++i) scattered[i] = (7 * i + 5) % 90;
    ExpectSameBits(product, 90, 3, 69, 1, 4, true, scattered);
    ExpectSameBits(product, 90, 0, 90, 0, 4, false, scattered);
    EXPECT_EQ(TakeQuantizedTileLog().violations, 0);
  }
  EXPECT_GT(dots, 1000);
}

// The largest digits with the largest quants: 32 x 127 x 255 and more must not saturate.
TEST_P(QuantizedTilesTest, ExtremeDigitsDoNotSaturate) {
  Product product(type().dtype, 32, 256, 64, 5);
  const FixedRowOut all = product.activations.Row(0);
  for (int64_t i = 0; i < int64_t{64} * 256 * 2; ++i) {
    all.digits[i] = i / 32 % 2 == 0 ? (i / 512 % 2 == 0 ? 127 : -127) : -64;
  }
  ExpectSameBits(product, 64, 0, 64, 0, 2, false);
  EXPECT_EQ(TakeQuantizedTileLog().violations, 0);
}

INSTANTIATE_TEST_SUITE_P(Types, QuantizedTilesTest, testing::ValuesIn(kTypes),
                         [](const auto& info) {
                           return std::string(Traits(info.param.dtype).name);
                         });

}  // namespace
}  // namespace refrain::kernels::cpu
