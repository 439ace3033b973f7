#include "engine/model/rope_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace refrain::engine {
namespace {

// Every seventh inverse frequency as transformers' ROPE_INIT_FUNCTIONS gives it (f32).
void ExpectEverySeventh(const std::vector<double>& ours, const std::vector<double>& reference) {
  ASSERT_EQ((ours.size() + 6) / 7, reference.size());
  for (size_t i = 0; i < reference.size(); ++i) {
    EXPECT_NEAR(ours[7 * i] / reference[i], 1.0, 1e-6) << "frequency " << 7 * i;
  }
}

TEST(RopeTable, Llama3ScalingEqualsTransformers) {
  const RopeConfig rope{.theta = 500000.0,
                        .dim = 128,
                        .scaling = RopeScaling::kLlama3,
                        .factor = 8.0,
                        .low_freq_factor = 1.0,
                        .high_freq_factor = 4.0,
                        .original_context_tokens = 8192};
  ExpectEverySeventh(RopeFrequencies(rope, {}),
                     {1.0, 0.2380538135766983, 0.05666961893439293, 0.013490419834852219,
                      0.0032114461064338684, 9.556212171446532e-05, 2.2748929040972143e-05,
                      5.415469331637723e-06, 1.289173155782919e-06, 3.068925877869333e-07});
}

TEST(RopeTable, YarnScalingEqualsTransformers) {
  const RopeConfig rope{.theta = 10000.0,
                        .dim = 128,
                        .scaling = RopeScaling::kYarn,
                        .factor = 4.0,
                        .original_context_tokens = 4096,
                        .attention_factor = 1.138629436111989};
  ExpectEverySeventh(RopeFrequencies(rope, {}),
                     {1.0, 0.36517414450645447, 0.1333521455526352, 0.047292038798332214,
                      0.013679072260856628, 0.0036839921958744526, 0.0008664635242894292,
                      0.00021649108384735882, 7.905694656074047e-05, 2.8869548259535804e-05});
  const RopeAngles angles = MakeRopeAngles(rope, {}, 0, 2);
  EXPECT_FLOAT_EQ(angles.cos[0], 1.138629436111989f);  // position 0: the magnitude itself
  EXPECT_FLOAT_EQ(angles.sin[64], static_cast<float>(std::sin(1.0) * 1.138629436111989));
}

TEST(RopeTable, YarnWithoutRoundedRampEqualsTransformers) {
  RopeConfig rope{.theta = 10000.0,
                  .dim = 128,
                  .scaling = RopeScaling::kYarn,
                  .factor = 4.0,
                  .original_context_tokens = 4096,
                  .beta_fast = 24.0,
                  .beta_slow = 1.5};
  ExpectEverySeventh(RopeFrequencies(rope, {}),
                     {1.0, 0.36517414450645447, 0.1333521455526352, 0.04869675263762474,
                      0.01397219579666853, 0.003478830214589834, 0.0006775353685952723,
                      0.00021649108384735882, 7.905694656074047e-05, 2.8869548259535804e-05});
  rope.round_ramp = false;
  ExpectEverySeventh(RopeFrequencies(rope, {}),
                     {1.0, 0.36517414450645447, 0.1333521455526352, 0.04869675263762474,
                      0.014282364398241043, 0.0034459722228348255, 0.0006121761398389935,
                      0.00021649108384735882, 7.905694656074047e-05, 2.8869548259535804e-05});
}

TEST(RopeTable, LinearScalingEqualsTransformers) {
  const RopeConfig rope{
      .theta = 100000.0, .dim = 64, .scaling = RopeScaling::kLinear, .factor = 2.5};
  ExpectEverySeventh(RopeFrequencies(rope, {}),
                     {0.4000000059604645, 0.03223368525505066, 0.0025975266471505165,
                      0.00020931963808834553, 1.6867861631908454e-05});
}

TEST(RopeTable, FactorsOfTheFileDivideTheFrequencies) {
  const RopeConfig rope{.theta = 10000.0, .dim = 4};
  const std::vector<float> factors = {2.0f, 8.0f};
  const std::vector<double> frequencies = RopeFrequencies(rope, factors);
  EXPECT_DOUBLE_EQ(frequencies[0], 0.5);
  EXPECT_DOUBLE_EQ(frequencies[1], 0.01 / 8);
}

// In float the angle of position 8,191 alone would be off by 2e-4.
TEST(RopeTable, AnglesAreExactToFloatAtLatePositions) {
  const RopeConfig rope{.theta = 100000.0, .dim = 64};
  const RopeAngles angles = MakeRopeAngles(rope, {}, 8000, 192);
  ASSERT_EQ(angles.cos.size(), 192u * 32);
  const double angle = 8191 * std::pow(100000.0, -2.0 / 64);
  EXPECT_NEAR(angles.cos[191 * 32 + 1], std::cos(angle), 1e-7);
  EXPECT_NEAR(angles.sin[191 * 32 + 1], std::sin(angle), 1e-7);
}

}  // namespace
}  // namespace refrain::engine
