#include <gtest/gtest.h>

#include <tuple>

#include "kernels/reference/reference_backend.h"
#include "tests/kernels/conformance/attention_scenario.h"
#include "tests/kernels/conformance/backends.h"

namespace refrain::kernels {
namespace {

enum class Scenario { kUnrelated, kShared, kCached };

AttentionScenario Make(Scenario scenario, const AttentionShape& shape) {
  switch (scenario) {
    case Scenario::kUnrelated:
      return UnrelatedSlots(shape);
    case Scenario::kShared:
      return SharedRuns(shape);
    case Scenario::kCached:
      break;
  }
  return RowsThatReadCachedKeys(shape);
}

struct AttentionCase {
  AttentionShape shape;
  // Both sides read the same rounded K and V, so this is f32 arithmetic on values near 1.
  double tolerance = 2e-5;
};

// Head dims, chunk sizes and groups by rule; KV types take turns.
const AttentionCase kCases[] = {
    {{3, 3, 8, 16, DType::kF32}},        {{2, 1, 16, 32, DType::kF16}},
    {{9, 3, 40, 64, DType::kBF16}},      {{9, 3, 64, 64, DType::kF16}},
    {{9, 3, 64, 16, DType::kF32}},       {{4, 1, 80, 128, DType::kF16}},
    {{8, 2, 96, 64, DType::kBF16}},      {{8, 1, 128, 64, DType::kF32}},
    {{2, 2, 256, 32, DType::kF16}},      {{2, 1, 256, 64, DType::kBF16}},
    {{16, 2, 64, 64, DType::kBF16}},     {{5, 5, 24, 128, DType::kF16}},
    {{3, 1, 10, 16, DType::kBF16}},      {{9, 3, 64, 64, DType::kF16, 100}},
    {{4, 2, 40, 32, DType::kBF16, 37}},  {{8, 8, 16, 16, DType::kF32, 1}},
    {{6, 2, 128, 64, DType::kF32, 600}}, {{16, 16, 8, 32, DType::kBF16}},
};

using Param = std::tuple<AttentionCase, Scenario, bool>;

class AttentionConformance : public testing::TestWithParam<Param> {};

TEST_P(AttentionConformance, MatchesTheReference) {
  const auto& [test_case, kind, reproducible] = GetParam();
  AttentionScenario scenario = Make(kind, test_case.shape);
  std::vector<float> got, want;
  ReferenceBackend().ChunkAttention(scenario.Args(want));
  for (const BackendCase& backend_case : BackendCases()) {
    const auto backend = backend_case.Make();
    for (const AttentionMode mode : {AttentionMode::kTwoPhase, AttentionMode::kPaged}) {
      SCOPED_TRACE(backend_case.name() + (mode == AttentionMode::kPaged ? " paged" : ""));
      ChunkAttentionArgs args = scenario.Args(got);
      args.mode = mode;
      args.reproducible = reproducible;
      backend->ChunkAttention(args);
      ASSERT_TRUE(backend->Synchronize().ok());
      ExpectClose(got, want, test_case.tolerance, test_case.tolerance);
    }
  }
}

std::string CaseName(const testing::TestParamInfo<Param>& info) {
  const auto& [test_case, kind, reproducible] = info.param;
  constexpr const char* kNames[] = {"_unrelated", "_shared", "_cached"};
  return test_case.shape.name() + kNames[static_cast<int>(kind)] +
         (reproducible ? "_reproducible" : "");
}

INSTANTIATE_TEST_SUITE_P(Cases, AttentionConformance,
                         testing::Combine(testing::ValuesIn(kCases),
                                          testing::Values(Scenario::kUnrelated, Scenario::kShared,
                                                          Scenario::kCached),
                                          testing::Bool()),
                         CaseName);

}  // namespace
}  // namespace refrain::kernels
