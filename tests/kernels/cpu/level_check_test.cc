#include "kernels/cpu/level_check.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/dense_matrix.h"
#include "kernels/cpu/quantized_matrix.h"
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

// The sign of one factor's bytes mistaken, as between tdpbsud and tdpbusd.
template <int kDigits>
void MultiplyQ6KWithoutSigns(const QuantizedPanels& w, const FixedRows& x,
                             const ProductRange& range) {
  std::vector<int8_t> digits(x.digits, x.digits + range.row_end * x.blocks * kDigits * kBlockK);
  for (int8_t& digit : digits) digit = static_cast<int8_t>(digit & 0x7f);
  FixedRows other = x;
  if (range.row_end > 1) other.digits = digits.data();
  QuantizedKernelsFor(Isa::kPortable).by_digits[kDigits - 1].q6_k(w, other, range);
}

TEST(LevelCheckTest, FindsQuantizedProductsThatAreWrong) {
  for (const int digits : {1, 2}) {
    QuantizedKernels kernels = QuantizedKernelsFor(Isa::kPortable);
    kernels.by_digits[digits - 1].q6_k =
        digits == 1 ? MultiplyQ6KWithoutSigns<1> : MultiplyQ6KWithoutSigns<2>;
    const absl::Status status = CheckQuantizedProducts(kernels);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_EQ(std::string(status.message()).rfind("a product over q6_k, many rows: ", 0), 0u)
        << status;
  }
}

}  // namespace
}  // namespace refrain::kernels::cpu
