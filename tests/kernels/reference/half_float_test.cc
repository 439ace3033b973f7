#include "kernels/reference/half_float.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "kernels/reference/dequantize.h"

// (f16 and bf16 are checked as the inverse of what reads them: dequantize_test.cc and the
// conformance suite.)

namespace refrain::kernels {
namespace {

// The nearest of all numbers, the one with an even code of two that are equally far.
uint8_t NearestE4m3(float value) {
  int nearest = 0;
  for (int bits = 1; bits < 0x7f; ++bits) {
    const auto distance = [&](int code) {
      return std::fabs(std::fabs(double{value}) - E4m3ToF32(static_cast<uint8_t>(code)));
    };
    const bool even_tie = distance(bits) == distance(nearest) && bits % 2 == 0;
    if (distance(bits) < distance(nearest) || even_tie) nearest = bits;
  }
  return static_cast<uint8_t>(nearest | (std::signbit(value) ? 0x80 : 0));
}

TEST(HalfFloatTest, RoundsToTheNearestE4m3) {
  std::vector<float> values;
  for (int bits = 0; bits < 0x7e; ++bits) {
    const float low = E4m3ToF32(static_cast<uint8_t>(bits));
    const float high = E4m3ToF32(static_cast<uint8_t>(bits + 1));
    const float half = low + (high - low) / 2;
    for (const float x : {low, half, std::nextafter(half, 0.0f), std::nextafter(half, 500.0f)}) {
      values.push_back(x);
    }
  }
  std::mt19937 random(1);
  for (int i = 0; i < 20'000; ++i) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (std::fabs(x) <= 448) values.push_back(x);
  }
  for (const float x : values) {
    for (const float value : {x, -x}) {
      ASSERT_EQ(F32ToE4m3(value), NearestE4m3(value)) << value;
    }
  }
}

TEST(HalfFloatTest, E4m3KeepsItsNumbersAndNaN) {
  for (int bits = 0; bits < 256; ++bits) {
    const float value = E4m3ToF32(static_cast<uint8_t>(bits));
    EXPECT_EQ(F32ToE4m3(value), bits) << value;
  }
}

TEST(HalfFloatTest, WhatIsTooLargeForE4m3BecomesItsGreatest) {
  for (const float x :
       {448.0f, 463.9f, 464.0f, 480.0f, 1e30f, std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(F32ToE4m3(x), 0x7e) << x;
    EXPECT_EQ(F32ToE4m3(-x), 0xfe) << -x;
  }
}

}  // namespace
}  // namespace refrain::kernels
