#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tests/kernels/conformance/backends.h"
#include "tests/kernels/conformance/device_array.h"
#include "tests/kernels/conformance/linear_oracle.h"

// What products offer for single rows, on every back end and of every type of weight: less exact
// ones for coarse rows (LinearArgs::coarse_rows), and only the greatest one (LinearArgMax).

namespace refrain::kernels {
namespace {

constexpr int64_t kMostRows = 200;  // more than one job's

class LinearRows : public ::testing::TestWithParam<BackendAndType> {
 protected:
  const BackendCase& backend_case() const { return std::get<0>(GetParam()); }
  DType dtype() const { return std::get<1>(GetParam()); }
  bool Quantized() const { return Traits(dtype()).quantized; }
  // More than one stretch of unpacked blocks where there are blocks.
  int64_t k() const { return dtype() >= DType::kQ4_K ? 768 : Quantized() ? 608 : 83; }

  // Some blocks are far larger than the others, as in activations.
  std::vector<float> Activations(uint32_t seed) const {
    std::vector<float> x = RandomFloats(kMostRows * k(), seed);
    for (size_t i = 0; i < x.size(); ++i) x[i] *= i / 32 % 11 == 3 ? 8 : 1;
    return x;
  }

  std::vector<int64_t> RowCounts() const {
    if (!backend_case().cuda.empty()) return {1, 2, 17, 40};  // it may be emulated
    std::vector<int64_t> counts = {kMostRows};
    for (int64_t rows = 1; rows <= 40; ++rows) counts.push_back(rows);
    return counts;
  }

  // Others for every count: coarse rows alone, and mixed with others.
  static std::vector<uint8_t> CoarseOf(int64_t rows) {
    std::vector<uint8_t> coarse(rows);
    for (int64_t i = 0; i < rows; ++i) coarse[i] = rows % 8 == 0 || (3 * i + rows) % 5 < 3 ? 1 : 0;
    return coarse;
  }

  // Calls compute(out, rows, coarse_rows) for every count of rows, where out is `before`'s first
  // [rows, n], and compares with `want`. Both are [kMostRows, n].
  template <class Compute>
  void ExpectOnlyCoarseRounded(std::span<const float> before, std::span<const float> want,
                               int64_t n, double exact_tolerance, double coarse_tolerance,
                               const Compute& compute) {
    int coarse_rounded = 0;
    std::vector<float> all_got[2], all_want[2];  // of rows that are not coarse, and that are
    for (const int64_t rows : RowCounts()) {
      const std::vector<float> begin(before.begin(), before.begin() + rows * n);
      const DeviceFloats device_got(*backend_, begin), device_without(*backend_, begin);
      const std::vector<uint8_t> coarse = CoarseOf(rows);
      compute(F32View(device_got.data(), rows, n), rows, coarse);
      compute(F32View(device_without.data(), rows, n), rows, std::span<const uint8_t>());
      const std::vector<float> got = device_got.Read(), without = device_without.Read();
      for (int64_t row = 0; row < rows; ++row) {
        const auto of_row = [&](std::span<const float> all) { return all.subspan(row * n, n); };
        const bool same = std::ranges::equal(of_row(got), of_row(without));
        ASSERT_TRUE(same || coarse[row] != 0) << "row " << row << " of " << rows;
        coarse_rounded += same ? 0 : 1;
        const auto append = [&](std::span<const float> from, std::vector<float>& to) {
          to.insert(to.end(), of_row(from).begin(), of_row(from).end());
        };
        append(got, all_got[coarse[row]]);
        append(want, all_want[coarse[row]]);
      }
    }
    EXPECT_LT(RelativeError(all_got[0], all_want[0]), exact_tolerance);
    EXPECT_LT(RelativeError(all_got[1], all_want[1]), coarse_tolerance);
    // A back end may round; the CPU's does, but where words of 16 bits are no slower than bytes.
    const bool words =
        dtype() == DType::kQ8_0 && (backend_case().isa == "avx2" || backend_case().isa == "avx512");
    EXPECT_EQ(coarse_rounded > 0, Quantized() && backend_case().cuda.empty() && !words);
  }

  std::unique_ptr<Backend> backend_ = backend_case().Make();
  ReferenceBackend reference_;
};

TEST_P(LinearRows, OnlyCoarseOnesAreRounded) {
  constexpr int64_t kOut = 77;
  const auto gate_data = StoredRows(dtype(), kOut, k(), 1),
             up_data = StoredRows(dtype(), kOut, k(), 2);
  const PackedTwice gate(*backend_, reference_, {dtype(), kOut, k(), gate_data.data(), {}}, {});
  const PackedTwice up(*backend_, reference_, {dtype(), kOut, k(), up_data.data(), {}}, {});
  std::vector<float> x = Activations(3);
  const std::vector<float> before = RandomFloats(kMostRows * kOut, 6);
  std::vector<float> want = before;
  const DeviceFloats device_x(*backend_, x);
  const TensorView all = F32View(x.data(), kMostRows, k());
  const double exact = LinearTolerance(backend_case(), ComputeDType::kAuto, dtype());
  const double rounded = LinearTolerance(backend_case(), ComputeDType::kInt8, dtype());

  reference_.Linear({gate.want.get(), all, F32View(want.data(), kMostRows, kOut), true});
  ExpectOnlyCoarseRounded(
      before, want, kOut, exact, rounded,
      [&](const TensorView& out, int64_t rows, std::span<const uint8_t> coarse) {
        const TensorView in = F32View(device_x.data(), rows, k());
        backend_->Linear({gate.got.get(), in, out, /*accumulate=*/true, false, coarse});
      });

  // Errors of two factors add.
  reference_.GateUp({gate.want.get(), up.want.get(), all, F32View(want.data(), kMostRows, kOut)});
  ExpectOnlyCoarseRounded(
      before, want, kOut, 2 * exact, 2 * rounded,
      [&](const TensorView& out, int64_t rows, std::span<const uint8_t> coarse) {
        const TensorView in = F32View(device_x.data(), rows, k());
        backend_->GateUp({gate.got.get(), up.got.get(), in, out, false, coarse});
      });
}

// The greatest of what Linear computes, to the bit; of the oracle's, it is as near to the greatest
// as two products' errors let it be.
TEST_P(LinearRows, HaveTheirGreatestProductFound) {
  constexpr int64_t kOut = 641;
  const auto stored = StoredRows(dtype(), kOut, k(), 4);
  const PackedTwice weight(*backend_, reference_, {dtype(), kOut, k(), stored.data(), {}},
                           {.argmax = true});
  std::vector<float> x = Activations(5), want(kMostRows * kOut);
  const DeviceFloats device_x(*backend_, x);
  reference_.Linear({weight.want.get(), F32View(x.data(), kMostRows, k()),
                     F32View(want.data(), kMostRows, kOut)});
  const double tolerance = LinearTolerance(backend_case(), ComputeDType::kAuto, dtype());
  // Of thousands of errors the greatest is a few times their typical size.
  const double most_off = 2 * 5 * tolerance * TypicalSize(want);
  int64_t decided = 0, asked = 0;
  for (const int64_t rows : RowCounts()) {
    SCOPED_TRACE(rows);
    const TensorView in = F32View(device_x.data(), rows, k());
    const DeviceFloats device_all(*backend_, std::vector<float>(rows * kOut));
    backend_->Linear({weight.got.get(), in, F32View(device_all.data(), rows, kOut), false,
                      /*reproducible=*/true});
    const std::vector<float> all = device_all.Read();
    std::vector<int32_t> got(rows, -7);
    backend_->LinearArgMax({weight.got.get(), in, got});
    for (int64_t row = 0; row < rows; ++row) {
      ++asked;
      if (got[row] == LinearArgMaxArgs::kUndecided) continue;
      ++decided;
      const auto of_row = [&](std::span<const float> products) {
        return products.subspan(row * kOut, kOut);
      };
      const auto greatest = std::ranges::max_element(of_row(all));
      ASSERT_EQ(got[row], greatest - of_row(all).begin()) << "row " << row;
      const std::span<const float> oracle = of_row(want);
      ASSERT_LT(std::ranges::max(oracle) - oracle[got[row]], most_off) << "row " << row;
    }
  }
  // The CPU can tell of nearly every row of a quantised weight; others it leaves to Linear.
  const bool searches = Quantized() && backend_case().cuda.empty();
  EXPECT_GE(decided, searches ? asked * 9 / 10 : 0);
  EXPECT_LE(decided, searches ? asked : 0);
}

INSTANTIATE_TEST_SUITE_P(Backends, LinearRows, ::testing::ValuesIn(BackendsAndTypes()),
                         BackendAndTypeName);

}  // namespace
}  // namespace refrain::kernels
