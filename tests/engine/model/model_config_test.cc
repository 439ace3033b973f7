#include "engine/model/model_config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "tests/support/tiny_model.h"

namespace refrain::engine {
namespace {

using refrain::testing::TinyConfig;

TEST(ModelConfigTest, AcceptsWhatRuns) {
  EXPECT_TRUE(TinyConfig().Validate().ok());
  for (const RopeScaling scaling :
       {RopeScaling::kNone, RopeScaling::kLinear, RopeScaling::kLlama3, RopeScaling::kYarn}) {
    ModelConfig config = TinyConfig();
    config.rope.scaling = scaling;
    config.rope.factor = 8.0;
    config.rope.original_context_tokens = 128;
    EXPECT_TRUE(config.Validate().ok()) << config.Validate();
  }
}

struct WrongField {
  const char* name;  // of the field, which the message must state
  std::function<void(ModelConfig&)> spoil;
};

class RefusesTest : public ::testing::TestWithParam<WrongField> {};

TEST_P(RefusesTest, NamesTheField) {
  ModelConfig config = TinyConfig();
  GetParam().spoil(config);
  const absl::Status status = config.Validate();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(status.message()).find(GetParam().name), std::string::npos) << status;
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

INSTANTIATE_TEST_SUITE_P(
    ModelConfig, RefusesTest,
    ::testing::Values(
        WrongField{"num_layers", [](ModelConfig& c) { c.num_layers = 0; }},
        WrongField{"num_layers", [](ModelConfig& c) { c.num_layers = 1 << 20; }},
        WrongField{"hidden_size", [](ModelConfig& c) { c.hidden_size = -1; }},
        WrongField{"num_heads", [](ModelConfig& c) { c.num_heads = 1 << 30; }},
        WrongField{"num_kv_heads", [](ModelConfig& c) { c.num_kv_heads = 0; }},
        WrongField{"multiple of num_kv_heads", [](ModelConfig& c) { c.num_kv_heads = 3; }},
        WrongField{"head_dim", [](ModelConfig& c) { c.head_dim = c.rope.dim = 4; }},
        WrongField{"head_dim", [](ModelConfig& c) { c.head_dim = 258; }},
        WrongField{"even", [](ModelConfig& c) { c.head_dim = 65; }},
        WrongField{"even", [](ModelConfig& c) { c.rope.dim = 63; }},
        WrongField{"ffn_size", [](ModelConfig& c) { c.ffn_size = 0; }},
        WrongField{"vocab_size", [](ModelConfig& c) { c.vocab_size = 1 << 30; }},
        WrongField{"max_context_tokens", [](ModelConfig& c) { c.max_context_tokens = 1 << 30; }},
        WrongField{"sliding_window_tokens", [](ModelConfig& c) { c.sliding_window_tokens = -1; }},
        WrongField{"rms_eps", [](ModelConfig& c) { c.rms_eps = 0; }},
        WrongField{"rms_eps", [](ModelConfig& c) { c.rms_eps = kNan; }},
        WrongField{"rope.theta", [](ModelConfig& c) { c.rope.theta = kNan; }},
        WrongField{"rope.theta", [](ModelConfig& c) { c.rope.theta = 0; }},
        WrongField{"rope.dim", [](ModelConfig& c) { c.rope.dim = 66; }},
        WrongField{"rope.factor",
                   [](ModelConfig& c) {
                     c.rope.scaling = RopeScaling::kLinear;
                     c.rope.factor = 0;
                   }},
        WrongField{"rope.low_freq_factor",
                   [](ModelConfig& c) {
                     c.rope.scaling = RopeScaling::kLlama3;
                     c.rope.original_context_tokens = 8192;
                     c.rope.low_freq_factor = c.rope.high_freq_factor;
                   }},
        WrongField{"rope.original_context_tokens",
                   [](ModelConfig& c) { c.rope.scaling = RopeScaling::kYarn; }},
        // The ramp would run backwards, or have no ends: frequencies that are not numbers.
        WrongField{"rope.beta_fast",
                   [](ModelConfig& c) {
                     c.rope.scaling = RopeScaling::kYarn;
                     c.rope.original_context_tokens = 4096;
                     c.rope.beta_fast = 0.1;
                   }},
        WrongField{"rope.theta", [](ModelConfig& c) {
                     c.rope.scaling = RopeScaling::kYarn;
                     c.rope.original_context_tokens = 4096;
                     c.rope.theta = 1.0;
                   }}));

}  // namespace
}  // namespace refrain::engine
