#include "tools/bench/machine_peaks.h"

#include <gtest/gtest.h>

namespace refrain::bench {
namespace {

using kernels::DType;
using kernels::cpu::Isa;

constexpr MachinePeaks kPeaks{.fma_flops_per_s = 1,
                              .int8_ops_per_s = 2,
                              .bf16_dot_flops_per_s = 3,
                              .bf16_tile_flops_per_s = 4,
                              .int8_tile_ops_per_s = 5};

// What a share of the peak is of: the arithmetic that the level has for the type and rows.
TEST(MachinePeaksTest, AProductIsComparedWithItsOwnArithmetic) {
  for (const Isa isa :
       {Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512, Isa::kAvx512Vnni, Isa::kAvx512Bf16, Isa::kAmx}) {
    for (const int64_t rows : {1, 7, 8, 512}) {
      const bool tiles = isa == Isa::kAmx && rows >= 8;
      EXPECT_EQ(ProductPeak(kPeaks, isa, DType::kF32, rows), 1);
      EXPECT_EQ(ProductPeak(kPeaks, isa, DType::kF16, rows), 1);
      EXPECT_EQ(ProductPeak(kPeaks, isa, DType::kBF16, rows), tiles                     ? 4
                                                              : isa >= Isa::kAvx512Bf16 ? 3
                                                                                        : 1);
      EXPECT_EQ(ProductPeak(kPeaks, isa, DType::kQ8_0, rows), tiles ? 5 : 2);
      EXPECT_EQ(ProductPeak(kPeaks, isa, DType::kQ4_K, rows), tiles ? 5 : 2);
    }
  }
}

TEST(MachinePeaksTest, WhatTheMachineHasIsMeasured) {
  const Isa isa = kernels::cpu::DetectIsa();
  if (isa < Isa::kAvx2) GTEST_SKIP() << "measured from AVX2 on";
  const MachinePeaks peaks = MeasurePeaks(1);
  EXPECT_GT(peaks.read_bytes_per_s, 1e8);
  EXPECT_GT(peaks.cached_read_bytes_per_s, 1e8);
  EXPECT_GT(peaks.fma_flops_per_s, 1e8);
  EXPECT_GT(peaks.int8_ops_per_s, 1e8);
  EXPECT_EQ(peaks.bf16_dot_flops_per_s > 1e8, isa >= Isa::kAvx512Bf16);
  EXPECT_EQ(peaks.bf16_tile_flops_per_s > 1e8, isa >= Isa::kAmx);
  EXPECT_EQ(peaks.int8_tile_ops_per_s > 1e8, isa >= Isa::kAmx);
}

}  // namespace
}  // namespace refrain::bench
