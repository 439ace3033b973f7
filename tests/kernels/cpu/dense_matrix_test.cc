#include "kernels/cpu/dense_matrix.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/tile_kernels.h"
#include "kernels/cpu/tile_rows_memory.h"
#include "kernels/reference/dequantize.h"
#include "kernels/reference/host_device.h"
#include "tests/kernels/cpu/dense_emulated_kernels.h"

namespace refrain::kernels::cpu {
namespace {

constexpr int64_t kPadK = 64;  // of bf16 activations

uint16_t ToBf16(float value) {  // finite values
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// Rounds to the 11 bits of f16; the values used here are normal numbers of f16.
float RoundedToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>((bits + 0xfff + ((bits >> 13) & 1)) & ~0x1fffu);
}

// Magnitudes in [0.25, 4), any sign: neighbours differ, none is denormal in any form.
std::vector<float> RandomValues(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    const float magnitude = std::ldexp(1.0f + (random() >> 8) * 0x1p-24f, -2 + int(random() % 4));
    value = random() % 2 == 0 ? magnitude : -magnitude;
  }
  return values;
}

WeightSlice F32Slice(const std::vector<float>& values, int64_t rows, int64_t cols) {
  return {DType::kF32, rows, cols, reinterpret_cast<const std::byte*>(values.data()), {}};
}

// x in all forms, with NaN wherever a kernel has no business.
struct TestActivations {
  TestActivations(const std::vector<float>& values, int64_t rows, int64_t k) {
    const int64_t stride = k + 3;
    const int64_t bf16_stride = (k + kPadK - 1) / kPadK * kPadK;
    f32.assign(rows * stride, NAN);
    bf16.assign(rows * bf16_stride, 0);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < k; ++i) {
        f32[r * stride + i] = values[r * k + i];
        bf16[r * bf16_stride + i] = ToBf16(values[r * k + i]);
      }
    }
    tiles.Resize(rows, k, /*exact=*/false);
    for (int64_t r = 0, padded = tiles.view().steps * kTileK; r < (rows + 15) / 16 * 16; ++r) {
      for (int64_t i = 0; i < padded; ++i) {
        tiles.high(r)[i / kTileK * kTileElements + i % kTileK] = r >= rows ? uint16_t{0x7fc1}
                                                                 : i < k ? ToBf16(values[r * k + i])
                                                                         : 0;
      }
    }
    view = {.rows = rows,
            .k = k,
            .f32 = f32.data(),
            .f32_stride = stride,
            .bf16 = bf16.data(),
            .bf16_stride = bf16_stride,
            .tiles = tiles.view()};
  }

  // Only what the matrix asks for.
  Activations For(const PackedMatrix& matrix, bool reproducible) const {
    Activations x = view;
    const ActivationForm form = matrix.form({x.rows, reproducible});
    if (form != ActivationForm::kF32) x.f32 = nullptr;
    if (form != ActivationForm::kBF16) x.bf16 = nullptr;
    if (form != ActivationForm::kTiles) x.tiles = {};
    return x;
  }

  std::vector<float> f32;
  std::vector<uint16_t> bf16;
  TileRowsMemory tiles;
  Activations view;
};

// An output with a frame: rows and columns that must stay as they are.
struct TestOutput {
  TestOutput(int64_t rows, int64_t n) : rows(rows), n(n), stride(n + 5) {
    const std::vector<float> before = RandomValues((rows + 1) * stride, 99);
    values = before;
    for (int64_t r = 0; r <= rows; ++r) {
      for (int64_t i = 0; i < stride; ++i) {
        if (r == rows || i >= n) values[r * stride + i] = NAN;
      }
    }
    initial = values;
  }
  float At(int64_t row, int64_t column) const { return values[row * stride + column]; }
  float InitialAt(int64_t row, int64_t column) const { return initial[row * stride + column]; }
  bool Untouched(int64_t row, int64_t column) const {
    const int64_t i = row * stride + column;
    return std::bit_cast<uint32_t>(values[i]) == std::bit_cast<uint32_t>(initial[i]);
  }
  // Outside rows [row_begin, row_end) and columns [column_begin, column_end).
  bool UntouchedOutside(int64_t row_begin, int64_t row_end, int64_t column_begin,
                        int64_t column_end) const {
    for (int64_t r = 0; r <= rows; ++r) {
      for (int64_t i = 0; i < stride; ++i) {
        const bool inside = r >= row_begin && r < row_end && i >= column_begin && i < column_end;
        if (!inside && !Untouched(r, i)) return false;
      }
    }
    return true;
  }

  int64_t rows, n, stride;
  std::vector<float> values, initial;
};

struct Level {
  std::string name;
  bool bf16_dot = false, tiles = false;
  std::optional<Isa> isa;                // a level of this machine, or
  DenseKernels (*emulated)() = nullptr;  // kernels with emulated instructions
};

void PrintTo(const Level& level, std::ostream* out) { *out << level.name; }

std::vector<Level> Levels() {
  std::vector<Level> levels;
  bool avx512 = false;
  for (const Isa isa : SupportedIsas()) {
    levels.push_back({.name = std::string(Name(isa)),
                      .bf16_dot = isa >= Isa::kAvx512Bf16,
                      .tiles = isa >= Isa::kAmx});
    levels.back().isa = isa;
    avx512 |= isa == Isa::kAvx512;
  }
  if (avx512) {
    levels.push_back({.name = "avx512_bf16_emulated", .bf16_dot = true});
    levels.back().emulated = EmulatedBf16DenseKernels;
    levels.push_back({.name = "amx_emulated", .bf16_dot = true, .tiles = true});
    levels.back().emulated = EmulatedAmxDenseKernels;
  }
  return levels;
}

class DenseMatrixTest : public ::testing::TestWithParam<Level> {
 protected:
  // After every test of emulated tiles, whose log is compiled for AVX-512 as they are: no tile
  // instruction was used wrongly, and no tile was left in use.
  void TearDown() override {
    if (GetParam().emulated == nullptr) return;
    const EmulatedTileLog log = TakeEmulatedTileLog();
    EXPECT_EQ(log.violations, 0) << log.violation;
    EXPECT_FALSE(log.in_use);
  }

  absl::StatusOr<std::unique_ptr<PackedMatrix>> TryPack(std::span<const WeightSlice> slices,
                                                        DenseForm form) {
    const Level& level = GetParam();
    if (level.isa.has_value()) return PackDense(slices, form, *level.isa, memory_, pool_);
    return PackDense(slices, form, level.emulated(), memory_, pool_);
  }

  std::unique_ptr<PackedMatrix> Pack(std::span<const WeightSlice> slices, DenseForm form) {
    auto matrix = TryPack(slices, form);
    EXPECT_TRUE(matrix.ok()) << matrix.status();
    return *std::move(matrix);
  }

  std::unique_ptr<PackedMatrix> Pack(const std::vector<float>& w, int64_t n, int64_t k,
                                     DenseForm form) {
    const WeightSlice slice = F32Slice(w, n, k);
    return Pack({&slice, 1}, form);
  }

  static void MultiplyAll(const PackedMatrix& matrix, const TestActivations& x, TestOutput& out,
                          bool accumulate, bool reproducible) {
    const int64_t tiles = (matrix.n() + kTileN - 1) / kTileN;
    matrix.Multiply(x.For(matrix, reproducible), 0, x.view.rows, 0, tiles, out.values.data(),
                    out.stride, accumulate, reproducible);
  }

  HostDevice memory_;
  ThreadPool pool_{3};
};

float RoundedTo(DenseForm form, float value) {
  if (form == DenseForm::kF16) return RoundedToF16(value);
  if (form == DenseForm::kBF16) return Bf16ToF32(ToBf16(value));
  return value;
}

constexpr DenseForm kForms[] = {DenseForm::kF32, DenseForm::kF16, DenseForm::kBF16};

// Sums in double of what the form keeps of w and of what the matrix reads of x, and the bound that
// any order of k additions in f32 obeys: (k + 2) 2^-24 sum |x w|.
class Oracle {
 public:
  Oracle(const std::vector<float>& w, const std::vector<float>& x, int64_t k, DenseForm form,
         ActivationForm activations)
      : w_(w), x_(x), k_(k) {
    for (float& value : w_) value = RoundedTo(form, value);
    if (activations != ActivationForm::kF32) {
      for (float& value : x_) value = RoundedTo(DenseForm::kBF16, value);
    }
  }

  void Expect(int64_t row, int64_t column, double before, float actual) const {
    double sum = 0.0;
    double magnitude = 0.0;
    for (int64_t i = 0; i < k_; ++i) {
      const double product = double{x_[row * k_ + i]} * w_[column * k_ + i];
      sum += product;
      magnitude += std::abs(product);
    }
    const double bound =
        0x1p-24 * ((k_ + 2) * magnitude + std::abs(before) + std::abs(sum + before));
    const double error = std::abs(sum + before - actual);
    if (!(error <= bound)) {  // the comparison refuses NaN
      ADD_FAILURE() << "row " << row << " column " << column << ": " << actual << ", not "
                    << sum + before << " within " << bound;
    }
  }

 private:
  std::vector<float> w_, x_;
  int64_t k_;
};

struct Shape {
  int64_t rows, n, k;
};

std::vector<Shape> RaggedShapes() {
  std::vector<Shape> shapes;
  for (const int64_t k : {1, 8, 63, 64, 65, 172, 576}) {
    for (const int64_t n : {1, 15, 16, 17, 192, 513}) {
      for (const int64_t rows : {1, 2, 3, 7, 13, 64, 65}) shapes.push_back({rows, n, k});
    }
  }
  return shapes;
}

// Every shape, form, with and without accumulate, default and reproducible, in a NaN frame.
TEST_P(DenseMatrixTest, MatchesDoubleOracleOnRaggedShapes) {
  for (const DenseForm form : kForms) {
    for (const Shape& s : RaggedShapes()) {
      SCOPED_TRACE(testing::Message()
                   << "form " << int(form) << " rows " << s.rows << " n " << s.n << " k " << s.k);
      const std::vector<float> w = RandomValues(s.n * s.k, 1);
      const std::vector<float> values = RandomValues(s.rows * s.k, 2);
      const auto matrix = Pack(w, s.n, s.k, form);
      const TestActivations x(values, s.rows, s.k);
      const bool reproducible = (s.n + s.rows) % 2 == 0;
      const bool accumulate = (s.n / 2 + s.rows) % 3 == 0;
      TestOutput out(s.rows, s.n);
      MultiplyAll(*matrix, x, out, accumulate, reproducible);
      ASSERT_TRUE(out.UntouchedOutside(0, s.rows, 0, s.n));
      const Oracle oracle(w, values, s.k, form, matrix->form({s.rows, reproducible}));
      for (int64_t r = 0; r < s.rows; ++r) {
        // All columns of the first and last rows, some of the others.
        const int64_t stride = r == 0 || r == s.rows - 1 ? 1 : 7;
        for (int64_t c = r % stride; c < s.n; c += stride) {
          oracle.Expect(r, c, accumulate ? out.InitialAt(r, c) : 0.0, out.At(r, c));
        }
      }
      ASSERT_FALSE(HasFailure());
    }
  }
}

// k longer than the blocks that a product is cut into, rows around the blocks of rows.
TEST_P(DenseMatrixTest, CarriesSumsAcrossBlocksOfKAndRows) {
  for (const DenseForm form : kForms) {
    for (const Shape& s : {Shape{1, 33, 769}, Shape{5, 90, 1537}, Shape{14, 50, 768},
                           Shape{15, 49, 2303}, Shape{113, 272, 800}, Shape{353, 290, 1600}}) {
      SCOPED_TRACE(testing::Message()
                   << "form " << int(form) << " rows " << s.rows << " n " << s.n << " k " << s.k);
      const std::vector<float> w = RandomValues(s.n * s.k, 3);
      const std::vector<float> values = RandomValues(s.rows * s.k, 4);
      const auto matrix = Pack(w, s.n, s.k, form);
      const TestActivations x(values, s.rows, s.k);
      for (const bool accumulate : {false, true}) {
        TestOutput out(s.rows, s.n);
        MultiplyAll(*matrix, x, out, accumulate, false);
        ASSERT_TRUE(out.UntouchedOutside(0, s.rows, 0, s.n));
        const Oracle oracle(w, values, s.k, form, matrix->form({s.rows, false}));
        for (int64_t r = 0; r < s.rows; r += 1 + r % 5) {
          for (int64_t c = r % 3; c < s.n; c += 3) {
            oracle.Expect(r, c, accumulate ? out.InitialAt(r, c) : 0.0, out.At(r, c));
          }
        }
        ASSERT_FALSE(HasFailure());
      }
    }
  }
}

// A row alone and the same row among others, at every number of rows.
TEST_P(DenseMatrixTest, ReproducibleRowsAreBitEqualForEveryNumberOfRows) {
  constexpr int64_t kRows = 65, kN = 83;
  for (const DenseForm form : kForms) {
    for (const int64_t k : {172, 1001}) {
      const std::vector<float> values = RandomValues(kRows * k, 5);
      const auto matrix = Pack(RandomValues(kN * k, 6), kN, k, form);
      TestOutput alone(kRows, kN);
      for (int64_t r = 0; r < kRows; ++r) {
        const std::vector<float> row(values.begin() + r * k, values.begin() + (r + 1) * k);
        TestOutput one(1, kN);
        MultiplyAll(*matrix, TestActivations(row, 1, k), one, false, true);
        std::memcpy(&alone.values[r * alone.stride], one.values.data(), kN * sizeof(float));
      }
      for (int64_t rows = 2; rows <= kRows; ++rows) {
        TestOutput out(rows, kN);
        MultiplyAll(*matrix, TestActivations(values, rows, k), out, false, true);
        for (int64_t r = 0; r < rows; ++r) {
          ASSERT_EQ(std::memcmp(&out.values[r * out.stride], &alone.values[r * alone.stride],
                                kN * sizeof(float)),
                    0)
              << "form " << int(form) << " k " << k << " row " << r << " of " << rows;
        }
      }
    }
  }
}

// Threads take any ranges of rows and tiles: the bits are those of one call, nothing else changes.
TEST_P(DenseMatrixTest, AnyCutIntoRowsAndTilesGivesTheSameBits) {
  constexpr int64_t kRows = 61, kN = 200, kK = 900;
  constexpr int64_t kTiles = (kN + kTileN - 1) / kTileN;
  std::mt19937 random(7);
  for (const DenseForm form : kForms) {
    const auto matrix = Pack(RandomValues(kN * kK, 8), kN, kK, form);
    const TestActivations x(RandomValues(kRows * kK, 9), kRows, kK);
    for (const bool accumulate : {false, true}) {
      // Also by AMX tiles: their order of sums does not depend on the cut either.
      for (const bool reproducible : {false, true}) {
        TestOutput whole(kRows, kN);
        MultiplyAll(*matrix, x, whole, accumulate, reproducible);
        for (int i = 0; i < 20; ++i) {
          int64_t row_begin = random() % kRows,
                  row_end = row_begin + 1 + random() % (kRows - row_begin);
          if (matrix->form({kRows, reproducible}) == ActivationForm::kTiles) {
            row_begin = row_begin / kTileRows * kTileRows;
            row_end = std::min(kRows, (row_end + kTileRows - 1) / kTileRows * kTileRows);
          }
          const int64_t tile_begin = random() % kTiles;
          const int64_t tile_end = tile_begin + 1 + random() % (kTiles - tile_begin);
          SCOPED_TRACE(testing::Message()
                       << "form " << int(form) << " rows " << row_begin << ", " << row_end
                       << " tiles " << tile_begin << ", " << tile_end);
          TestOutput part(kRows, kN);
          matrix->Multiply(x.For(*matrix, reproducible), row_begin, row_end, tile_begin, tile_end,
                           part.values.data(), part.stride, accumulate, reproducible);
          const int64_t column_begin = tile_begin * kTileN;
          const int64_t column_end = std::min(tile_end * kTileN, kN);
          ASSERT_TRUE(part.UntouchedOutside(row_begin, row_end, column_begin, column_end));
          for (int64_t r = row_begin; r < row_end; ++r) {
            ASSERT_EQ(std::memcmp(&part.values[r * part.stride + column_begin],
                                  &whole.values[r * whole.stride + column_begin],
                                  (column_end - column_begin) * sizeof(float)),
                      0);
          }
        }
      }
    }
  }
}

TEST_P(DenseMatrixTest, EmptyRangesWriteNothing) {
  const auto matrix = Pack(RandomValues(40 * 8, 1), 40, 8, DenseForm::kF32);
  const TestActivations x(RandomValues(3 * 8, 2), 3, 8);
  TestOutput out(3, 40);
  matrix->Multiply(x.For(*matrix, false), 1, 1, 0, 3, out.values.data(), out.stride, false, false);
  matrix->Multiply(x.For(*matrix, false), 0, 3, 2, 2, out.values.data(), out.stride, false, false);
  EXPECT_TRUE(out.UntouchedOutside(0, 0, 0, 0));
}

// Two slices of different types, one with its rows in another order.
TEST_P(DenseMatrixTest, StacksSlicesOfDifferentTypesInRowOrder) {
  constexpr int64_t kK = 64;
  const std::vector<float> upper = RandomValues(3 * kK, 10);
  std::vector<uint16_t> lower(18 * kK);  // bf16
  const std::vector<float> lower_values = RandomValues(18 * kK, 11);
  for (size_t i = 0; i < lower.size(); ++i) lower[i] = ToBf16(lower_values[i]);
  std::vector<int32_t> order(18);
  for (int32_t i = 0; i < 18; ++i) order[i] = (i * 5) % 18;
  const WeightSlice slices[] = {
      F32Slice(upper, 3, kK),
      {DType::kBF16, 18, kK, reinterpret_cast<const std::byte*>(lower.data()), order}};
  for (const DenseForm form : kForms) {
    const auto matrix = Pack(slices, form);
    ASSERT_EQ(matrix->n(), 21);
    ASSERT_EQ(matrix->k(), kK);
    std::vector<float> row(kK);
    for (int64_t n = 0; n < 21; ++n) {
      matrix->DequantizeRow(n, row.data());
      for (int64_t k = 0; k < kK; ++k) {
        const float source = n < 3 ? upper[n * kK + k] : Bf16ToF32(lower[order[n - 3] * kK + k]);
        ASSERT_EQ(row[k], RoundedTo(form, source)) << "form " << int(form) << " row " << n;
      }
    }
  }
}

// A second copy: blocks of Q8_0 become bf16.
TEST_P(DenseMatrixTest, DequantizesQuantizedSlices) {
  constexpr int64_t kRows = 17, kK = 96;
  const size_t row_bytes = *RowBytes(DType::kQ8_0, kK);
  std::vector<std::byte> blocks(kRows * row_bytes);
  std::mt19937 random(12);
  for (std::byte& byte : blocks) byte = static_cast<std::byte>(random());
  for (size_t block = 0; block < blocks.size(); block += 34) {  // scales of 2^-8 to 2^-2
    const uint16_t scale = static_cast<uint16_t>((7 + random() % 7) << 10);
    std::memcpy(&blocks[block], &scale, sizeof(scale));
  }
  const WeightSlice slice{DType::kQ8_0, kRows, kK, blocks.data(), {}};
  const auto matrix = Pack({&slice, 1}, DenseForm::kBF16);
  std::vector<float> row(kK), expected(kK);
  for (int64_t n = 0; n < kRows; ++n) {
    matrix->DequantizeRow(n, row.data());
    DequantizeRow(DType::kQ8_0, blocks.data() + n * row_bytes, kK, expected.data());
    for (int64_t k = 0; k < kK; ++k) ASSERT_EQ(row[k], Bf16ToF32(ToBf16(expected[k])));
  }
}

// All 65,536 values of f16 survive the way through f32 weights; NaN stays NaN.
TEST_P(DenseMatrixTest, KeepsEveryF16ValueWhateverItsSource) {
  constexpr int64_t kK = 256, kN = 256;
  std::vector<uint16_t> halves(kK * kN);
  std::vector<float> wide(kK * kN);
  for (size_t i = 0; i < halves.size(); ++i) {
    halves[i] = static_cast<uint16_t>(i);
    wide[i] = F16ToF32(halves[i]);
  }
  const WeightSlice slices[] = {
      {DType::kF16, kN, kK, reinterpret_cast<const std::byte*>(halves.data()), {}},
      F32Slice(wide, kN, kK)};
  const auto matrix = Pack(slices, DenseForm::kF16);
  std::vector<float> row(kK);
  for (int64_t n = 0; n < 2 * kN; ++n) {
    matrix->DequantizeRow(n, row.data());
    for (int64_t k = 0; k < kK; ++k) {
      const float expected = wide[n % kN * kK + k];
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(row[k]));
      } else {
        ASSERT_EQ(std::bit_cast<uint32_t>(row[k]), std::bit_cast<uint32_t>(expected));
      }
    }
  }
}

// Widening in the kernels themselves, subnormals and infinities included: x = 1, k = 1.
TEST_P(DenseMatrixTest, MultipliesEveryF16ValueExactly) {
  constexpr int64_t kN = 65536;
  std::vector<uint16_t> halves(kN);
  for (int64_t i = 0; i < kN; ++i) halves[i] = static_cast<uint16_t>(i);
  const WeightSlice slice{
      DType::kF16, kN, 1, reinterpret_cast<const std::byte*>(halves.data()), {}};
  const auto matrix = Pack({&slice, 1}, DenseForm::kF16);
  for (const int64_t rows : {1, 20}) {
    const TestActivations x(std::vector<float>(rows, 1.0f), rows, 1);
    TestOutput out(rows, kN);
    MultiplyAll(*matrix, x, out, false, false);
    for (int64_t n = 0; n < kN; ++n) {
      const float expected = F16ToF32(halves[n]);
      const float actual = out.At(rows - 1, n);
      ASSERT_TRUE(actual == expected || (std::isnan(actual) && std::isnan(expected))) << n;
    }
  }
}

TEST_P(DenseMatrixTest, ReadsBf16ActivationsOnlyWithBf16Instructions) {
  const std::vector<float> w = RandomValues(16 * 32, 1);
  for (const bool reproducible : {false, true}) {
    for (const int64_t rows : {1, 64}) {
      EXPECT_EQ(Pack(w, 16, 32, DenseForm::kF32)->form({rows, reproducible}), ActivationForm::kF32);
      EXPECT_EQ(Pack(w, 16, 32, DenseForm::kF16)->form({rows, reproducible}), ActivationForm::kF32);
      const auto bf16 = GetParam().tiles && rows >= 8 && !reproducible ? ActivationForm::kTiles
                                                                       : ActivationForm::kBF16;
      EXPECT_EQ(Pack(w, 16, 32, DenseForm::kBF16)->form({rows, reproducible}),
                GetParam().bf16_dot ? bf16 : ActivationForm::kF32);
    }
  }
}

TEST_P(DenseMatrixTest, RefusesSlicesThatDoNotFit) {
  const std::vector<float> w(64 * 4);
  const WeightSlice good = F32Slice(w, 4, 64);
  WeightSlice narrow = F32Slice(w, 4, 32);
  const WeightSlice disagree[] = {good, narrow};
  const auto message = [&](std::span<const WeightSlice> slices) {
    const auto matrix = TryPack(slices, DenseForm::kF32);
    EXPECT_EQ(matrix.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(matrix.status().message());
  };
  EXPECT_EQ(message({}), "weight of no slices");
  EXPECT_EQ(message(disagree), "weight slice 1: 32 columns, slice 0 has 64");
  const WeightSlice ragged{DType::kQ8_0, 1, 40, good.data, {}};
  EXPECT_EQ(message({&ragged, 1}),
            "weight slice 0: 40 columns are no whole number of q8_0 blocks of 32");
  const WeightSlice empty = F32Slice(w, 0, 64);
  EXPECT_EQ(message({&empty, 1}), "weight of 0 x 64 elements");
  const std::vector<int32_t> few = {0, 1};
  WeightSlice ordered = good;
  ordered.row_order = few;
  EXPECT_EQ(message({&ordered, 1}), "weight slice 0: row order of 2 entries for 4 rows");
  const std::vector<int32_t> outside = {0, 1, 4, 2};
  ordered.row_order = outside;
  EXPECT_EQ(message({&ordered, 1}), "weight slice 0: row order names row 4 of 4");
}

INSTANTIATE_TEST_SUITE_P(Levels, DenseMatrixTest, ::testing::ValuesIn(Levels()),
                         [](const auto& info) { return info.param.name; });

// --- the emulation itself ---

class EmulationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (Levels().back().emulated == nullptr) GTEST_SKIP() << "emulated with AVX-512";
  }
};

TEST_F(EmulationTest, DotAddsOddElementsFirstAndFlushesDenormals) {
  const uint16_t one = ToBf16(1.0f);
  // 2^24 + 1 rounds back to 2^24; then -2^24 leaves 0. The other order would leave 1.
  EXPECT_EQ(EmulatedDotBf16(0x1p24f, ToBf16(-0x1p24f), one, one, one), 0.0f);
  EXPECT_EQ(EmulatedDotBf16(0x1p24f, one, ToBf16(-0x1p24f), one, one), 1.0f);
  const uint16_t denormal = 0x0001;
  EXPECT_EQ(EmulatedDotBf16(0.0f, denormal, 0, ToBf16(0x1p100f), 0), 0.0f);
  EXPECT_EQ(EmulatedDotBf16(0.0f, ToBf16(0x1p-100f), 0, ToBf16(0x1p-30f), 0), 0.0f);
  EXPECT_EQ(EmulatedDotBf16(0x1p-130f, 0, 0, 0, 0), 0.0f);
}

TEST_F(EmulationTest, TilesServeManyRowsUnlessReproducible) {
  HostDevice memory;
  ThreadPool pool(1);
  const std::vector<float> w = RandomValues(48 * 64, 1);
  const WeightSlice slice = F32Slice(w, 48, 64);
  const auto matrix =
      PackDense({&slice, 1}, DenseForm::kBF16, EmulatedAmxDenseKernels(), memory, pool);
  ASSERT_TRUE(matrix.ok());
  const auto tile_products = [&](int64_t rows, bool reproducible) {
    TestOutput out(rows, 48);
    const TestActivations x(RandomValues(rows * 64, 2), rows, 64);
    (*matrix)->Multiply(x.For(**matrix, reproducible), 0, rows, 0, 3, out.values.data(), out.stride,
                        false, reproducible);
    return TakeEmulatedTileLog().dots;
  };
  // Halves of 16 rows x panels x tiles along k.
  EXPECT_EQ(tile_products(7, false), 0);
  EXPECT_EQ(tile_products(8, false), 1 * 3 * 2);
  EXPECT_EQ(tile_products(64, false), 4 * 3 * 2);
  EXPECT_EQ(tile_products(64, true), 0);
}

TEST_F(EmulationTest, TileDotMultipliesPairsAndRefusesShapesThatDoNotFit) {
  // 2 rows x 4 elements times 4 elements x 3 columns, small integers: exact.
  uint16_t a[2][4], b[2][3][2];
  float sums[2][3], expected[2][3];
  for (int i = 0; i < 8; ++i) a[i / 4][i % 4] = ToBf16(float(i - 3));
  for (int i = 0; i < 12; ++i) (&b[0][0][0])[i] = ToBf16(float(2 * i - 5));
  for (int m = 0; m < 2; ++m) {
    for (int n = 0; n < 3; ++n) {
      sums[m][n] = expected[m][n] = float(m - n);
      for (int k = 0; k < 4; ++k) {
        expected[m][n] += Bf16ToF32(a[m][k]) * Bf16ToF32(b[k / 2][n][k % 2]);
      }
    }
  }
  EmulatedTileDot((const uint8_t[]){2, 2, 2}, (const uint16_t[]){12, 8, 12}, a, b, &sums[0][0]);
  for (int i = 0; i < 6; ++i) EXPECT_EQ((&sums[0][0])[i], (&expected[0][0])[i]);
  EXPECT_EQ(TakeEmulatedTileLog().violations, 0);
  EmulatedTileDot((const uint8_t[]){2, 2, 1}, (const uint16_t[]){12, 8, 12}, a, b, &sums[0][0]);
  EXPECT_GT(TakeEmulatedTileLog().violations, 0);
  EmulatedTileDot((const uint8_t[]){1, 2, 2}, (const uint16_t[]){12, 8, 12}, a, b, &sums[0][0]);
  EXPECT_GT(TakeEmulatedTileLog().violations, 0);
  EmulatedTileDot((const uint8_t[]){2, 2, 0}, (const uint16_t[]){12, 8, 12}, a, b, &sums[0][0]);
  EXPECT_GT(TakeEmulatedTileLog().violations, 0);
}

}  // namespace
}  // namespace refrain::kernels::cpu
