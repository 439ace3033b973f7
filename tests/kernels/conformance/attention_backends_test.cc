#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/reference/reference_backend.h"
#include "tests/kernels/conformance/attention_scenario.h"
#include "tests/kernels/conformance/backends.h"

// ChunkAttention as the engine calls it, through Backend. (attention_test.cc goes through the CPU's
// function, for every shape; cuda_attention_shapes_test.cc through the CUDA back end.)

namespace refrain::kernels {
namespace {

using Param = std::tuple<BackendCase, DType>;

class AttentionOfBackend : public testing::TestWithParam<Param> {
 protected:
  std::unique_ptr<Backend> backend_ = std::get<0>(GetParam()).Make();
};

// One back end for all calls: what it keeps from one to the next does not matter.
TEST_P(AttentionOfBackend, MatchesTheReferenceBackend) {
  const DType dtype = std::get<1>(GetParam());
  const std::unique_ptr<Backend> reference = std::make_unique<ReferenceBackend>();
  const AttentionShape shapes[] = {{9, 3, 64, 64, dtype}, {4, 2, 40, 32, dtype, 37}};
  for (const AttentionShape& shape : shapes) {
    for (const Scenario kind : {Scenario::kShared, Scenario::kCached}) {
      AttentionScenario scenario = MakeScenario(kind, shape);
      // What bf16 dot products round (attention_test.cc) then makes no difference.
      scenario.MakeScoresWhole();
      std::vector<float> want, got;
      reference->ChunkAttention(scenario.Args(want));
      for (const AttentionMode mode : {AttentionMode::kTwoPhase, AttentionMode::kPaged}) {
        for (const bool reproducible : {false, true}) {
          SCOPED_TRACE(shape.name() + " scenario " + std::to_string(static_cast<int>(kind)) +
                       (mode == AttentionMode::kPaged ? " paged" : "") +
                       (reproducible ? " reproducible" : ""));
          ChunkAttentionArgs args = scenario.Args(got);
          args.mode = mode;
          args.reproducible = reproducible;
          backend_->ChunkAttention(args);
          ASSERT_TRUE(backend_->Synchronize().ok());
          ExpectClose(got, want, 2e-5, 2e-5);
        }
      }
    }
  }
}

std::vector<BackendCase> BackendsOfHost() {
  std::vector<BackendCase> cases;
  for (const BackendCase& backend : BackendCases()) {
    if (backend.cuda.empty()) cases.push_back(backend);
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Backends, AttentionOfBackend,
                         testing::Combine(testing::ValuesIn(BackendsOfHost()),
                                          testing::Values(DType::kF32, DType::kF16, DType::kBF16,
                                                          DType::kF8E4M3)),
                         [](const testing::TestParamInfo<Param>& info) {
                           return std::get<0>(info.param).name() + "_" +
                                  std::string(Traits(std::get<1>(info.param)).name);
                         });

}  // namespace
}  // namespace refrain::kernels
