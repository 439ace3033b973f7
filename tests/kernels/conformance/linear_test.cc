#include <gtest/gtest.h>

#include <cmath>
#include <tuple>
#include <vector>

#include "tests/kernels/conformance/backends.h"
#include "tests/kernels/conformance/device_array.h"
#include "tests/kernels/conformance/linear_oracle.h"
#include "tests/kernels/cpu/quantized_blocks.h"

// Matrix products over stored weights and look-ups in them, on every back end. (The CPU's forms of
// a weight have their own tests, tests/kernels/cpu, as have mixed weights on threads.)

namespace refrain::kernels {
namespace {

class LinearConformance : public ::testing::TestWithParam<BackendAndType> {
 protected:
  DType dtype() const { return std::get<1>(GetParam()); }
  // Ragged where the type allows it.
  int64_t cols() const {
    return dtype() >= DType::kQ4_K ? 512 : Traits(dtype()).quantized ? 352 : 83;
  }

  std::unique_ptr<Backend> backend_ = std::get<0>(GetParam()).Make();
  ReferenceBackend reference_;
};

TEST_P(LinearConformance, MatchesTheOracleForEveryNumberOfRows) {
  constexpr int64_t kOut = 77;
  const std::vector<std::byte> stored = StoredRows(dtype(), kOut, cols(), 1);
  const WeightSlice slice{dtype(), kOut, cols(), stored.data(), {}};
  for (const ComputeDType compute :
       {ComputeDType::kAuto, ComputeDType::kF32, ComputeDType::kBF16, ComputeDType::kInt8}) {
    const PackedTwice weight(*backend_, reference_, {&slice, 1}, {compute});
    for (const int64_t rows : {1, 3, 5, 16, 17, 70, 257}) {
      // The same kernels.
      if (rows > 70 && (compute == ComputeDType::kF32 || compute == ComputeDType::kBF16)) continue;
      for (const bool accumulate : {false, true}) {
        if (accumulate && rows % 2 == 0) continue;
        const int64_t x_stride = cols() + 1 + rows % 4, out_stride = kOut + 3;
        std::vector<float> x = RandomFloats(rows * x_stride, 4);
        std::vector<float> want = RandomFloats(rows * out_stride, 5);
        const DeviceFloats device_x(*backend_, x), got(*backend_, want);
        LinearArgs args;
        args.accumulate = accumulate;
        args.weight = weight.got.get();
        args.x = {device_x.data(), DType::kF32, rows, cols(), x_stride};
        args.out = {got.data(), DType::kF32, rows, kOut, out_stride};
        backend_->Linear(args);
        args.weight = weight.want.get();
        args.x.data = x.data();
        args.out.data = want.data();
        reference_.Linear(args);
        EXPECT_LT(RelativeError(got.Read(), want),
                  LinearTolerance(std::get<0>(GetParam()), compute, dtype()))
            << rows << " rows, compute " << static_cast<int>(compute);
      }
    }
  }
}

// Outputs: less than a tile of 16, a tile, one more. k: a single block, less than a stretch of 18
// blocks of 32 (what the CPU unpacks at a time), a stretch, two and three of unequal length.
TEST_P(LinearConformance, MatchesTheOracleInEveryShape) {
  const bool blocks256 = Traits(dtype()).block_elements == 256;
  const bool blocks32 = Traits(dtype()).block_elements == 32;
  const std::vector<int64_t> ks = blocks256  ? std::vector<int64_t>{256, 512, 768, 1280}
                                  : blocks32 ? std::vector<int64_t>{32, 352, 576, 608, 1184}
                                             : std::vector<int64_t>{1, 31, 64, 83, 601};
  constexpr int64_t kMostRows = 33;
  for (const int64_t n : {1, 15, 16, 17, 77}) {
    for (const int64_t k : ks) {
      const std::vector<std::byte> stored = StoredRows(dtype(), n, k, 7);
      const WeightSlice slice{dtype(), n, k, stored.data(), {}};
      std::vector<float> x = RandomFloats(kMostRows * k, 8);
      const DeviceFloats device_x(*backend_, x);
      for (const ComputeDType compute :
           {ComputeDType::kAuto, ComputeDType::kF32, ComputeDType::kInt8}) {
        const PackedTwice weight(*backend_, reference_, slice, {compute});
        std::vector<float> want(kMostRows * n);
        reference_.Linear({weight.want.get(), F32View(x.data(), kMostRows, k),
                           F32View(want.data(), kMostRows, n)});
        // Compared together: single products may happen to be near 0.
        std::vector<float> got, expected;
        for (const int64_t rows : {int64_t{1}, int64_t{6}, kMostRows}) {
          const DeviceFloats out(*backend_, std::vector<float>(rows * n, 1e9f));
          backend_->Linear(
              {weight.got.get(), F32View(device_x.data(), rows, k), F32View(out.data(), rows, n)});
          const std::vector<float> values = out.Read();
          got.insert(got.end(), values.begin(), values.end());
          expected.insert(expected.end(), want.begin(), want.begin() + rows * n);
        }
        EXPECT_LT(RelativeError(got, expected),
                  LinearTolerance(std::get<0>(GetParam()), compute, dtype()))
            << n << " x " << k << ", compute " << static_cast<int>(compute);
      }
    }
  }
}

TEST_P(LinearConformance, EmbedsExactly) {
  const std::vector<std::byte> stored = StoredRows(dtype(), 20, cols(), 2);
  const WeightSlice slice{dtype(), 20, cols(), stored.data(), {}};
  const PackedTwice table(*backend_, reference_, {&slice, 1}, {.embedding = true});
  const std::vector<int32_t> ids = {0, 19, 7, 7, 3};
  std::vector<float> want(5 * cols());
  const DeviceFloats got(*backend_, want);
  backend_->Embed({table.got.get(), ids, F32View(got.data(), 5, cols())});
  reference_.Embed({table.want.get(), ids, F32View(want.data(), 5, cols())});
  EXPECT_EQ(got.Read(), want);
}

// With `reproducible`, each row has the bits that it has in any batch.
TEST_P(LinearConformance, RowsHaveTheSameBitsForAnyCount) {
  constexpr int64_t kOut = 40, kRows = 260;
  const std::vector<std::byte> stored = StoredRows(dtype(), kOut, cols(), 3);
  const WeightSlice slice{dtype(), kOut, cols(), stored.data(), {}};
  for (const ComputeDType compute :
       {ComputeDType::kAuto, ComputeDType::kF32, ComputeDType::kInt8}) {
    const auto weight = *backend_->PackLinear({&slice, 1}, {compute});
    const DeviceFloats x(*backend_, RandomFloats(kRows * cols(), 6));
    const DeviceFloats together(*backend_, std::vector<float>(kRows * kOut));
    const DeviceFloats parts(*backend_, std::vector<float>(kRows * kOut));
    const auto multiply = [&](const DeviceFloats& out, int64_t begin, int64_t rows) {
      backend_->Linear({weight.get(), F32View(x.data() + begin * cols(), rows, cols()),
                        F32View(out.data() + begin * kOut, rows, kOut), false, true});
    };
    multiply(together, 0, kRows);
    int64_t row = 0;
    for (const int64_t rows : {1, 2, 4, 5, 9, 17, 65, 157}) {
      multiply(parts, row, rows);
      row += rows;
    }
    ASSERT_EQ(row, kRows);
    EXPECT_EQ(parts.Read(), together.Read());
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, LinearConformance, ::testing::ValuesIn(BackendsAndTypes()),
                         BackendAndTypeName);

class LinearOfMixedSlices : public ::testing::TestWithParam<BackendCase> {
 protected:
  std::unique_ptr<Backend> backend_ = GetParam().Make();
  ReferenceBackend reference_;
};

// Three slices of two types, as attention weights of mixed files are, one of them reordered.
TEST_P(LinearOfMixedSlices, MatchesTheOracle) {
  constexpr int64_t kCols = 256;
  const auto q = cpu::RandomRows(DType::kQ4_K, 40, kCols, 1);
  const auto k = cpu::RandomRows(DType::kQ4_K, 21, kCols, 2);
  const auto v = cpu::RandomRows(DType::kQ6_K, 19, kCols, 3);
  std::vector<int32_t> order;
  for (int i = 0; i < 40; ++i) order.push_back((i * 11 + 5) % 40);
  const WeightSlice slices[] = {{DType::kQ4_K, 40, kCols, q.data(), order},
                                {DType::kQ4_K, 21, kCols, k.data(), {}},
                                {DType::kQ6_K, 19, kCols, v.data(), {}}};
  const PackedTwice weight(*backend_, reference_, slices, {ComputeDType::kF32, true});
  ASSERT_EQ(weight.got->n(), 80);
  std::vector<float> x = RandomFloats(6 * kCols, 4), want(6 * 80);
  const DeviceFloats device_x(*backend_, x), got(*backend_, want);
  backend_->Linear(
      {weight.got.get(), F32View(device_x.data(), 6, kCols), F32View(got.data(), 6, 80)});
  reference_.Linear({weight.want.get(), F32View(x.data(), 6, kCols), F32View(want.data(), 6, 80)});
  EXPECT_LT(RelativeError(got.Read(), want), 1e-6);

  const std::vector<int32_t> ids = {0, 79, 61, 60, 40, 39, 7};
  std::vector<float> want_rows(7 * kCols);
  const DeviceFloats rows(*backend_, want_rows);
  backend_->Embed({weight.got.get(), ids, F32View(rows.data(), 7, kCols)});
  reference_.Embed({weight.want.get(), ids, F32View(want_rows.data(), 7, kCols)});
  EXPECT_EQ(rows.Read(), want_rows);
}

// f16 has no room for such activations: they become its largest number, not infinity.
TEST_P(LinearOfMixedSlices, ActivationsBeyondF16StayFinite) {
  const std::vector<std::byte> stored = StoredRows(DType::kF16, 16, 64, 1);
  const WeightSlice slice{DType::kF16, 16, 64, stored.data(), {}};
  const auto weight = *backend_->PackLinear({&slice, 1}, {});
  const DeviceFloats x(*backend_, std::vector<float>(8 * 64, -1e30f));
  const DeviceFloats out(*backend_, std::vector<float>(8 * 16));
  backend_->Linear({weight.get(), F32View(x.data(), 8, 64), F32View(out.data(), 8, 16)});
  for (const float value : out.Read()) EXPECT_TRUE(std::isfinite(value));
}

// Whoever chooses among the sums has to see them, or a request would get made-up tokens.
TEST_P(LinearOfMixedSlices, ActivationsThatAreNoNumbersGiveNone) {
  constexpr int64_t kRows = 8, kCols = 64, kOut = 16;
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32, DType::kQ8_0}) {
    const std::vector<std::byte> stored = StoredRows(dtype, kOut, kCols, 1);
    const WeightSlice slice{dtype, kOut, kCols, stored.data(), {}};
    const auto weight = *backend_->PackLinear({&slice, 1}, {});
    std::vector<float> values = RandomFloats(kRows * kCols, 2);
    values[2 * kCols + 5] = std::nanf("");
    values[5 * kCols + 63] = -INFINITY;
    const DeviceFloats x(*backend_, values);
    const DeviceFloats out(*backend_, std::vector<float>(kRows * kOut));
    backend_->Linear(
        {weight.get(), F32View(x.data(), kRows, kCols), F32View(out.data(), kRows, kOut)});
    const std::vector<float> sums = out.Read();
    for (int64_t i = 0; i < kRows * kOut; ++i) {
      const int64_t row = i / kOut;
      EXPECT_EQ(std::isfinite(sums[i]), row != 2 && row != 5)
          << "type " << static_cast<int>(dtype) << ", row " << row << ": " << sums[i];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, LinearOfMixedSlices, ::testing::ValuesIn(BackendCases()),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace refrain::kernels
