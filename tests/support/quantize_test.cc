#include "tests/support/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/reference/dequantize.h"
#include "kernels/worse.h"

namespace refrain::testing {
namespace {

using kernels::DType;

// Largest error in units of the row's largest magnitude (1): half a step of the type, with a little
// for the rounded scale; whole ranges for types with a minimum span 2.
double LargestError(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 0.0;
    case DType::kF16:
      return 0x1p-12;
    case DType::kBF16:
      return 0x1p-9;
    case DType::kQ8_0:
      return 0.5 / 127 * 1.05;
    case DType::kQ4_0:
      return 0.5 / 7 * 1.05;
    case DType::kQ5_0:
      return 0.5 / 15 * 1.05;
    case DType::kQ4_1:
      return 0.5 * 2 / 15 * 1.05;
    case DType::kQ5_1:
      return 0.5 * 2 / 31 * 1.05;
    case DType::kQ4_K:
      return 0.5 * 2 / 15 + 2.0 / 63;
    case DType::kQ5_K:
      return 0.5 * 2 / 31 + 2.0 / 63;
    case DType::kQ6_K:
      return 0.5 / 31 + 0.5 / 127;
    case DType::kF8E4M3:  // not of weights
      break;
  }
  return 0.0;
}

// What is quantised and read back is near what went in, for every type; and not near for a row that
// was shifted by one element, so that the bound means something.
TEST(QuantizeTest, ReadsBackWithinHalfAStep) {
  for (const kernels::DTypeTraits& traits : kernels::kDTypes) {
    constexpr int kElements = 512;
    std::vector<float> row(kElements);
    for (int i = 0; i < kElements; ++i)
      row[i] = static_cast<float>(std::sin(0.9 * i + 0.01 * i * i));
    const std::string bytes = QuantizeRow(traits.dtype, row);
    ASSERT_EQ(bytes.size(), kernels::RowBytes(traits.dtype, kElements)) << traits.name;
    std::vector<float> back(kElements);
    kernels::DequantizeRow(traits.dtype, reinterpret_cast<const std::byte*>(bytes.data()),
                           kElements, back.data());
    double worst = 0, worst_shifted = 0;
    for (int i = 0; i < kElements; ++i) {
      worst = kernels::Worse(worst, std::abs(double{back[i]} - row[i]));
      worst_shifted = std::max(worst_shifted, std::abs(double{back[i]} - row[(i + 1) % kElements]));
    }
    EXPECT_LE(worst, LargestError(traits.dtype)) << traits.name;
    EXPECT_GT(worst_shifted, 0.5) << traits.name;
  }
}

// A block of zeros has a scale of zero: no division by it.
TEST(QuantizeTest, KeepsZeros) {
  for (const kernels::DTypeTraits& traits : kernels::kDTypes) {
    const std::vector<float> row(256, 0.0f);
    const std::string bytes = QuantizeRow(traits.dtype, row);
    std::vector<float> back(256, 1.0f);
    kernels::DequantizeRow(traits.dtype, reinterpret_cast<const std::byte*>(bytes.data()), 256,
                           back.data());
    for (const float value : back) EXPECT_EQ(value, 0.0f) << traits.name;
  }
}

}  // namespace
}  // namespace refrain::testing
