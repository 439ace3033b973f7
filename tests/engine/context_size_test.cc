// Engines whose KV cache holds less than the model's context, or is larger than memory.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "engine/backend_factory.h"
#include "tests/engine/device_engine.h"
#include "tests/support/forwarding_backend.h"

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

  static constexpr size_t kTotalBytes = 8 << 20;
  static constexpr size_t kAvailableBytes = 4 << 20;
  static absl::StatusOr<ChosenBackend> ChooseSmallHost(const BackendOptions& options);
  static BackendChooser SmallHostWith(size_t available_bytes);

  const testing::TemporaryDirectory folder_;
  const std::string model_ = WriteSmallModel(folder_, /*ffn_size=*/64);
};

// A host of little memory, which gives addresses for more.
class SmallHost final : public kernels::Device {
 public:
  SmallHost(kernels::Device& on, size_t available_bytes, size_t total_bytes)
      : on_(on), available_bytes_(available_bytes), total_bytes_(total_bytes) {}
  absl::StatusOr<kernels::DeviceBuffer> Allocate(size_t bytes, bool huge_pages) override {
    return on_.Allocate(bytes, huge_pages);
  }
  absl::Status Copy(std::byte* to, const std::byte* from, size_t bytes) override {
    return on_.Copy(to, from, bytes);
  }
  absl::Status CopyToHost(std::byte* host, const std::byte* from, size_t bytes) override {
    return on_.CopyToHost(host, from, bytes);
  }
  absl::Status CopyFromHost(std::byte* to, const std::byte* host, size_t bytes) override {
    return on_.CopyFromHost(to, host, bytes);
  }
  size_t AvailableBytes() const override { return available_bytes_; }
  size_t TotalBytes() const override { return total_bytes_; }

 private:
  void Free(std::byte*, size_t) override {}  // buffers are the other's

  kernels::Device& on_;
  const size_t available_bytes_, total_bytes_;
};

class BackendOnSmallHost final : public testing::ForwardingBackend {
 public:
  BackendOnSmallHost(std::unique_ptr<kernels::Backend> backend, size_t available_bytes,
                     size_t total_bytes)
      : ForwardingBackend(std::move(backend)),
        device_(on().device(), available_bytes, total_bytes) {}
  kernels::Device& device() override { return device_; }

 private:
  SmallHost device_;
};

BackendChooser ContextSizeTest::SmallHostWith(size_t available_bytes) {
  return [available_bytes](const BackendOptions& options) {
    absl::StatusOr<ChosenBackend> chosen = ChooseBackend(options);
    if (chosen.ok()) {
      chosen->backend = std::make_unique<BackendOnSmallHost>(std::move(chosen->backend),
                                                             available_bytes, kTotalBytes);
    }
    return chosen;
  };
}

absl::StatusOr<ChosenBackend> ContextSizeTest::ChooseSmallHost(const BackendOptions& options) {
  return SmallHostWith(kAvailableBytes)(options);
}

// It runs as long as the cache does not fill, or once others have made room.
TEST_F(ContextSizeTest, ACacheLargerThanWhatIsFreeIsAWarning) {
  EngineOptions options = HalfTheContext();
  options.kv_cache.memory_bytes = kAvailableBytes;
  auto parts = MakeEngineParts(options, &ChooseSmallHost);
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_EQ(parts->model.warning, "");
  options.kv_cache.memory_bytes = kAvailableBytes + (8 << 10);
  const auto larger = MakeEngineParts(options, &ChooseSmallHost);
  ASSERT_TRUE(larger.ok()) << larger.status();
  EXPECT_EQ(larger->model.warning,
            "kv_cache.memory_bytes is 4202496, of which 4194304 bytes are free: when what is "
            "cached fills them, the system may end the process");
}

TEST_F(ContextSizeTest, ACacheLargerThanTheMachineIsRefused) {
  EngineOptions options = HalfTheContext();
  options.kv_cache.memory_bytes = kTotalBytes + (8 << 10);
  const absl::Status status = MakeEngineParts(options, &ChooseSmallHost).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(status.message(), HasSubstr("kv_cache.memory_bytes of 8396800 bytes is more than "));
}

// Pages that a step touches first are free before: a thread's scratch is 2 MiB of them here.
TEST_F(ContextSizeTest, TheDefaultSizeLeavesWhatStepsTake) {
  constexpr size_t kMiB = size_t{1} << 20;
  EngineOptions options = HalfTheContext();
  options.backend.threads = 1;
  options.kv_cache.memory_bytes = 0;
  const auto much = MakeEngineParts(options, SmallHostWith(8 * kMiB));
  ASSERT_TRUE(much.ok()) << much.status();
  const auto little = MakeEngineParts(options, SmallHostWith(2 * kMiB + 512 * 1024));
  ASSERT_TRUE(little.ok()) << little.status();
  EXPECT_GT(little->cache->options().num_chunks, 0);
  EXPECT_LT(little->cache->options().num_chunks * 8192, 256 * 1024);  // half of what is left
  EXPECT_LT(little->cache->options().num_chunks, much->cache->options().num_chunks);
  const absl::Status none = MakeEngineParts(options, SmallHostWith(2 * kMiB)).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(none.message(), HasSubstr("half of the 0 bytes that are free beside "));
}

TEST_F(ContextSizeTest, LimitsThatPermitMoreThanIsFreeAreAWarning) {
  constexpr size_t kMiB = size_t{1} << 20;
  EngineOptions options = HalfTheContext();
  options.backend.threads = 1;
  for (const auto& [server_bytes, fits] : {std::pair(4 * kMiB, true), {6 * kMiB, false}}) {
    options.limits.server_bytes = static_cast<int64_t>(server_bytes);
    const auto parts = MakeEngineParts(options, SmallHostWith(8 * kMiB));
    ASSERT_TRUE(parts.ok()) << parts.status();
    const std::string want = "of 8388608 bytes that are free the KV cache may take 32768, steps ";
    EXPECT_EQ(parts->model.warning.find(want) == std::string::npos, fits) << parts->model.warning;
  }
  EXPECT_THAT(MakeEngineParts(options, SmallHostWith(8 * kMiB))->model.warning,
              HasSubstr(" and requests and connections 6291456 (limits.bodies_bytes, "
                        "limits.grpc_memory_bytes): when they do, the system may end the process"));
}

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
