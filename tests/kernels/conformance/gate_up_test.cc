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

  void ExpectTheOracles(DType up_type) {
    const int blocks = std::max(Traits(gate_type()).block_elements, Traits(up_type).block_elements);
    const int64_t hidden = blocks == 256 ? 512 : blocks == 32 ? 352 : 83;
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

INSTANTIATE_TEST_SUITE_P(Backends, GateUpConformance, ::testing::ValuesIn(BackendsAndTypes()),
                         BackendAndTypeName);

}  // namespace
}  // namespace refrain::kernels
