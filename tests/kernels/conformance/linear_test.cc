#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/reference/reference_backend.h"
#include "tests/kernels/conformance/backends.h"
#include "tests/kernels/conformance/device_array.h"
#include "tests/kernels/cpu/quantized_blocks.h"

// Matrix products over stored weights and look-ups in them, on every back end. (The CPU's forms of
// a weight have their own tests, tests/kernels/cpu, as have mixed weights on threads.)

namespace refrain::kernels {
namespace {

// |got - want| over |want|, both as vectors.
double RelativeError(const std::vector<float>& got, const std::vector<float>& want) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += std::pow(static_cast<double>(got[i]) - want[i], 2);
    norm += std::pow(static_cast<double>(want[i]), 2);
  }
  return std::sqrt(error / norm);
}

// Stored rows of any type; dense ones from a normal distribution.
std::vector<std::byte> StoredRows(DType dtype, int64_t rows, int64_t cols, uint32_t seed) {
  if (Traits(dtype).quantized) return cpu::RandomRows(dtype, rows, cols, seed);
  const std::vector<float> values = RandomFloats(rows * cols, seed);
  std::vector<std::byte> stored(values.size() * Traits(dtype).block_bytes);
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::kF32) {
      std::memcpy(stored.data() + 4 * i, &values[i], 4);
    } else if (dtype == DType::kF16) {
      const auto half = static_cast<_Float16>(values[i]);
      std::memcpy(stored.data() + 2 * i, &half, 2);
    } else {
      std::memcpy(stored.data() + 2 * i, reinterpret_cast<const std::byte*>(&values[i]) + 2, 2);
    }
  }
  return stored;
}

// A weight on a back end and on the reference.
struct PackedTwice {
  PackedTwice(Backend& backend, ReferenceBackend& reference, std::span<const WeightSlice> slices,
              PackOptions options)
      : got(*backend.PackLinear(slices, options)), want(*reference.PackLinear(slices, options)) {}

  std::unique_ptr<LinearWeight> got, want;
};

class LinearConformance : public ::testing::TestWithParam<std::tuple<BackendCase, DType>> {
 protected:
  DType dtype() const { return std::get<1>(GetParam()); }
  // Ragged where the type allows it.
  int64_t cols() const {
    return dtype() >= DType::kQ4_K ? 512 : Traits(dtype()).quantized ? 352 : 83;
  }

  std::unique_ptr<Backend> backend_ = std::get<0>(GetParam()).Make();
  ReferenceBackend reference_;
};

// Exact weights and activations; f16 rounds both by up to 2^-11, bf16 by up to 2^-9. Beside
// quantised weights the CPU's activations have 15 bits, beside others in f16 they are exact; asked
// for, 8 bits.
double Tolerance(const BackendCase& backend, ComputeDType compute, DType dtype) {
  if (compute ==
      ComputeDType::kInt8) {  // as kAuto where weights are not quantised, and on a device
    if (Traits(dtype).quantized && backend.cuda.empty()) return 1e-2;
    compute = ComputeDType::kAuto;
  }
  if (compute == ComputeDType::kF32 || (compute == ComputeDType::kAuto && dtype == DType::kF32)) {
    return 1e-6;
  }
  if (backend.cuda.empty() && compute == ComputeDType::kAuto && dtype != DType::kBF16) {
    return Traits(dtype).quantized ? 1e-4 : 1e-6;
  }
  return compute == ComputeDType::kBF16 || dtype == DType::kBF16 ? 4e-3 : 6e-4;
}

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
                  Tolerance(std::get<0>(GetParam()), compute, dtype()))
            << rows << " rows, compute " << static_cast<int>(compute);
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

std::string CaseName(const ::testing::TestParamInfo<std::tuple<BackendCase, DType>>& info) {
  return std::get<0>(info.param).name() + "_" + std::string(Traits(std::get<1>(info.param)).name);
}

std::vector<DType> AllTypes() {
  std::vector<DType> types;
  for (const DTypeTraits& traits : kDTypes) types.push_back(traits.dtype);
  return types;
}

INSTANTIATE_TEST_SUITE_P(Backends, LinearConformance,
                         ::testing::Combine(::testing::ValuesIn(BackendCases()),
                                            ::testing::ValuesIn(AllTypes())),
                         CaseName);

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

TEST_P(LinearOfMixedSlices, GateUpMatchesTheOracle) {
  const int64_t ffn = 90, hidden = 96;
  const auto gate_data = cpu::RandomRows(DType::kQ4_1, ffn, hidden, 7);
  const auto up_data = cpu::RandomRows(DType::kQ8_0, ffn, hidden, 8);
  const WeightSlice gate_slice{DType::kQ4_1, ffn, hidden, gate_data.data(), {}};
  const WeightSlice up_slice{DType::kQ8_0, ffn, hidden, up_data.data(), {}};
  const double rounding = GetParam().cuda.empty() ? 1e-4 : 2e-3;
  for (const auto& [compute, tolerance] :
       {std::pair{ComputeDType::kAuto, rounding}, {ComputeDType::kF32, 2e-6}}) {
    const PackedTwice gate(*backend_, reference_, {&gate_slice, 1}, {compute});
    const PackedTwice up(*backend_, reference_, {&up_slice, 1}, {compute});
    for (const int64_t rows : {1, 9, 33}) {
      std::vector<float> x = RandomFloats(rows * hidden, 9), want(rows * ffn);
      const DeviceFloats device_x(*backend_, x), got(*backend_, want);
      backend_->GateUp({gate.got.get(), up.got.get(), F32View(device_x.data(), rows, hidden),
                        F32View(got.data(), rows, ffn)});
      reference_.GateUp({gate.want.get(), up.want.get(), F32View(x.data(), rows, hidden),
                         F32View(want.data(), rows, ffn)});
      EXPECT_LT(RelativeError(got.Read(), want), tolerance) << rows;
    }
  }
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

INSTANTIATE_TEST_SUITE_P(Backends, LinearOfMixedSlices, ::testing::ValuesIn(BackendCases()),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace refrain::kernels
