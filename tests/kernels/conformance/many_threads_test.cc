#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/isa.h"
#include "tests/kernels/conformance/backends.h"
#include "tests/kernels/conformance/linear_oracle.h"
#include "tests/kernels/cpu/quantized_blocks.h"

// Products on more threads than any machine of the tests has processors: they are cut into jobs of
// other sizes there, single tiles and few rows among them.

namespace refrain::kernels {
namespace {

// 65 tiles of 16 columns, the last one ragged.
constexpr int64_t kOut = 1035;

// A back end with its weights.
class Computer {
 public:
  Computer(BackendCase which, DType dtype, int threads)
      : threads_(threads), k_(Traits(dtype).block_elements == 256 ? 256 : 96) {
    which.threads = threads;
    backend_ = which.Make();
    const auto pack = [&](uint32_t seed) {
      const std::vector<std::byte> stored = StoredRows(dtype, kOut, k_, seed);
      const WeightSlice slice{dtype, kOut, k_, stored.data(), {}};
      return *backend_->PackLinear({&slice, 1}, {});
    };
    gate_ = pack(1);
    up_ = pack(2);
  }

  int threads() const { return threads_; }

  std::vector<float> Linear(int64_t rows, bool reproducible) const {
    std::vector<float> x = RandomFloats(rows * k_, 3), got(rows * kOut);
    backend_->Linear({gate_.get(), F32View(x.data(), rows, k_), F32View(got.data(), rows, kOut),
                      false, reproducible});
    return got;
  }

  std::vector<float> GateUp(int64_t rows, bool reproducible) const {
    std::vector<float> x = RandomFloats(rows * k_, 3), got(rows * kOut);
    GateUpArgs args = {gate_.get(), up_.get(), F32View(x.data(), rows, k_),
                       F32View(got.data(), rows, kOut)};
    args.reproducible = reproducible;
    backend_->GateUp(args);
    return got;
  }

 private:
  int threads_;
  int64_t k_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<LinearWeight> gate_, up_;
};

class ManyThreads : public ::testing::TestWithParam<BackendAndType> {
 protected:
  Computer With(int threads) { return {std::get<0>(GetParam()), std::get<1>(GetParam()), threads}; }
};

TEST_P(ManyThreads, ComputeWhatOneComputes) {
  const Computer one = With(1);
  const Computer some = With(7), many = With(40);
  for (const int64_t rows : {1, 5, 17, 64, 130}) {
    for (const bool reproducible : {false, true}) {
      const std::vector<float> linear = one.Linear(rows, reproducible);
      const std::vector<float> gate_up = one.GateUp(rows, reproducible);
      for (const Computer* several : {&some, &many}) {
        SCOPED_TRACE(std::to_string(rows) + " rows on " + std::to_string(several->threads()));
        if (reproducible) {
          EXPECT_EQ(several->Linear(rows, true), linear);
          EXPECT_EQ(several->GateUp(rows, true), gate_up);
        } else {
          // Sums may be of other parts of k.
          EXPECT_LT(RelativeError(several->Linear(rows, false), linear), 1e-6);
          EXPECT_LT(RelativeError(several->GateUp(rows, false), gate_up), 1e-6);
        }
      }
    }
  }
}

// The levels that most machines have; how work is cut does not hang on them.
std::vector<BackendAndType> HostCases() {
  const std::string best(cpu::Name(cpu::SupportedIsas().back()));
  std::vector<BackendAndType> cases;
  for (const BackendAndType& one : BackendsAndTypes()) {
    const BackendCase& backend = std::get<0>(one);
    if (backend.threads == 1 && (backend.isa == "avx2" || backend.isa == best)) {
      cases.push_back(one);
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Backends, ManyThreads, ::testing::ValuesIn(HostCases()),
                         BackendAndTypeName);
// None under a sanitizer of threads, which computes on several only.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ManyThreads);

}  // namespace
}  // namespace refrain::kernels
