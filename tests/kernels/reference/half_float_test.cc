#include "kernels/reference/half_float.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "kernels/reference/dequantize.h"

// (bf16 is checked as the inverse of what reads it: dequantize_test.cc and the conformance suite.)

namespace refrain::kernels {
namespace {

// The two floats around each f16's border to the next, and the tie between, which goes to the even
// one; then those beyond the largest.
TEST(HalfFloatTest, RoundsToTheNearestF16) {
  const auto expect = [](float value, int want) {
    ASSERT_EQ(F32ToF16(value), want) << value;
    ASSERT_EQ(F32ToF16(-value), want | 0x8000) << value;
  };
  for (int bits = 0; bits < 0x7bff; ++bits) {
    const float low = F16ToF32(static_cast<uint16_t>(bits));
    const float high = F16ToF32(static_cast<uint16_t>(bits + 1));
    const float half = low + (high - low) / 2;
    expect(low, bits);
    expect(std::nextafter(half, low), bits);
    expect(half, bits + bits % 2);
    expect(std::nextafter(half, high), bits + 1);
  }
  expect(65504, 0x7bff);
  expect(std::nextafter(65520.0f, 0.0f), 0x7bff);
  expect(65520, 0x7c00);
  expect(std::numeric_limits<float>::max(), 0x7c00);
  expect(std::numeric_limits<float>::infinity(), 0x7c00);
  expect(std::numeric_limits<float>::denorm_min(), 0);
}

TEST(HalfFloatTest, NaNStaysANaNOfF16) {
  for (const uint32_t bits : {0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0x7f802000u}) {
    for (const uint32_t sign : {0u, 0x80000000u}) {
      const uint16_t half = F32ToF16(std::bit_cast<float>(bits | sign));
      EXPECT_EQ(half & 0x7e00, 0x7e00) << "quiet";
      EXPECT_EQ(half >> 15, sign >> 31);
    }
  }
}

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
