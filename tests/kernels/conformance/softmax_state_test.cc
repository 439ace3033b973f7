// The algebra of softmax_state.h, and that every kernel's merge is the same.

#include "kernels/softmax_state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <ostream>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/isa.h"
#include "kernels/cuda/attention_states.h"

namespace refrain::kernels {
namespace {

constexpr int kHeadDim = 20, kStride = 32;  // padded to whole vectors, as Merge's rows are
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct State {
  SoftmaxState mn;
  std::vector<float> o = std::vector<float>(kStride);  // [kHeadDim]
};

struct MergeCase {
  std::string name;
  std::function<void(State& left, const State& right)> merge;
};
std::ostream& operator<<(std::ostream& out, const MergeCase& c) { return out << c.name; }

void MergeAsTheOracle(State& left, const State& right) {
  const MergeScales scales = Merge(left.mn, right.mn);
  for (int i = 0; i < kHeadDim; ++i) {
    left.o[i] = left.o[i] * scales.left + right.o[i] * scales.right;
  }
}

void MergeAsOnADevice(State& left, const State& right) {
  float left_scale, right_scale;
  cuda::MergeStates(left.mn.m, left.mn.n, right.mn.m, right.mn.n, left_scale, right_scale);
  for (int i = 0; i < kHeadDim; ++i) {
    left.o[i] = cuda::MergeElement(left.o[i], right.o[i], left_scale, right_scale);
  }
}

std::vector<MergeCase> MergeCases() {
  std::vector<MergeCase> cases = {{"oracle", MergeAsTheOracle}, {"cuda", MergeAsOnADevice}};
  for (const cpu::Isa isa : cpu::SupportedIsas()) {
    const auto merge = cpu::AttentionKernelsOf(isa).merge;
    cases.push_back({std::string(cpu::Name(isa)), [merge](State& left, const State& right) {
                       merge(left.mn, left.o.data(), right.mn, right.o.data(), kHeadDim);
                     }});
  }
  return cases;
}

struct Key {
  double score;  // in units of ln 2
  double value[kHeadDim];
};

std::vector<Key> RandomKeys(int count, double spread, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<Key> keys(count);
  for (Key& key : keys) {
    // A float, so that its maximum is one.
    key.score = static_cast<float>(spread * normal(random));
    for (double& value : key.value) value = normal(random);
  }
  return keys;
}

// By the definition, in double.
State StateOf(std::span<const Key> keys) {
  State state;
  double m = -std::numeric_limits<double>::infinity(), n = 0, o[kHeadDim] = {};
  for (const Key& key : keys) m = std::max(m, key.score);
  for (const Key& key : keys) {
    const double weight = std::exp2(key.score - m);
    n += weight;
    for (int i = 0; i < kHeadDim; ++i) o[i] += weight * key.value[i];
  }
  state.mn = {static_cast<float>(m), static_cast<float>(n)};
  std::copy_n(o, kHeadDim, state.o.begin());
  return state;
}

void ExpectNear(const State& got, const State& want) {
  EXPECT_EQ(got.mn.m, want.mn.m);
  EXPECT_NEAR(got.mn.n, want.mn.n, 1e-6 * want.mn.n);
  for (int i = 0; i < kHeadDim; ++i) EXPECT_NEAR(got.o[i], want.o[i], 3e-6 * want.mn.n) << i;
}

void ExpectEqual(const State& got, const State& want) {
  EXPECT_EQ(got.mn.m, want.mn.m);
  EXPECT_EQ(got.mn.n, want.mn.n);
  EXPECT_EQ(std::vector(got.o.begin(), got.o.begin() + kHeadDim),
            std::vector(want.o.begin(), want.o.begin() + kHeadDim));
}

class SoftmaxStateTest : public testing::TestWithParam<MergeCase> {
 protected:
  State Merged(State left, const State& right) const {
    GetParam().merge(left, right);
    return left;
  }
};

// Scores near to each other, and so far apart that the lesser ones' weights vanish.
constexpr double kSpreads[] = {3, 400};

TEST_P(SoftmaxStateTest, MergesDisjointSetsToTheirUnion) {
  for (const double spread : kSpreads) {
    const std::vector<Key> keys = RandomKeys(100, spread, 1);
    for (const size_t left : {1, 50, 99}) {
      const std::span<const Key> all(keys);
      ExpectNear(Merged(StateOf(all.first(left)), StateOf(all.subspan(left))), StateOf(all));
    }
  }
}

TEST_P(SoftmaxStateTest, EqualsTheOracle) {
  for (const double spread : kSpreads) {
    const State left = StateOf(RandomKeys(7, spread, 2)), right = StateOf(RandomKeys(9, spread, 3));
    State want = left;
    MergeAsTheOracle(want, right);
    ExpectNear(Merged(left, right), want);
  }
}

TEST_P(SoftmaxStateTest, TheEmptySetIsTheIdentityOnEitherSide) {
  const State state = StateOf(RandomKeys(11, 3, 4)), empty;
  ExpectEqual(Merged(state, empty), state);
  ExpectEqual(Merged(empty, state), state);
  ExpectEqual(Merged(empty, empty), empty);
}

TEST_P(SoftmaxStateTest, IsAssociativeAndCommutative) {
  for (const double spread : kSpreads) {
    const State a = StateOf(RandomKeys(5, spread, 5)), b = StateOf(RandomKeys(1, spread, 6)),
                c = StateOf(RandomKeys(64, spread, 7));
    ExpectNear(Merged(Merged(a, b), c), Merged(a, Merged(b, c)));
    ExpectNear(Merged(a, b), Merged(b, a));
  }
}

// Weights are powers of two: with whole scores and values nothing is rounded.
TEST_P(SoftmaxStateTest, IsToBaseTwo) {
  State left, right;
  left.mn = {3.0f, 1.0f};
  right.mn = {5.0f, 2.0f};
  left.o.assign(kStride, 8.0f);
  right.o.assign(kStride, 1.0f);
  const State merged = Merged(left, right);
  EXPECT_EQ(merged.mn.m, 5.0f);
  EXPECT_EQ(merged.mn.n, 2.25f);
  EXPECT_EQ(merged.o[kHeadDim - 1], 3.0f);
}

// Whoever chooses a token by the output has to see it.
TEST_P(SoftmaxStateTest, KeepsWhatIsNoNumber) {
  const State state = StateOf(RandomKeys(11, 3, 8)), empty;
  for (const SoftmaxState& mn : {SoftmaxState{1.0f, kNaN}, SoftmaxState{kNaN, kNaN}}) {
    State broken;
    broken.mn = mn;
    EXPECT_TRUE(std::isnan(Merged(broken, state).mn.n));
    EXPECT_TRUE(std::isnan(Merged(state, broken).mn.n));
    EXPECT_TRUE(std::isnan(Merged(broken, empty).mn.n));
    EXPECT_TRUE(std::isnan(Merged(empty, broken).mn.n));
  }
}

INSTANTIATE_TEST_SUITE_P(Merges, SoftmaxStateTest, testing::ValuesIn(MergeCases()),
                         [](const auto& info) { return info.param.name; });

// Whatever its o holds.
TEST(SoftmaxStateTest, ARowThatSeesNothingIsZeros) {
  for (const cpu::Isa isa : cpu::SupportedIsas()) {
    std::vector<float> o(kStride, kNaN), out(kHeadDim, 7.0f);
    cpu::AttentionKernelsOf(isa).finish({}, o.data(), out.data(), kHeadDim);
    EXPECT_EQ(out, std::vector<float>(kHeadDim, 0.0f)) << cpu::Name(isa);
  }
}

}  // namespace
}  // namespace refrain::kernels
