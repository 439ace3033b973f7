#include "kernels/cpu/level_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/dense_matrix.h"
#include "kernels/cpu/quantized_matrix.h"
#include "kernels/cpu/tile_kernels.h"
#include "tests/kernels/cpu/attention_emulated_kernels.h"
#include "tests/kernels/cpu/dense_emulated_kernels.h"
#include "tests/kernels/cpu/quantized_emulated_kernels.h"

namespace refrain::kernels::cpu {
namespace {

bool HasAvx512() { return DetectIsa() >= Isa::kAvx512; }

TEST(LevelCheckTest, PassesEveryLevelOfThisMachine) {
  for (const Isa isa : SupportedIsas()) {
    EXPECT_EQ(CheckLevel(isa), absl::OkStatus()) << Name(isa);
  }
}

TEST(LevelCheckTest, PassesEmulatedLevels) {
  if (!HasAvx512()) GTEST_SKIP() << "emulated with AVX-512";
  EXPECT_EQ(CheckAttention(EmulatedVnniAttentionKernels()), absl::OkStatus());
  EXPECT_EQ(CheckAttention(EmulatedBf16AttentionKernels()), absl::OkStatus());
  EXPECT_EQ(CheckAttention(EmulatedAmxAttentionKernels()), absl::OkStatus());
  EXPECT_GT(TakeAttentionTileLog().dots, 0);
  EXPECT_EQ(CheckDenseProducts(EmulatedBf16DenseKernels()), absl::OkStatus());
  EXPECT_EQ(CheckDenseProducts(EmulatedAmxDenseKernels()), absl::OkStatus());
  EXPECT_GT(TakeEmulatedTileLog().dots, 0);
  if (DetectIsa() < Isa::kAvx512Vnni) return;
  EXPECT_EQ(CheckQuantizedProducts(EmulatedAmxQuantizedKernels()), absl::OkStatus());
  EXPECT_GT(TakeQuantizedTileLog().dots, 0);
}

// Rows of a tile that are left as they were: a tile that was not configured as it should be.
TEST(LevelCheckTest, FindsAttentionThatForgetsRows) {
  AttentionKernels kernels = AttentionKernelsOf(Isa::kPortable);
  kernels.segment = [](const SegmentArgs& args) {
    SegmentArgs fewer = args;
    if (args.num_rows > 16) fewer.num_rows = args.num_rows - 16;
    AttentionKernelsOf(Isa::kPortable).segment(fewer);
  };
  const absl::Status status = CheckAttention(kernels);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(std::string(status.message()).rfind("attention over bf16, many rows: ", 0), 0u)
      << status;
}

// An exponent's bias mistaken.
TEST(LevelCheckTest, FindsE4m3ThatIsWidenedWrong) {
  AttentionKernels kernels = AttentionKernelsOf(Isa::kPortable);
  kernels.widen_e4m3 = [](const E4m3Rows& rows) {
    AttentionKernelsOf(Isa::kPortable).widen_e4m3(rows);
    for (int64_t i = 0; i < rows.count; ++i) rows.out[i] += 0x00800080;
  };
  const absl::Status status = CheckAttention(kernels);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(std::string(status.message()).rfind("attention over fp8_e4m3, ", 0), 0u) << status;
}

TEST(LevelCheckTest, FindsProductsThatAreWrong) {
  DenseKernels kernels = DenseKernelsOf(Isa::kPortable);
  kernels.f32 = [](const DenseTile& tile) {
    DenseKernelsOf(Isa::kPortable).f32(tile);
    tile.out[0] += 0.125f;
  };
  const absl::Status status = CheckDenseProducts(kernels);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_NE(std::string(status.message()).find("a product over "), std::string::npos) << status;
}

// Of a level's products of one type and number of digits.
MultiplyQuantizedFn& Products(QuantizedKernels& kernels, int digits,
                              MultiplyQuantizedFn FixedKernels::*type) {
  return kernels.by_digits[digits - 1].*type;
}

void ExpectFinding(const QuantizedKernels& kernels, const std::string& finding) {
  const absl::Status status = CheckQuantizedProducts(kernels);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(std::string(status.message()).rfind(finding, 0), 0u) << status;
}

// The sign of one factor's bytes mistaken, as between tdpbsud and tdpbusd.
template <int kDigits, MultiplyQuantizedFn FixedKernels::*kType>
void MultiplyWithoutSigns(const QuantizedPanels& w, const FixedRows& x, const ProductRange& range) {
  std::vector<int8_t> digits(x.digits, x.digits + range.row_end * x.blocks * kDigits * kBlockK);
  for (int8_t& digit : digits) digit = static_cast<int8_t>(digit & 0x7f);
  FixedRows other = x;
  if (range.row_end > 1) other.digits = digits.data();
  (QuantizedKernelsFor(Isa::kPortable).by_digits[kDigits - 1].*kType)(w, other, range);
}

template <MultiplyQuantizedFn FixedKernels::*kType>
void ExpectMissingSignsToBeFound(const std::string& name) {
  for (const int digits : {1, 2}) {
    QuantizedKernels kernels = QuantizedKernelsFor(Isa::kPortable);
    Products(kernels, digits, kType) =
        digits == 1 ? MultiplyWithoutSigns<1, kType> : MultiplyWithoutSigns<2, kType>;
    ExpectFinding(kernels, "a product over " + name + ", many rows: ");
  }
}

TEST(LevelCheckTest, FindsQuantizedProductsThatAreWrong) {
  ExpectMissingSignsToBeFound<&FixedKernels::q8_0>("q8_0");
  ExpectMissingSignsToBeFound<&FixedKernels::q4_1>("q4_1");
  ExpectMissingSignsToBeFound<&FixedKernels::q5_k>("q5_k");
  ExpectMissingSignsToBeFound<&FixedKernels::q6_k>("q6_k");
}

// The emulated level's products by tiles of Q4_1, with what a test makes wrong of them.
void ExpectTilesToBeFound(MultiplyTilesFn wrong, const std::string& finding) {
  if (DetectIsa() < Isa::kAvx512Vnni) GTEST_SKIP() << "emulated with AVX-512 VNNI";
  TileKernels tiles = *EmulatedAmxQuantizedKernels().tiles;
  tiles.q4_1 = wrong;
  QuantizedKernels kernels = EmulatedAmxQuantizedKernels();
  kernels.tiles = &tiles;
  ExpectFinding(kernels, finding);
}

TEST(LevelCheckTest, FindsSecondTermsOfTilesThatAreLeftOut) {
  ExpectTilesToBeFound(
      [](const QuantizedPanels& w, const TileRows& x, const TileRange& range) {
        TileRows other = x;
        other.exact = nullptr;
        EmulatedAmxQuantizedKernels().tiles->q4_1(w, other, range);
      },
      "a product by tiles over q4_1, exact rows: ");
}

TEST(LevelCheckTest, FindsPanelsOfTilesThatAreLeftOut) {
  ExpectTilesToBeFound(
      [](const QuantizedPanels& w, const TileRows& x, const TileRange& range) {
        TileRange fewer = range;
        --fewer.tile_end;
        EmulatedAmxQuantizedKernels().tiles->q4_1(w, x, fewer);
      },
      "a product by tiles over q4_1, exact rows: ");
}

TEST(LevelCheckTest, FindsActivationsThatAreRoundedWrong) {
  QuantizedKernels kernels = QuantizedKernelsFor(Isa::kPortable);
  kernels.by_digits[1].quantize_row = [](const float* x, int64_t blocks, float stands_out,
                                         const FixedRowOut& out) {
    QuantizedKernelsFor(Isa::kPortable).by_digits[1].quantize_row(x, blocks, stands_out, out);
    out.scales[blocks - 1] *= 1.01f;
  };
  ExpectFinding(kernels, "rounding of activations, one row: ");
}

// Bytes of each tile of a weight, `count` times `bytes` of them.
struct TileBytesAt {
  int64_t first, count, step, bytes;
};

// Q5_K of one digit over panels in which those bytes are forgotten.
void MultiplyWithout(const TileBytesAt& forgotten, const QuantizedPanels& w, const FixedRows& x,
                     const ProductRange& range) {
  constexpr int64_t kLine = 64;
  const int64_t size = range.tile_end * w.tile_bytes;
  std::vector<uint8_t> memory(size + kLine);
  uint8_t* const data =
      memory.data() + (kLine - reinterpret_cast<uintptr_t>(memory.data()) % kLine) % kLine;
  std::copy_n(w.data, size, data);
  for (uint8_t* tile = data; tile < data + size; tile += w.tile_bytes) {
    for (int64_t i = 0; i < forgotten.count; ++i) {
      std::fill_n(tile + forgotten.first + i * forgotten.step, forgotten.bytes, uint8_t{0});
    }
  }
  QuantizedPanels other = w;
  other.data = data;
  QuantizedKernelsFor(Isa::kPortable).by_digits[0].q5_k(other, x, range);
}

TEST(LevelCheckTest, FindsMinimaOfSuperBlocksThatAreLeftOut) {
  QuantizedKernels kernels = QuantizedKernelsFor(Isa::kPortable);
  kernels.by_digits[0].q5_k = [](const QuantizedPanels& w, const FixedRows& x,
                                 const ProductRange& range) {
    constexpr int64_t kHalves = 16 * sizeof(uint16_t);  // d[16], -dmin[16]
    const int64_t super_block_bytes = ScaleBytesPerSuperBlock(ScaleKind::kSuperMin);
    MultiplyWithout({kHalves, w.blocks / kBlocksPerSuperBlock, super_block_bytes, kHalves}, w, x,
                    range);
  };
  ExpectFinding(kernels, "a product over q5_k, one row: ");
}

TEST(LevelCheckTest, FindsWordsThatAreMultipliedWrong) {
  QuantizedKernels kernels = QuantizedKernelsFor(Isa::kPortable);
  kernels.least_rows_of_words = [](int) { return 1; };
  ASSERT_EQ(CheckQuantizedProducts(kernels), absl::OkStatus()) << "digits are multiplied";
  kernels.by_digits[1].q6_k = [](const QuantizedPanels& w, const FixedRows& x,
                                 const ProductRange& range) {
    ProductRange fewer = range;
    if (x.words != nullptr && range.row_end > 16) --fewer.row_end;
    QuantizedKernelsFor(Isa::kPortable).by_digits[1].q6_k(w, x, fewer);
  };
  ExpectFinding(kernels, "a product over q6_k, many rows: ");
}

TEST(LevelCheckTest, FindsFifthBitsThatAreLeftOut) {
  QuantizedKernels kernels = QuantizedKernelsFor(Isa::kPortable);
  kernels.by_digits[0].q5_k = [](const QuantizedPanels& w, const FixedRows& x,
                                 const ProductRange& range) {
    const int64_t nibbles = QuantBytesPerBlock(4), block_bytes = QuantBytesPerBlock(5);
    MultiplyWithout({w.scale_bytes + nibbles, w.blocks, block_bytes, block_bytes - nibbles}, w, x,
                    range);
  };
  ExpectFinding(kernels, "a product over q5_k, one row: ");
}

}  // namespace
}  // namespace refrain::kernels::cpu
