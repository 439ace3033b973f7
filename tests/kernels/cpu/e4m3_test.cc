// E4M3 at every level: rounding to it, and widening to bf16.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/elementwise_kernels.h"
#include "kernels/cpu/isa.h"
#include "kernels/reference/dequantize.h"
#include "kernels/reference/half_float.h"

namespace refrain::kernels::cpu {
namespace {

// Every number, every half between two and its neighbours, what is beyond, bits at random.
std::vector<float> Values() {
  std::vector<float> values;
  for (int bits = 0; bits < 0x7e; ++bits) {
    const float low = E4m3ToF32(static_cast<uint8_t>(bits));
    const float half = low + (E4m3ToF32(static_cast<uint8_t>(bits + 1)) - low) / 2;
    for (const float x : {low, half, std::nextafter(half, 0.0f), std::nextafter(half, 500.0f)}) {
      values.push_back(x);
      values.push_back(-x);
    }
  }
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float x : {448.0f, 464.0f, 1e30f, kInfinity, std::nanf("")}) {
    values.push_back(x);
    values.push_back(-x);
  }
  std::mt19937 random(2);
  for (int i = 0; i < 200'000; ++i) {
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  }
  return values;
}

TEST(E4m3Test, EveryLevelRoundsAsTheReferenceDoes) {
  const std::vector<float> values = Values();
  std::vector<uint8_t> got(values.size());
  for (const Isa isa : SupportedIsas()) {
    ElementwiseFor(isa).to_e4m3(values.data(), got.data(), std::ssize(values));
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(got[i], F32ToE4m3(values[i])) << values[i] << " " << Name(isa);
    }
  }
}

TEST(E4m3Test, RoundingWritesNothingBehindTheRow) {
  const std::vector<float> ones(80, 1.0f);
  for (const Isa isa : SupportedIsas()) {
    for (size_t n = 1; n <= ones.size(); ++n) {
      std::vector<uint8_t> got(n + 64, 0xaa);
      ElementwiseFor(isa).to_e4m3(ones.data(), got.data(), static_cast<int64_t>(n));
      for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], i < n ? 0x38 : 0xaa) << Name(isa);
    }
  }
}

// Every pair of numbers, in rows of every length up to a few vectors: exact, and nothing is read or
// written beyond (the vectors end where the rows do: a sanitizer sees it).
TEST(E4m3Test, EveryLevelWidensEveryPair) {
  for (const Isa isa : SupportedIsas()) {
    const AttentionKernels kernels = AttentionKernelsOf(isa);
    for (int count = 1; count <= 70; ++count) {
      const int rows = count <= 64 ? 3 : 1000;
      const int stride = 2 * count, out_stride = count + 5;
      std::vector<uint8_t> in(static_cast<size_t>(rows * stride));
      for (size_t i = 0; i < in.size(); ++i) {
        // Both of a pair go through all numbers, at different paces.
        const size_t row = i / stride, at = i % stride;
        in[i] = static_cast<uint8_t>(at < static_cast<size_t>(count) ? row * 67 + at
                                                                     : row * 131 + 3 * at);
      }
      constexpr uint32_t kUntouched = 0x12345678;
      std::vector<uint32_t> out(static_cast<size_t>(rows * out_stride), kUntouched);
      kernels.widen_e4m3({.even = in.data(),
                          .odd = in.data() + count,
                          .stride = stride,
                          .rows = rows,
                          .count = count,
                          .ahead = in.data(),
                          .out = out.data(),
                          .out_stride = out_stride});
      const auto expect = [&](uint16_t bits, uint8_t code) {
        const float want = E4m3ToF32(code), got = Bf16ToF32(bits);
        if (std::isnan(want)) {
          ASSERT_TRUE(std::isnan(got)) << int{code} << " " << Name(isa);
        } else {
          ASSERT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(want))
              << int{code} << ", " << count << " of a row, " << Name(isa);
        }
      };
      for (int row = 0; row < rows; ++row) {
        for (int i = 0; i < out_stride; ++i) {
          const uint32_t pair = out[row * out_stride + i];
          if (i >= count) {
            ASSERT_EQ(pair, kUntouched) << count << " of a row, " << Name(isa);
            continue;
          }
          expect(static_cast<uint16_t>(pair & 0xffff), in[row * stride + i]);
          expect(static_cast<uint16_t>(pair >> 16), in[row * stride + count + i]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace refrain::kernels::cpu
