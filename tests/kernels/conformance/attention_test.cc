#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/reference/reference_backend.h"
#include "tests/kernels/conformance/attention_levels.h"
#include "tests/kernels/conformance/attention_scenario.h"
#include "tests/kernels/conformance/backends.h"

namespace refrain::kernels {
namespace {

struct AttentionCase {
  AttentionShape shape;
  // Both sides read the same rounded K and V, so this is f32 arithmetic on values near 1.
  double tolerance = 2e-5;
};

// Chunk sizes, groups, windows and head dims that are no multiple of a vector; KV types take turns.
// The tolerance of fp8 is that of the arithmetic, as for every other type: what was lost when K and
// V were rounded to it, both sides have lost.
const AttentionCase kShapes[] = {
    {{9, 3, 64, 64, DType::kF16}},        {{9, 3, 64, 16, DType::kF32}},
    {{8, 2, 96, 64, DType::kBF16}},       {{8, 1, 128, 64, DType::kF32}},
    {{2, 2, 256, 32, DType::kF16}},       {{16, 2, 64, 64, DType::kBF16}},
    {{5, 5, 24, 128, DType::kF16}},       {{3, 1, 10, 16, DType::kBF16}},
    {{9, 3, 64, 64, DType::kF16, 100}},   {{4, 2, 40, 32, DType::kBF16, 37}},
    {{8, 8, 16, 16, DType::kF32, 1}},     {{6, 2, 128, 64, DType::kF32, 600}},
    {{16, 16, 8, 32, DType::kBF16}},      {{32, 1, 128, 128, DType::kBF16}},
    {{200, 1, 8, 16, DType::kF16}},       {{256, 1, 16, 32, DType::kBF16}},
    {{12, 2, 72, 16, DType::kBF16, 70}},  {{9, 3, 64, 64, DType::kF8E4M3, 90}},
    {{4, 2, 42, 32, DType::kF8E4M3, 37}}, {{200, 1, 10, 16, DType::kF8E4M3}},
};

// And every usual head dim with every KV type, in groups and chunk sizes that take turns.
std::vector<AttentionCase> Cases() {
  std::vector<AttentionCase> cases(std::begin(kShapes), std::end(kShapes));
  constexpr int kHeads[][2] = {{9, 3}, {2, 1}, {3, 3}, {4, 1}, {4, 2}};
  constexpr int kChunks[] = {64, 16, 32, 128};
  size_t turn = 0;
  for (const int head_dim : {8, 16, 40, 64, 80, 96, 128, 256}) {
    for (const DType kv : {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3}) {
      const auto& [heads, kv_heads] = kHeads[head_dim == 256 ? 1 : turn % std::size(kHeads)];
      cases.push_back({{heads, kv_heads, head_dim, kChunks[turn % std::size(kChunks)], kv}});
      ++turn;
    }
  }
  return cases;
}

// Rounding q and a weight to bf16 moves the weight by up to 2^-9 each, times the size of the score
// (about 2 here), at random: 2^-9 or so of the length of an output row, a few times that in the
// worst of thousands. A key too many or too few is 2^-5 of it. Words of 11 bits or more, of which a
// row, a key or a tile's elements share the scale, lose less.
constexpr double kRounding = 0x1p-6;

using Param = std::tuple<AttentionCase, Scenario>;

class AttentionConformance : public testing::TestWithParam<Param> {};
class AttentionWithKeysLeftOut : public testing::TestWithParam<Param> {};

// Calls fn(output) with what each level and mode computes.
template <class Fn>
void AttendEverywhere(AttentionScenario& scenario, bool reproducible, bool rounding, DType kv,
                      const Fn& fn) {
  std::vector<float> got;
  for (const AttentionLevel& level : AttentionLevels()) {
    if (level.Rounds(kv, reproducible) != rounding) continue;
    for (const AttentionMode mode : {AttentionMode::kTwoPhase, AttentionMode::kPaged}) {
      SCOPED_TRACE(level.name() + (mode == AttentionMode::kPaged ? " paged" : "") +
                   (reproducible ? " reproducible" : ""));
      ChunkAttentionArgs args = scenario.Args(got);
      args.mode = mode;
      args.reproducible = reproducible;
      level.Attend(args);
      fn(got);
    }
  }
}

TEST_P(AttentionConformance, MatchesTheReference) {
  const auto& [test_case, kind] = GetParam();
  AttentionScenario scenario = MakeScenario(kind, test_case.shape);
  std::vector<float> want;
  ReferenceBackend().ChunkAttention(scenario.Args(want));
  const double tolerance = test_case.tolerance;
  const auto check = [&](const std::vector<float>& got) {
    ExpectClose(got, want, tolerance, tolerance);
  };
  for (const bool reproducible : {false, true}) {
    AttendEverywhere(scenario, reproducible, false, test_case.shape.kv_dtype, check);
  }
}

// Numbers that grew too large end as NaN, which must come out where they are, and nowhere else.
TEST_P(AttentionConformance, NaNStaysNaNAndInItsRow) {
  const auto& [test_case, kind] = GetParam();
  const auto head_dim = static_cast<size_t>(test_case.shape.head_dim);
  AttentionScenario scenario = MakeScenario(kind, test_case.shape);
  std::vector<float> want;
  ReferenceBackend().ChunkAttention(scenario.Args(want));
  scenario.PoisonQueries();
  for (const bool rounding : {false, true}) {
    const auto check = [&](std::vector<float> got) {
      for (size_t i = 0; i < got.size(); ++i) {
        if (!scenario.poisoned(i / head_dim)) continue;
        ASSERT_TRUE(std::isnan(got[i])) << "element " << i << " is " << got[i];
        got[i] = want[i];
      }
      if (rounding) {
        ExpectRowsClose(got, want, head_dim, kRounding);
      } else {
        ExpectClose(got, want, test_case.tolerance, test_case.tolerance);
      }
    };
    AttendEverywhere(scenario, false, rounding, test_case.shape.kv_dtype, check);
  }
}

// Rows are computed together, also with keys that only some of them see.
TEST_P(AttentionConformance, AKeyThatIsNoFiniteNumberHarmsOnlyRowsThatSeeIt) {
  const auto& [test_case, kind] = GetParam();
  AttentionScenario scenario = MakeScenario(kind, test_case.shape);
  scenario.PoisonKeys();
  std::vector<float> want;
  ReferenceBackend().ChunkAttention(scenario.Args(want));
  const auto harmed = std::count_if(want.begin(), want.end(), [](float x) { return x != x; });
  ASSERT_GT(harmed, 0);
  ASSERT_LT(harmed, std::ssize(want));
  const auto mark = [](std::vector<float> values) {
    for (float& value : values) value = std::isnan(value) ? 1e9f : value;
    return values;
  };
  for (const bool reproducible : {false, true}) {
    for (const bool rounding : {false, true}) {
      const auto check = [&](const std::vector<float>& got) {
        if (rounding) {
          ExpectRowsClose(mark(got), mark(want), static_cast<size_t>(test_case.shape.head_dim),
                          kRounding);
        } else {
          ExpectClose(mark(got), mark(want), test_case.tolerance, test_case.tolerance);
        }
      };
      AttendEverywhere(scenario, reproducible, rounding, test_case.shape.kv_dtype, check);
    }
  }
}

// What a last layer asks for: slots without their first rows, or without any.
TEST_P(AttentionConformance, ComputesNoRowThatNobodyWants) {
  const auto& [test_case, kind] = GetParam();
  const auto cols = static_cast<int64_t>(test_case.shape.num_heads) * test_case.shape.head_dim;
  AttentionScenario scenario = MakeScenario(kind, test_case.shape);
  std::vector<float> want;
  ReferenceBackend().ChunkAttention(scenario.Args(want));
  std::vector<SlotStep> wanted = scenario.steps();
  std::vector<bool> is_wanted(scenario.num_rows());
  for (size_t i = 0; i < wanted.size(); ++i) {
    const int32_t dropped = i % 4 == 1 ? wanted[i].num_rows : wanted[i].num_rows / 2;
    wanted[i].row_begin += dropped;
    wanted[i].num_rows -= dropped;
    std::fill_n(is_wanted.begin() + wanted[i].row_begin, wanted[i].num_rows, true);
  }
  ASSERT_GT(std::count(is_wanted.begin(), is_wanted.end(), true), 0);
  ASSERT_GT(std::count(is_wanted.begin(), is_wanted.end(), false), 0);
  constexpr float kUntouched = -77.0f;
  std::vector<float> got;
  for (const AttentionLevel& level : AttentionLevels()) {
    SCOPED_TRACE(level.name());
    ChunkAttentionArgs args = scenario.Args(got);
    std::fill(got.begin(), got.end(), kUntouched);
    args.wanted = wanted;
    level.Attend(args);
    for (int64_t i = 0; i < std::ssize(got); ++i) {
      if (is_wanted[i / cols]) continue;
      ASSERT_EQ(got[i], kUntouched) << "element " << i;
      got[i] = want[i];
    }
    if (level.Rounds(test_case.shape.kv_dtype, false)) {
      ExpectRowsClose(got, want, test_case.shape.head_dim, kRounding);
    } else {
      ExpectClose(got, want, test_case.tolerance, test_case.tolerance);
    }
  }
}

// What serving does: keys that no row's window reaches are not even read, so some slots have part
// in a shared run and others not, or from its middle on.
TEST_P(AttentionWithKeysLeftOut, MatchesTheReference) {
  const auto& [test_case, kind] = GetParam();
  AttentionScenario scenario = MakeScenario(kind, test_case.shape);
  std::vector<float> want;
  ReferenceBackend().ChunkAttention(scenario.Args(want));
  ASSERT_GE(scenario.LeaveOutKeysBeforeTheWindow(), 2);
  for (const bool rounding : {false, true}) {
    const auto check = [&](const std::vector<float>& got) {
      if (rounding) {
        ExpectRowsClose(got, want, test_case.shape.head_dim, kRounding);
      } else {
        ExpectClose(got, want, test_case.tolerance, test_case.tolerance);
      }
    };
    for (const bool reproducible : {false, true}) {
      AttendEverywhere(scenario, reproducible, rounding, test_case.shape.kv_dtype, check);
    }
  }
}

std::string CaseName(const testing::TestParamInfo<Param>& info) {
  const auto& [test_case, kind] = info.param;
  constexpr const char* kNames[] = {"_unrelated", "_shared", "_cached"};
  return test_case.shape.name() + kNames[static_cast<int>(kind)];
}

const auto kScenarios = testing::Values(Scenario::kUnrelated, Scenario::kShared, Scenario::kCached);

INSTANTIATE_TEST_SUITE_P(Cases, AttentionConformance,
                         testing::Combine(testing::ValuesIn(Cases()), kScenarios), CaseName);

std::vector<AttentionCase> WindowCases() {
  std::vector<AttentionCase> cases;
  for (const AttentionCase& c : Cases()) {
    if (c.shape.window_tokens > 0) cases.push_back(c);
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Cases, AttentionWithKeysLeftOut,
                         testing::Combine(testing::ValuesIn(WindowCases()), kScenarios), CaseName);

// A sequence so long that threads share it, each task several segments of it.
TEST(AttentionOfOneLongSequence, MatchesTheReferenceOnTwoThreads) {
  const AttentionShape shape{2, 1, 16, 128, DType::kF16};
  constexpr int kChunks = 160;
  for (const int rows : {1, 3}) {
    AttentionScenario scenario(shape, /*num_slots=*/1, kChunks);
    scenario.Attend(scenario.AddRun(std::vector<int>(kChunks, shape.chunk_tokens), 1), 0);
    scenario.Activate(0, rows);
    scenario.Finish();
    std::vector<float> want, got;
    ReferenceBackend().ChunkAttention(scenario.Args(want));
    for (const AttentionLevel& level : AttentionLevels()) {
      SCOPED_TRACE(level.name());
      const ChunkAttentionArgs args = scenario.Args(got);
      level.On(2).Attend(args);
      ExpectClose(got, want, 2e-5, 2e-5);
    }
  }
}

// More slots than any scenario above has: all behind one run, groups of them behind another, decode
// rows, some prefills among them, some slots that take no part.
TEST(AttentionOfManySlots, MatchesTheReference) {
  constexpr int kSlots = 300, kGroup = 50;
  for (const DType kv : {DType::kF16, DType::kBF16, DType::kF8E4M3}) {
    const AttentionShape shape{4, 2, 32, 32, kv};
    AttentionScenario scenario(shape, kSlots, 18 + 3 * kSlots / kGroup + 2 * kSlots);
    const int all = scenario.AddRun(std::vector<int>(17, shape.chunk_tokens), 1);
    int group = -1;
    for (int slot = 0; slot < kSlots; ++slot) {
      if (slot % kGroup == 0) group = scenario.AddRun({32, 7, 32}, 10000 + slot);
      scenario.Attend(all, slot);
      scenario.Attend(group, slot);
      scenario.Attend(scenario.AddRun({32, 1 + slot % 32}, 20000 + 100 * slot), slot);
      if (slot % 11 != 5) scenario.Activate(slot, slot % 37 == 0 ? 9 : 1);
    }
    scenario.Finish();
    std::vector<float> want, got;
    ReferenceBackend().ChunkAttention(scenario.Args(want));
    for (const AttentionLevel& level : AttentionLevels()) {
      for (const bool reproducible : {false, true}) {
        SCOPED_TRACE(level.name() + (reproducible ? " reproducible" : ""));
        ChunkAttentionArgs args = scenario.Args(got);
        args.reproducible = reproducible;
        level.On(3).Attend(args);
        if (level.Rounds(kv, reproducible)) {
          ExpectRowsClose(got, want, shape.head_dim, kRounding);
        } else {
          ExpectClose(got, want, 2e-5, 2e-5);
        }
      }
    }
  }
}

// Levels that round: with bf16 dot instructions over K and V in bf16, or widened to it, and with
// dot products of words.
class AttentionRounded : public testing::TestWithParam<Param> {
 protected:
  AttentionRounded() : scenario_(MakeScenario(std::get<1>(GetParam()), test_case().shape)) {}

  const AttentionCase& test_case() const { return std::get<0>(GetParam()); }

  // Calls fn(got, want) for every level.
  template <class Fn>
  void Compare(const Fn& fn) {
    std::vector<float> want;
    ReferenceBackend().ChunkAttention(scenario_.Args(want));
    for (const bool reproducible : {false, true}) {
      AttendEverywhere(scenario_, reproducible, true, test_case().shape.kv_dtype,
                       [&](const std::vector<float>& got) { fn(got, want); });
    }
  }

  AttentionScenario scenario_;
};

// On scores, weights and values that need few bits it is no less exact than the other levels.
TEST_P(AttentionRounded, MatchesTheReferenceOnWholeScores) {
  scenario_.MakeScoresWhole();
  Compare([&](const std::vector<float>& got, const std::vector<float>& want) {
    ExpectClose(got, want, test_case().tolerance, test_case().tolerance);
  });
}

TEST_P(AttentionRounded, StaysWithinItsRounding) {
  Compare([&](const std::vector<float>& got, const std::vector<float>& want) {
    ExpectRowsClose(got, want, test_case().shape.head_dim, kRounding);
  });
}

// No sum of integers is larger than where all numbers are alike and their scales just hold them: of
// weights and values, or of q and keys, where a sum that turns negative is seen beside others.
TEST_P(AttentionRounded, HasRoomForTheLargestSums) {
  constexpr float kAll = 1.875f;
  for (const float other : {kAll, -kAll}) {
    scenario_.MakeAllAlike(kAll, other);
    Compare([&](const std::vector<float>& got, const std::vector<float>& want) {
      ExpectClose(got, want, 1e-5, 1e-5);
    });
  }
}

// Differences of large scores are exact, theirs from other numbers are not. The others leave room
// for a weight in a float whose reference is another key's score, and leave none.
TEST_P(AttentionRounded, FindsTheKeyOfALargeScore) {
  constexpr std::pair<int32_t, float> kCases[] = {{70, 1e8f},  {80, 1e8f},  {100, 1e8f},
                                                  {120, 1e8f}, {100, 30.f}, {80, 70.f}};
  for (const auto& [key, score] : kCases) {
    scenario_.MakeOneKeyWin(key, score);
    Compare([&](const std::vector<float>& got, const std::vector<float>& want) {
      ExpectRowsClose(got, want, test_case().shape.head_dim, kRounding);
    });
  }
}

// Words share a scale with others of their tile. What is infinite among them makes NaN of no more
// rows than f32 does: those that are multiplied together, six at a time.
TEST_P(AttentionRounded, AnInfiniteValueBesideWordsHarmsFewRowsInFrontOfIt) {
  constexpr int kRowsAtOnce = 6;
  const DType kv = test_case().shape.kv_dtype;
  if (kv == DType::kF8E4M3) GTEST_SKIP() << "has no infinity";
  const auto cols = static_cast<int64_t>(test_case().shape.num_heads) * test_case().shape.head_dim;
  scenario_.PoisonValues();
  std::vector<float> reference, got;
  ReferenceBackend().ChunkAttention(scenario_.Args(reference));
  for (const AttentionLevel& level : AttentionLevels()) {
    if (!level.words || (level.dots && kv != DType::kF16)) continue;
    SCOPED_TRACE(level.name());
    level.Attend(scenario_.Args(got));
    std::vector<float> want = reference;
    int64_t clean = 0;
    for (const SlotStep& step : scenario_.steps()) {
      const int64_t before = std::max(0, step.num_rows / 2 - kRowsAtOnce);
      for (int64_t i = (step.row_begin + before) * cols;
           i < (step.row_begin + step.num_rows) * cols; ++i) {
        got[i] = want[i] = 1.0f;
      }
      clean += before;
    }
    EXPECT_GT(clean, 0);
    for (size_t i = 0; i < want.size(); ++i) {
      if (!std::isfinite(want[i])) got[i] = want[i] = 1.0f;  // of a key that slots share
    }
    ExpectRowsClose(got, want, test_case().shape.head_dim, kRounding);
  }
}

std::vector<AttentionCase> RoundedCases() {
  std::vector<AttentionCase> cases;
  for (const AttentionCase& c : Cases()) {
    if (c.shape.kv_dtype != DType::kF32) cases.push_back(c);
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Cases, AttentionRounded,
                         testing::Combine(testing::ValuesIn(RoundedCases()), kScenarios), CaseName);

// K and V in fp8 are numbers of bf16: over these every level gives the same bits.
class AttentionE4m3 : public testing::TestWithParam<Param> {};

TEST_P(AttentionE4m3, HasTheBitsOfTheSameNumbersInBf16) {
  const auto& [test_case, kind] = GetParam();
  AttentionShape wide = test_case.shape;
  wide.kv_dtype = DType::kBF16;
  AttentionScenario scenario = MakeScenario(kind, test_case.shape);
  AttentionScenario wide_scenario = MakeScenario(kind, wide);
  wide_scenario.TakeKeysAndValuesOf(scenario);
  std::vector<float> got, want;
  for (const AttentionLevel& level : AttentionLevels()) {
    for (const bool reproducible : {false, true}) {
      SCOPED_TRACE(level.name() + (reproducible ? " reproducible" : ""));
      ChunkAttentionArgs args = scenario.Args(got);
      args.reproducible = reproducible;
      level.Attend(args);
      args = wide_scenario.Args(want);
      args.reproducible = reproducible;
      level.Attend(args);
      ASSERT_EQ(got, want);
    }
  }
}

std::vector<AttentionCase> E4m3Cases() {
  std::vector<AttentionCase> cases;
  for (const AttentionCase& c : Cases()) {
    if (c.shape.kv_dtype == DType::kF8E4M3) cases.push_back(c);
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Cases, AttentionE4m3,
                         testing::Combine(testing::ValuesIn(E4m3Cases()), kScenarios), CaseName);

}  // namespace
}  // namespace refrain::kernels
