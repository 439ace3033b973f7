#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "kernels/cpu/isa.h"
#include "tests/kernels/conformance/attention_levels.h"
#include "tests/kernels/conformance/attention_scenario.h"

// Attention of many rows over f16 by dot products of words: this machine's instructions, those on
// f16 among them where it has them, make the bits that plain AVX-512 makes with the others
// emulated.

namespace refrain::kernels {
namespace {

// Bits but those of NaN, which have no meaning.
std::vector<uint32_t> BitsOf(const std::vector<float>& x) {
  std::vector<uint32_t> bits(x.size());
  std::memcpy(bits.data(), x.data(), x.size() * sizeof(float));
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i])) bits[i] = 0x7fc00000;
  }
  return bits;
}

struct Numbers {
  const char* name;
  std::function<void(AttentionScenario&)> make;
};

// K and V in f16 that are normal, that are too small for it to be, that sum up to the most there is
// room for, and of which some are no finite numbers.
const Numbers kNumbers[] = {
    {"Random", [](AttentionScenario&) {}},
    {"Whole", [](AttentionScenario& s) { s.MakeScoresWhole(); }},
    {"Subnormal", [](AttentionScenario& s) { s.MakeAllAlike(3e-7f, -6e-8f); }},
    {"SubnormalBesideOnes", [](AttentionScenario& s) { s.MakeAllAlike(1.0f, 6e-8f); }},
    {"Zeros", [](AttentionScenario& s) { s.MakeAllAlike(0.0f, -0.0f); }},
    {"Small", [](AttentionScenario& s) { s.MakeAllAlike(1e-4f, -7e-5f); }},
    {"Large", [](AttentionScenario& s) { s.MakeAllAlike(1.875f, -1.875f); }},
    {"OneKeyWins", [](AttentionScenario& s) { s.MakeOneKeyWin(100, 1e8f); }},
    {"InfiniteValues", [](AttentionScenario& s) { s.PoisonValues(); }},
    {"InfiniteKeys", [](AttentionScenario& s) { s.MakeKeysInfinite(); }},
    {"KeysOfNoNumbers", [](AttentionScenario& s) { s.PoisonKeys(); }},
};

// Head dims of whole vectors of 32 elements and with half of one behind them, chunks of one half
// and more.
const AttentionShape kShapes[] = {
    {8, 1, 16, 16, DType::kF16},   {8, 2, 48, 64, DType::kF16},  {6, 2, 64, 64, DType::kF16, 90},
    {4, 1, 128, 128, DType::kF16}, {4, 1, 256, 32, DType::kF16},
};

class AttentionWordBits : public testing::TestWithParam<AttentionShape> {};

TEST_P(AttentionWordBits, AreThoseOfPlainInstructions) {
  const std::vector<cpu::Isa> levels = cpu::SupportedIsas();
  if (std::find(levels.begin(), levels.end(), cpu::Isa::kAvx512Vnni) == levels.end()) {
    GTEST_SKIP() << "needs AVX-512 VNNI";
  }
  const AttentionLevel plain = {"avx512_vnni", AttentionLevel::Emulated::kVnni, false, true, 1};
  const AttentionLevel own = {"avx512_vnni", AttentionLevel::Emulated::kNo, false, true, 1};
  const AttentionLevel floats = {"avx512", AttentionLevel::Emulated::kNo, false, false, 1};
  for (const Scenario kind : {Scenario::kUnrelated, Scenario::kShared, Scenario::kCached}) {
    for (const Numbers& numbers : kNumbers) {
      SCOPED_TRACE(numbers.name);
      AttentionScenario scenario = MakeScenario(kind, GetParam());
      numbers.make(scenario);
      std::vector<float> want, got, of_floats;
      plain.Attend(scenario.Args(want));
      own.Attend(scenario.Args(got));
      EXPECT_EQ(BitsOf(got), BitsOf(want));
      if (&numbers != &kNumbers[0]) continue;
      floats.Attend(scenario.Args(of_floats));
      EXPECT_NE(of_floats, got) << "no words were multiplied";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionWordBits, testing::ValuesIn(kShapes),
                         [](const testing::TestParamInfo<AttentionShape>& info) {
                           return info.param.name();
                         });

}  // namespace
}  // namespace refrain::kernels
