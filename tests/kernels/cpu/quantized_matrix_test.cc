#include "kernels/cpu/quantized_matrix.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/fixed_rows_memory.h"
#include "kernels/reference/dequantize.h"
#include "tests/kernels/cpu/quantized_blocks.h"

namespace refrain::kernels::cpu {
namespace {

// Activations of one operation with the fixed-point form made by one level's kernel.
struct TestActivations {
  std::vector<float> x;
  FixedRowsMemory fixed;
  Activations view;

  // In every second row of more than four blocks one block stands out, which has two digits.
  TestActivations(int64_t rows, int64_t k, Isa isa, int digit_count, uint32_t seed)
      : x(RandomFloats(rows * k, seed)) {
    for (int64_t i = 0; i < std::min<int64_t>(k, 32); ++i) x[i] = 0.0f;  // a block of zeros
    const int64_t blocks = k / 32;
    for (int64_t row = 0; row < rows && blocks > 4; row += 2) {
      float* const block = &x[(row * blocks + 1 + row % (blocks - 1)) * 32];
      for (int i = 0; i < 32; ++i) block[i] *= 50;
    }
    view.rows = rows;
    view.k = k;
    Quantize(isa, digit_count);
  }

  // Again, after a change of x.
  void Quantize(Isa isa, int digit_count, float stands_out = 3) {
    fixed.Resize(digit_count, view.rows, view.k / 32, HasWords(isa, digit_count));
    for (int64_t row = 0; row < view.rows; ++row) {
      QuantizedKernelsFor(isa).by_digits[digit_count - 1].quantize_row(
          &x[row * view.k], view.k / 32, stands_out, fixed.Row(row));
    }
    (digit_count == 1 ? view.int8 : view.fixed) = fixed.view();
  }

  // Where the level multiplies words: else they are not asked for.
  static bool HasWords(Isa isa, int digit_count) {
    return digit_count == 2 && QuantizedKernelsFor(isa).least_rows_of_words != nullptr;
  }

  TestActivations(const TestActivations&) = delete;
};

struct Weight {
  int64_t n, k;
  std::vector<std::byte> data;
  std::vector<float> values;  // [n, k]

  Weight(DType dtype, int64_t n, int64_t k, uint32_t seed)
      : n(n), k(k), data(RandomRows(dtype, n, k, seed)), values(n * k) {
    for (int64_t row = 0; row < n; ++row) {
      DequantizeRow(dtype, data.data() + row * *RowBytes(dtype, k), k, &values[row * k]);
    }
  }
};

class QuantizedMatrixTest : public testing::TestWithParam<std::tuple<DType, Isa, int>> {
 protected:
  DType dtype() const { return std::get<0>(GetParam()); }
  Isa isa() const { return std::get<1>(GetParam()); }
  int digit_count() const { return std::get<2>(GetParam()); }
  std::unique_ptr<PackedMatrix> Pack(const Weight& weight,
                                     std::span<const int32_t> row_order = {}) {
    ThreadPool pool(2);
    const WeightSlice slice{dtype(), weight.n, weight.k, weight.data.data(), row_order};
    auto packed = PackQuantized({&slice, 1},
                                digit_count() == 1 ? ActivationForm::kInt8 : ActivationForm::kFixed,
                                isa(), device_, pool, /*argmax=*/false);
    EXPECT_TRUE(packed.ok()) << packed.status();
    return std::move(*packed);
  }
  int64_t Cols(int64_t super_blocks, int64_t blocks) const {
    return Traits(dtype()).block_elements == 256 ? super_blocks * 256 : blocks * 32;
  }
  CpuDevice device_;
};

TEST_P(QuantizedMatrixTest, RowsComeBackBitForBit) {
  const Weight weight(dtype(), 37, Cols(3, 7), 1);
  const auto packed = Pack(weight);
  std::vector<float> row(weight.k);
  for (int64_t i = 0; i < weight.n; ++i) {
    packed->DequantizeRow(i, row.data());
    ASSERT_EQ(std::memcmp(row.data(), &weight.values[i * weight.k], weight.k * sizeof(float)), 0)
        << "row " << i;
  }
}

TEST_P(QuantizedMatrixTest, RowOrderIsHonoured) {
  const Weight weight(dtype(), 20, Cols(1, 3), 2);
  std::vector<int32_t> order(20);
  for (int i = 0; i < 20; ++i) order[i] = (i * 7 + 3) % 20;
  const auto packed = Pack(weight, order);
  std::vector<float> row(weight.k);
  for (int64_t i = 0; i < weight.n; ++i) {
    packed->DequantizeRow(i, row.data());
    ASSERT_EQ(std::memcmp(row.data(), &weight.values[order[i] * weight.k], weight.k * 4), 0) << i;
  }
}

// Against double arithmetic over the dequantised weights and the same fixed-point activations: only
// float rounding of the sums may differ.
TEST_P(QuantizedMatrixTest, MultipliesExactlyUpToFloatRounding) {
  for (const int64_t n : {1, 15, 16, 17, 53}) {
    for (const int64_t k : {Cols(1, 1), Cols(2, 5), Cols(5, 37)}) {
      const Weight weight(dtype(), n, k, 3);
      const auto packed = Pack(weight);
      for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 12, 13}) {
        const TestActivations x(rows, k, isa(), digit_count(), 4);
        const int64_t stride = n + 3;
        std::vector<float> out(rows * stride, 7.5f);
        packed->Multiply(x.view, 0, rows, 0, (n + 15) / 16, out.data(), stride, false, true);
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t i = 0; i < n; ++i) {
            double want = 0, magnitude = 0;
            for (int64_t j = 0; j < k; ++j) {
              const double product =
                  static_cast<double>(weight.values[i * k + j]) * x.fixed.Value(r * k + j);
              want += product;
              magnitude += std::abs(product);
            }
            ASSERT_NEAR(out[r * stride + i], want, 2e-6 * magnitude)
                << "n " << n << ", k " << k << ", rows " << rows << ", at " << r << ", " << i;
          }
          for (int64_t i = n; i < stride; ++i) {
            ASSERT_EQ(out[r * stride + i], 7.5f) << "wrote beyond column n";
          }
        }
      }
    }
  }
}

// Against the true product: what 15 or 8 bits of activations cost. Their error is at most 1/32638
// or 1/254 of a block's largest, so a sum over k of independent errors stays below 1e-4 or 1e-2 of
// the norm.
TEST_P(QuantizedMatrixTest, StaysCloseToTheTrueProduct) {
  const int64_t n = 32, k = 512, rows = 3;
  const Weight weight(dtype(), n, k, 5);
  const auto packed = Pack(weight);
  const TestActivations x(rows, k, isa(), digit_count(), 6);
  std::vector<float> out(rows * n);
  packed->Multiply(x.view, 0, rows, 0, 2, out.data(), n, false, false);
  double error = 0, norm = 0;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < n; ++i) {
      double want = 0;
      for (int64_t j = 0; j < k; ++j) {
        want += static_cast<double>(weight.values[i * k + j]) * x.x[r * k + j];
      }
      error += (out[r * n + i] - want) * (out[r * n + i] - want);
      norm += want * want;
    }
  }
  EXPECT_LT(std::sqrt(error / norm), digit_count() == 1 ? 1e-2 : 1e-4);
}

// One arithmetic per weight: a row's bits do not depend on the other rows, nor on how rows and
// tiles are cut into calls.
TEST_P(QuantizedMatrixTest, RowsHaveTheSameBitsInAnyCompany) {
  const int64_t n = 83, k = Cols(3, 19), rows = 67;
  const int64_t tiles = (n + 15) / 16;
  const Weight weight(dtype(), n, k, 7);
  const auto packed = Pack(weight);
  const TestActivations x(rows, k, isa(), digit_count(), 8);
  for (const bool accumulate : {false, true}) {
    std::vector<float> alone(rows * n, 0.25f);
    for (int64_t r = 0; r < rows; ++r) {
      packed->Multiply(x.view, r, r + 1, 0, tiles, alone.data(), n, accumulate, true);
    }
    for (const int64_t rows_per_call : {2, 3, 4, 5, 8, 11, 67}) {
      for (const int64_t tiles_per_call : {1, 2, 3, 6}) {
        std::vector<float> together(rows * n, 0.25f);
        for (int64_t r = 0; r < rows; r += rows_per_call) {
          for (int64_t t = 0; t < tiles; t += tiles_per_call) {
            packed->Multiply(x.view, r, std::min(r + rows_per_call, rows), t,
                             std::min(t + tiles_per_call, tiles), together.data(), n, accumulate,
                             true);
          }
        }
        ASSERT_EQ(std::memcmp(alone.data(), together.data(), alone.size() * sizeof(float)), 0)
            << rows_per_call << " rows, " << tiles_per_call << " tiles, accumulate " << accumulate;
      }
    }
  }
}

// From so many rows on that every type has them multiplied by words, and where parts of rows have.
TEST_P(QuantizedMatrixTest, WordsHaveTheBitsOfDigits) {
  if (!TestActivations::HasWords(isa(), digit_count())) GTEST_SKIP() << "no words on this level";
  const Weight weight(dtype(), 53, Cols(5, 37), 8);
  const auto packed = Pack(weight);
  for (const int64_t rows : {1, 2, 3, 4, 5, 11, 12, 13, 15, 16, 17, 37}) {
    const TestActivations x(rows, weight.k, isa(), 2, 9);
    Activations digits = x.view;
    ASSERT_NE(digits.fixed.words, nullptr);
    digits.fixed.words = nullptr;
    std::vector<float> got = RandomFloats(rows * 53, 10), want = got;
    packed->Multiply(x.view, 0, rows, 0, 4, got.data(), 53, /*accumulate=*/true, false);
    packed->Multiply(digits, 0, rows, 0, 4, want.data(), 53, /*accumulate=*/true, false);
    ASSERT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)), 0) << rows;
  }
}

// The largest magnitudes that quants and activations can have: no step may saturate.
TEST_P(QuantizedMatrixTest, ExtremeValuesDoNotSaturate) {
  const int64_t n = 16, k = Cols(1, 8), rows = 17;
  for (const uint8_t fill : {0x00, 0xff, 0x80, 0x7f}) {
    for (const float sign : {1.0f, -1.0f}) {
      Weight weight(dtype(), n, k, 9);
      const std::vector<std::byte> halves = weight.data;
      const DTypeTraits& traits = Traits(dtype());
      for (size_t i = 0; i < weight.data.size(); ++i) {
        const int in_block = static_cast<int>(i % traits.block_bytes);
        const bool keeps = dtype() == DType::kQ6_K ? in_block >= 208 : in_block < 4;
        const bool one_half =
            dtype() == DType::kQ8_0 || dtype() == DType::kQ4_0 || dtype() == DType::kQ5_0;
        if (!keeps || (one_half && in_block >= 2)) weight.data[i] = static_cast<std::byte>(fill);
      }
      for (int64_t row = 0; row < n; ++row) {
        DequantizeRow(dtype(), weight.data.data() + row * *RowBytes(dtype(), k), k,
                      &weight.values[row * k]);
      }
      const auto packed = Pack(weight);
      TestActivations x(rows, k, isa(), digit_count(), 10);
      std::fill(x.x.begin(), x.x.end(), sign * 3.0f);
      for (const auto& [count, stands_out] :
           {std::pair{int64_t{1}, 3.0f}, {rows, 3.0f}, {int64_t{1}, 0.5f}, {rows, 0.5f}}) {
        x.Quantize(isa(), digit_count(), stands_out);
        const bool two = digit_count() == 2 || stands_out < 1;
        ASSERT_EQ(x.fixed.Integer(5), static_cast<int>(sign * (two ? 16319 : 127 * 128)));
        std::vector<float> out(rows * n);
        packed->Multiply(x.view, 0, count, 0, 1, out.data(), n, false, true);
        for (int64_t i = 0; i < n; ++i) {
          double want = 0, magnitude = 0;
          for (int64_t j = 0; j < k; ++j) {
            want += weight.values[i * k + j] * (sign * 3.0);
            magnitude += std::abs(weight.values[i * k + j] * 3.0);
          }
          ASSERT_NEAR(out[i], want, 2e-6 * magnitude) << "fill " << int{fill};
        }
      }
    }
  }
}

std::string DigitsName(int count) { return count == 1 ? "_int8" : "_fixed"; }

std::string CaseName(const testing::TestParamInfo<std::tuple<DType, Isa, int>>& info) {
  return std::string(Traits(std::get<0>(info.param)).name) + "_" +
         std::string(Name(std::get<1>(info.param))) + DigitsName(std::get<2>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Types, QuantizedMatrixTest,
                         testing::Combine(testing::ValuesIn(QuantizedTypes()),
                                          testing::ValuesIn(SupportedIsas()),
                                          testing::Values(1, 2)),
                         CaseName);

class QuantizeRowTest : public testing::TestWithParam<std::tuple<Isa, int>> {
 protected:
  Isa isa() const { return std::get<0>(GetParam()); }
  int digit_count() const { return std::get<1>(GetParam()); }
};

// The definition in double: q = round(x / unit), unit = max|x| / 16319, or / 127 in a block of one
// digit.
TEST_P(QuantizeRowTest, RoundsToTheNearestOfAllValues) {
  const int64_t rows = 5, k = 160;  // four blocks at once, and one more
  const TestActivations x(rows, k, isa(), digit_count(), 11);
  const FixedRows fixed = x.fixed.view();
  int two_digits = 0;
  for (int64_t b = 0; b < rows * k / 32; ++b) {
    const bool two = digit_count() == 2 || fixed.has_low[b] != 0;
    two_digits += two;
    float max = 0;
    int sum[2] = {0, 0};
    double value_sum = 0, size = 0;
    for (int i = 0; i < 32; ++i) max = std::max(max, std::abs(x.x[b * 32 + i]));
    const double unit = max / (two ? 16319.0 : 127.0);
    EXPECT_FLOAT_EQ(fixed.scales[b], digit_count() == 1 && two ? unit * 128 : unit);
    for (int64_t i = b * 32; i < (b + 1) * 32; ++i) {
      // The inverse of the unit is rounded too, by 2^-24 of up to 16319.
      EXPECT_NEAR(x.fixed.Value(i), x.x[i], 0.504 * unit);
      sum[i % 32 / 16] += x.fixed.Integer(i);
      value_sum += x.fixed.Value(i);
      size += std::abs(x.fixed.Value(i));
    }
    EXPECT_EQ(fixed.half_negated_sums[2 * b], -sum[0]);
    EXPECT_EQ(fixed.half_negated_sums[2 * b + 1], -sum[1]);
    EXPECT_EQ(fixed.negated_sums[b], -(sum[0] + sum[1]));
    EXPECT_NEAR(fixed.scaled_sums[b], value_sum, 1e-6 * size);
  }
  EXPECT_EQ(two_digits, digit_count() == 1 ? 3 : rows * k / 32);
}

// A block has a second digit where its largest is more than so many times the mean of all blocks'.
TEST_P(QuantizeRowTest, BlocksThatStandOutHaveASecondDigit) {
  if (digit_count() == 2) GTEST_SKIP() << "all blocks have two";
  TestActivations x(1, 6 * 32, isa(), digit_count(), 13);
  const auto has_low = [&](const std::vector<float>& largest, float stands_out) {
    for (size_t i = 0; i < x.x.size(); ++i) x.x[i] = i % 32 == 5 ? -largest[i / 32] : 0.0f;
    x.Quantize(isa(), digit_count(), stands_out);
    const uint8_t* const low = x.fixed.view().has_low;
    return std::vector<uint8_t>(low, low + 6);
  };
  using Flags = std::vector<uint8_t>;
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(has_low({1, 1, 1, 1, 1, 1}, 1), Flags({0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(has_low({1, 1, 1, 1, 1, 7}, 3), Flags({0, 0, 0, 0, 0, 1}));  // 2 in the mean
  EXPECT_EQ(has_low({1, 1, 1, 1, 1, 7}, 3.6f), Flags({0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(has_low({8, 1, 1, 1, 9, 1}, 2), Flags({1, 0, 0, 0, 1, 0}));  // 3.5
  EXPECT_EQ(has_low({8, 1, 1, 1, 9, 1}, 2.5f), Flags({0, 0, 0, 0, 1, 0}));
  EXPECT_EQ(has_low({1, 1, 1e30f, 1, 1, 1}, inf), Flags({0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(has_low({0, 0, 0, 0, 0, 0}, 3), Flags({0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(has_low({1, inf, 1, 9, 1, 1}, 3), Flags({0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(has_low({1, nan, 1, 1, 1, 9}, 3)[1], 0);
}

// A NaN must not be rounded to a number: its block's scale is NaN, and so is every product.
TEST_P(QuantizeRowTest, NaNAnywhereStaysNaN) {
  TestActivations x(1, 160, isa(), digit_count(), 14);
  for (const int64_t block : {1, 4}) {  // one of four at once, and one by itself
    for (int64_t i = 32 * block; i < 32 * (block + 1); ++i) {
      const float before = std::exchange(x.x[i], std::numeric_limits<float>::quiet_NaN());
      x.Quantize(isa(), digit_count());
      EXPECT_TRUE(std::isnan(x.fixed.view().scales[block])) << i;
      EXPECT_FALSE(std::isnan(x.fixed.view().scales[2])) << i;
      x.x[i] = -before;
    }
  }
}

TEST_P(QuantizeRowTest, EveryLevelGivesTheSameIntegers) {
  constexpr int64_t kRows = 7, kK = 320;
  const TestActivations x(kRows, kK, isa(), digit_count(), 12);
  const TestActivations portable(kRows, kK, Isa::kPortable, digit_count(), 12);
  const FixedRows got = x.fixed.view(), want = portable.fixed.view();
  for (int64_t i = 0; i < kRows * kK; ++i) {
    ASSERT_EQ(x.fixed.Integer(i), portable.fixed.Integer(i));
    if (got.words == nullptr) continue;
    constexpr int kPlaces[] = {0, 2, 1, 3};
    ASSERT_EQ(got.words[i / 4 * 4 + kPlaces[i % 4]], x.fixed.Integer(i));
  }
  EXPECT_EQ(got.words != nullptr, TestActivations::HasWords(isa(), digit_count()));
  for (int64_t b = 0; b < kRows * kK / 32; ++b) {
    EXPECT_EQ(got.scales[b], want.scales[b]);
    EXPECT_EQ(got.negated_sums[b], want.negated_sums[b]);
    EXPECT_EQ(got.half_negated_sums[2 * b], want.half_negated_sums[2 * b]);
    EXPECT_EQ(got.half_negated_sums[2 * b + 1], want.half_negated_sums[2 * b + 1]);
    if (digit_count() == 1) {
      EXPECT_EQ(got.has_low[b], want.has_low[b]);
    }
  }
}

class SiluMulTest : public testing::TestWithParam<Isa> {};

TEST_P(SiluMulTest, IsCloseForEveryMagnitude) {
  std::vector<float> gate, up;
  for (float g = -120.0f; g < 120.0f; g += 0.37f) {
    gate.push_back(g);
    up.push_back(1.0f + 0.01f * static_cast<float>(gate.size() % 13));
  }
  std::vector<float> out = gate;
  QuantizedKernelsFor(GetParam()).silu_mul(out.data(), up.data(), static_cast<int64_t>(out.size()));
  for (size_t i = 0; i < out.size(); ++i) {
    const double want = gate[i] / (1.0 + std::exp(-static_cast<double>(gate[i]))) * up[i];
    EXPECT_NEAR(out[i], want, 1e-6 * std::abs(want) + 1e-30) << gate[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, QuantizeRowTest,
                         testing::Combine(testing::ValuesIn(SupportedIsas()),
                                          testing::Values(1, 2)),
                         [](const auto& info) {
                           return std::string(Name(std::get<0>(info.param))) +
                                  DigitsName(std::get<1>(info.param));
                         });
INSTANTIATE_TEST_SUITE_P(Levels, SiluMulTest, testing::ValuesIn(SupportedIsas()),
                         [](const auto& info) { return std::string(Name(info.param)); });

TEST(PackQuantizedTest, RefusesWhatItCannotPack) {
  CpuDevice device;
  ThreadPool pool(1);
  const std::vector<std::byte> data(1 << 16);
  const auto code = [&](std::vector<WeightSlice> slices) {
    return PackQuantized(slices, ActivationForm::kFixed, Isa::kPortable, device, pool, false)
        .status()
        .code();
  };
  const std::vector<int32_t> short_order = {0, 1}, wild_order = {0, 1, 2, 4};
  EXPECT_EQ(code({}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({{DType::kF32, 4, 64, data.data()}}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({{DType::kQ4_K, 4, 288, data.data()}}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({{DType::kQ4_0, 4, 64, data.data()}, {DType::kQ4_1, 4, 64, data.data()}}),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({{DType::kQ4_0, 4, 64, data.data()}, {DType::kQ4_0, 4, 96, data.data()}}),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({{DType::kQ4_0, 4, 64, data.data(), short_order}}),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({{DType::kQ4_0, 4, 64, data.data(), wild_order}}),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({{DType::kQ4_0, 4, 64, data.data()}}), absl::StatusCode::kOk);
}

}  // namespace
}  // namespace refrain::kernels::cpu
