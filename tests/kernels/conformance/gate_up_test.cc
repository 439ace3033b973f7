#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/kernels/conformance/backends.h"
#include "tests/kernels/conformance/device_array.h"
#include "tests/kernels/conformance/linear_oracle.h"

// GateUp on every back end, of weights of any two types, as mixed files have them.

namespace refrain::kernels {
namespace {

class GateUpConformance : public ::testing::TestWithParam<BackendAndType> {
 protected:
  const BackendCase& backend_case() const { return std::get<0>(GetParam()); }
  DType gate_type() const { return std::get<1>(GetParam()); }

  // Errors of two factors add. (With 15 bits they stay within the limit of one.)
  double Tolerance(ComputeDType compute, DType up_type) const {
    const double gate = LinearTolerance(backend_case(), compute, gate_type());
    const double up = LinearTolerance(backend_case(), compute, up_type);
    const bool quantized = Traits(gate_type()).quantized || Traits(up_type).quantized;
    const bool has_15_bits =
        backend_case().cuda.empty() && compute == ComputeDType::kAuto && quantized;
    return has_15_bits ? std::max(gate, up) : gate + up;
  }

  // Ragged where both types allow it.
  int64_t HiddenOf(DType up_type) const {
    const int blocks = std::max(Traits(gate_type()).block_elements, Traits(up_type).block_elements);
    return blocks == 256 ? 512 : blocks == 32 ? 352 : 83;
  }

  void ExpectTheOracles(DType up_type) {
    const int64_t hidden = HiddenOf(up_type);
    constexpr int64_t kFfn = 90, kMostRows = 130;
    const auto gate_data = StoredRows(gate_type(), kFfn, hidden, 7);
    const auto up_data = StoredRows(up_type, kFfn, hidden, 8);
    const WeightSlice gate_slice{gate_type(), kFfn, hidden, gate_data.data(), {}};
    const WeightSlice up_slice{up_type, kFfn, hidden, up_data.data(), {}};
    std::vector<float> x = RandomFloats(kMostRows * hidden, 9);
    const DeviceFloats device_x(*backend_, x);
    for (const ComputeDType compute :
         {ComputeDType::kAuto, ComputeDType::kF32, ComputeDType::kBF16, ComputeDType::kInt8}) {
      const PackedTwice gate(*backend_, reference_, gate_slice, {compute});
      const PackedTwice up(*backend_, reference_, up_slice, {compute});
      std::vector<float> want(kMostRows * kFfn);
      // Many rows where the kernels are those of weights as stored.
      const int64_t most = compute == ComputeDType::kAuto ? kMostRows : 33;
      reference_.GateUp({gate.want.get(), up.want.get(), F32View(x.data(), most, hidden),
                         F32View(want.data(), most, kFfn)});
      for (const int64_t rows : {int64_t{1}, int64_t{9}, most}) {
        // Whatever was there is written over.
        const DeviceFloats got(*backend_, std::vector<float>(rows * kFfn, 1e9f));
        backend_->GateUp({gate.got.get(), up.got.get(), F32View(device_x.data(), rows, hidden),
                          F32View(got.data(), rows, kFfn)});
        EXPECT_LT(RelativeError(got.Read(), std::span(want).first(rows * kFfn)),
                  Tolerance(compute, up_type))
            << "up in " << Traits(up_type).name << ", " << rows << " rows, compute "
            << static_cast<int>(compute);
      }
    }
  }

  // What comes out of Linear behind it is the same, told of it before or not (in whatever form it
  // is kept), up to the rounding of sums.
  void ExpectAReaderToChangeNothing() {
    const int64_t hidden = HiddenOf(gate_type());
    const int block = Traits(gate_type()).block_elements;
    constexpr int64_t kOut = 40, kRows = 40;
    for (const int64_t ffn :
         {int64_t{block == 1 ? 90 : 3 * block}, int64_t{block == 1 ? 96 : block}}) {
      const auto gate_data = StoredRows(gate_type(), ffn, hidden, 7);
      const auto up_data = StoredRows(gate_type(), ffn, hidden, 8);
      const auto down_data = StoredRows(gate_type(), kOut, ffn, 9);
      const WeightSlice gate_slice{gate_type(), ffn, hidden, gate_data.data(), {}};
      const WeightSlice up_slice{gate_type(), ffn, hidden, up_data.data(), {}};
      const WeightSlice down_slice{gate_type(), kOut, ffn, down_data.data(), {}};
      const auto gate = *backend_->PackLinear({&gate_slice, 1}, {});
      const auto up = *backend_->PackLinear({&up_slice, 1}, {});
      const auto down = *backend_->PackLinear({&down_slice, 1}, {});
      const DeviceFloats x(*backend_, RandomFloats(kRows * hidden, 10));
      for (const int64_t rows : {int64_t{5}, kRows}) {
        for (const bool some_coarse : {false, true}) {
          std::vector<uint8_t> coarse;
          for (int64_t row = 0; some_coarse && row < rows; ++row) coarse.push_back(row >= 16);
          std::vector<std::vector<float>> outs;
          for (const LinearWeight* reader : {static_cast<const LinearWeight*>(nullptr),
                                             static_cast<const LinearWeight*>(down.get())}) {
            const DeviceFloats between(*backend_, std::vector<float>(rows * ffn));
            const DeviceFloats out(*backend_, std::vector<float>(rows * kOut, 0.5f));
            backend_->GateUp({gate.get(), up.get(), F32View(x.data(), rows, hidden),
                              F32View(between.data(), rows, ffn), false, coarse, reader});
            backend_->Linear({down.get(), F32View(between.data(), rows, ffn),
                              F32View(out.data(), rows, kOut), true, false, coarse});
            outs.push_back(out.Read());
          }
          EXPECT_LT(RelativeError(outs[1], outs[0]), 1e-6) << ffn << ", " << rows << " rows";
        }
      }
    }
  }

  void ExpectEqualBitsForAnyCount(DType up_type, ComputeDType compute) {
    constexpr int64_t kFfn = 40, kRows = 260;
    const int64_t hidden = HiddenOf(up_type);
    const auto gate_data = StoredRows(gate_type(), kFfn, hidden, 3);
    const auto up_data = StoredRows(up_type, kFfn, hidden, 4);
    const WeightSlice gate_slice{gate_type(), kFfn, hidden, gate_data.data(), {}};
    const WeightSlice up_slice{up_type, kFfn, hidden, up_data.data(), {}};
    const auto gate = *backend_->PackLinear({&gate_slice, 1}, {compute});
    const auto up = *backend_->PackLinear({&up_slice, 1}, {compute});
    const DeviceFloats x(*backend_, RandomFloats(kRows * hidden, 6));
    const DeviceFloats together(*backend_, std::vector<float>(kRows * kFfn));
    const DeviceFloats parts(*backend_, std::vector<float>(kRows * kFfn));
    const auto multiply = [&](const DeviceFloats& out, int64_t begin, int64_t rows) {
      backend_->GateUp({gate.get(), up.get(), F32View(x.data() + begin * hidden, rows, hidden),
                        F32View(out.data() + begin * kFfn, rows, kFfn), /*reproducible=*/true});
    };
    multiply(together, 0, kRows);
    int64_t row = 0;
    for (const int64_t rows : {1, 2, 4, 5, 9, 17, 65, 157}) {
      multiply(parts, row, rows);
      row += rows;
    }
    ASSERT_EQ(row, kRows);
    EXPECT_EQ(parts.Read(), together.Read())
        << "up in " << Traits(up_type).name << ", compute " << static_cast<int>(compute);
  }

  std::unique_ptr<Backend> backend_ = backend_case().Make();
  ReferenceBackend reference_;
};

TEST_P(GateUpConformance, OfEqualTypesMatchesTheOracle) { ExpectTheOracles(gate_type()); }

// Over all types of `gate`, each pair of neighbours, and each type beside one of another kind.
TEST_P(GateUpConformance, OfUnequalTypesMatchesTheOracle) {
  for (const size_t further : {1, 5, 9}) {
    ExpectTheOracles(kDTypes[(static_cast<size_t>(gate_type()) + further) % kDTypes.size()].dtype);
  }
}

TEST_P(GateUpConformance, AReaderThatIsToldChangesNothing) { ExpectAReaderToChangeNothing(); }

// With `reproducible`, each row has the bits that it has in any batch.
TEST_P(GateUpConformance, RowsHaveTheSameBitsForAnyCount) {
  for (const ComputeDType compute :
       {ComputeDType::kAuto, ComputeDType::kF32, ComputeDType::kInt8}) {
    ExpectEqualBitsForAnyCount(gate_type(), compute);
  }
  const size_t other = (static_cast<size_t>(gate_type()) + 1) % kDTypes.size();
  ExpectEqualBitsForAnyCount(kDTypes[other].dtype, ComputeDType::kAuto);
}

INSTANTIATE_TEST_SUITE_P(Backends, GateUpConformance, ::testing::ValuesIn(BackendsAndTypes()),
                         BackendAndTypeName);

}  // namespace
}  // namespace refrain::kernels
