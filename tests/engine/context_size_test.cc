// Engines whose KV cache holds less than the model's context.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "engine/backend_factory.h"
#include "tests/engine/device_engine.h"

namespace refrain::engine {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ContextSizeTest : public ::testing::Test {
 protected:
  static absl::StatusOr<ChosenBackend> Choose(const BackendOptions& options) {
    return ChooseBackend(options);
  }
  // Of the model's 128 tokens it holds 64: four chunks of 16.
  EngineOptions HalfTheContext() const {
    EngineOptions options = SmallEngineOptions(model_);
    options.backend.kind = "cpu";
    options.kv_cache.memory_bytes = 32 << 10;
    return options;
  }

  const testing::TemporaryDirectory folder_;
  const std::string model_ = WriteSmallModel(folder_, /*ffn_size=*/64);
};

// As a chat without max_tokens does, which may go on to the end of the context.
TEST_F(ContextSizeTest, ARequestForTheWholeContextRunsInAKvCacheThatHoldsLess) {
  const DeviceEngine engine = Serve(HalfTheContext(), &Choose);
  ASSERT_EQ(engine.engine->stats().kv_capacity_tokens, 64);
  EXPECT_EQ(engine.engine->model().max_context_tokens, 64);
  EXPECT_THAT(engine.engine->model().warning,
              HasSubstr("requests may have 64 tokens, which the KV cache holds, not the model's "
                        "128: kv_cache.memory_bytes decides"));
  const Output output =
      engine.Run(RequestFor({1, 2, 3, 4}, engine.engine->model().max_context_tokens));
  EXPECT_EQ(output.status, absl::OkStatus());
  EXPECT_EQ(output.tokens.size(), 60u);
}

TEST_F(ContextSizeTest, AContextThatWasAskedForAndDoesNotFitIsRefused) {
  EngineOptions options = HalfTheContext();
  options.max_context_tokens = 65;
  const absl::Status status = MakeEngineParts(options, &Choose).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("engine.max_context_tokens is 65"),
                                      HasSubstr("the KV cache holds 64 tokens")));
}

TEST_F(ContextSizeTest, AContextThatFitsIsNoWarning) {
  EngineOptions options = HalfTheContext();
  options.max_context_tokens = 64;
  const auto parts = MakeEngineParts(options, &Choose);
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_EQ(parts->model.max_context_tokens, 64);
  EXPECT_THAT(parts->model.warning, ::testing::Not(HasSubstr("KV cache")));
}

}  // namespace
}  // namespace refrain::engine
