// Models whose keys or values are too large for the KV cache's type, as those of some models are
// for f16: a request ends with an error in place of an answer of noise, and nobody else is harmed.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <tuple>

#include "engine/engine.h"
#include "tests/support/eventually.h"
#include "tests/support/stream_output.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_model.h"

namespace refrain::testing {
namespace {

using engine::Engine;
using engine::EngineOptions;
using engine::Request;
using engine::TensorRole;
using kernels::DType;

// Above what f16 holds (65,504), with values of about 1 before.
constexpr float kTooLarge = 1 << 17;

std::unique_ptr<Engine> Start(const std::string& path, const std::string& kv_dtype,
                              const std::string& compute) {
  EngineOptions options;
  options.model.path = path;
  options.backend.threads = 2;
  options.backend.compute_dtype = compute;
  options.kv_cache.dtype = kv_dtype;
  options.kv_cache.memory_bytes = 16 << 20;
  auto engine = engine::CreateEngine(options);
  EXPECT_TRUE(engine.ok()) << engine.status();
  return engine.ok() ? *std::move(engine) : nullptr;
}

// A prompt with rows of context, which are multiplied in their own way.
Request SomeRequest(double temperature, bool logprobs) {
  engine::TokenPrompt prompt;
  for (int i = 0; i < 100; ++i) prompt.ids.push_back(engine::TokenId{3 + i * 7 % 256});
  Request request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = temperature;
  request.sampling.seed = 1;
  request.stop.max_tokens = 4;
  request.stop.ignore_eos = true;
  if (logprobs) request.logprobs.top = 2;
  return request;
}

absl::Status StatusOf(Engine& engine, const Request& request, int* tokens) {
  const auto stream = engine.Submit(request);
  if (!stream.ok()) return stream.status();
  const engine::StreamBatch all = ReadBatches(**stream);
  *tokens = static_cast<int>(all.tokens.size());
  return all.status;
}

class Overflow : public ::testing::TestWithParam<std::tuple<TensorRole, DType>> {};

TEST_P(Overflow, OfTheCachesTypeIsAnError) {
  const auto [role, dtype] = GetParam();
  const TemporaryDirectory folder;
  TinyModelOptions model;
  model.matrix_dtype = dtype;
  model.enlarged = {role, kTooLarge};
  const auto path = WriteTinyGguf(model, folder.path());
  ASSERT_TRUE(path.ok()) << path.status();
  for (const char* compute : {"auto", "f32", "int8"}) {
    if (!kernels::Traits(dtype).quantized && compute == std::string("int8")) continue;
    const auto small = Start(*path, "f16", compute), large = Start(*path, "f32", compute);
    ASSERT_NE(small, nullptr);
    ASSERT_NE(large, nullptr);
    int64_t failed = 0;
    for (const double temperature : {0.0, 0.8}) {
      for (const bool logprobs : {false, true}) {
        SCOPED_TRACE(::testing::Message() << compute << " at " << temperature << " " << logprobs);
        const Request request = SomeRequest(temperature, logprobs);
        int tokens = 0, all_tokens = 0;
        const absl::Status status = StatusOf(*small, request, &tokens);
        EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
        EXPECT_NE(status.message().find("kv_cache.dtype"), std::string::npos) << status;
        EXPECT_EQ(tokens, 0);
        ++failed;  // what is counted can be seen a little later than the end
        Eventually([&] { return small->stats().corrupted_requests_total >= failed; });
        EXPECT_EQ(small->stats().corrupted_requests_total, failed);
        EXPECT_EQ(StatusOf(*large, request, &all_tokens), absl::OkStatus());
        EXPECT_EQ(all_tokens, 4);
      }
    }
    EXPECT_EQ(large->stats().corrupted_requests_total, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Roles, Overflow,
    ::testing::Combine(::testing::Values(TensorRole::kAttnK, TensorRole::kAttnV),
                       ::testing::Values(DType::kF32, DType::kQ8_0, DType::kQ4_1)),
    [](const auto& info) {
      return std::string(std::get<0>(info.param) == TensorRole::kAttnK ? "keys_" : "values_") +
             std::string(kernels::Traits(std::get<1>(info.param)).name);
    });

}  // namespace
}  // namespace refrain::testing
