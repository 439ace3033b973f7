// A whole engine on a device that chooses the tokens itself, two steps in flight: the emulated one,
// and a GPU where there is one.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/engine/device_engine.h"
#include "tests/support/cuda_cases.h"
#include "tests/support/forwarding_backend.h"

namespace refrain::engine {
namespace {

using ::refrain::testing::TemporaryDirectory;

// A device that leaves choosing to the host.
using HostSampling = ::refrain::testing::ForwardingBackend;

// A device's memory that counts what goes to the host by it; tokens go another way.
class CountingDevice final : public kernels::Device {
 public:
  explicit CountingDevice(kernels::Device& on) : on_(on) {}

  absl::StatusOr<kernels::DeviceBuffer> Allocate(size_t bytes, bool huge_pages) override {
    return on_.Allocate(bytes, huge_pages);  // and goes back there
  }
  absl::Status Copy(std::byte* to, const std::byte* from, size_t bytes) override {
    return on_.Copy(to, from, bytes);
  }
  absl::Status CopyToHost(std::byte* host, const std::byte* from, size_t bytes) override {
    bytes_to_host += bytes;
    return on_.CopyToHost(host, from, bytes);
  }
  absl::Status CopyFromHost(std::byte* to, const std::byte* host, size_t bytes) override {
    return on_.CopyFromHost(to, host, bytes);
  }
  size_t AvailableBytes() const override { return on_.AvailableBytes(); }

  std::atomic<size_t> bytes_to_host = 0;

 private:
  void Free(std::byte*, size_t) override {}

  kernels::Device& on_;
};

// Its tokens are chosen on the device.
class CountingBackend final : public ::refrain::testing::ForwardingBackend {
 public:
  explicit CountingBackend(std::unique_ptr<kernels::Backend> on) : CountingBackend(on.get(), &on) {}

  kernels::Device& device() override { return counting; }
  absl::StatusOr<std::unique_ptr<kernels::TokenSampler>> MakeTokenSampler(
      const kernels::TokenSamplerOptions& options) override {
    return sampling_.MakeTokenSampler(options);
  }

  CountingDevice counting;

 private:
  CountingBackend(kernels::Backend* sampling, std::unique_ptr<kernels::Backend>* on)
      : ForwardingBackend(std::move(*on)), counting(sampling->device()), sampling_(*sampling) {}

  kernels::Backend& sampling_;
};

class PipelinedEngineTest : public ::testing::TestWithParam<std::string> {
 protected:
  static DeviceEngine ServeOn(const std::string& path, bool host_samples, int most_in_flight = 2) {
    const auto choose = [&](const BackendOptions&) {
      ChosenBackend chosen;
      chosen.backend = testing::MakeCudaBackend(GetParam());
      if (host_samples) chosen.backend = std::make_unique<HostSampling>(std::move(chosen.backend));
      return chosen;
    };
    return Serve(SmallEngineOptions(path), choose, most_in_flight);
  }
};

// The documented greedy text, by the host's sampler and by the device's.
TEST_P(PipelinedEngineTest, Stories260kGreedyIdsAreTheHostSamplersAndTheReferences) {
  std::ifstream file("tests/data/stories260K/reference_values.json");
  const auto reference = nlohmann::json::parse(file);
  constexpr int32_t kTokens = 10;
  const DeviceEngine device = ServeOn("tests/data/stories260K/hf", false);
  const DeviceEngine host = ServeOn("tests/data/stories260K/hf", true);
  for (const auto& one : reference["greedy"]) {
    const Request request = RequestFor(one["prompt_ids"].get<std::vector<int32_t>>(), kTokens);
    const Output got = device.Run(request);
    ExpectSame(got, host.Run(request), one["prompt"].dump());
    auto expected = one["generated_ids"].get<std::vector<int32_t>>();
    ASSERT_EQ(got.tokens.size(), static_cast<size_t>(kTokens));
    for (int32_t i = 0; i < kTokens; ++i) EXPECT_EQ(got.tokens[i].token, TokenId{expected[i]});
  }
  EXPECT_GE(device.runner->unseen_ids, 2 * (kTokens - 3));
  EXPECT_EQ(host.runner->unseen_ids, 0);
  const EngineStats stats = device.engine->stats();
  EXPECT_GT(stats.device_step_seconds_total, 0);
  EXPECT_LE(stats.device_idle_seconds_total, stats.device_step_seconds_total);
  EXPECT_EQ(host.engine->stats().device_step_seconds_total, 0);
}

// Whatever changes the logits of greedy requests: the same tokens as the host's, and
// log-probabilities that the device sums in another way.
TEST_P(PipelinedEngineTest, GreedyRequestsGetTheHostSamplersTokens) {
  const TemporaryDirectory folder;
  const std::string model = WriteSmallModel(folder);
  const std::vector<int32_t> prompt = {5, 80, 17, 200, 31, 9, 9, 140};
  std::vector<std::pair<std::string, std::function<void(Request&)>>> cases = {
      {"plain", [](Request&) {}},
      {"repetition", [](Request& r) { r.sampling.repetition_penalty = 1.6; }},
      {"presence", [](Request& r) { r.sampling.presence_penalty = 1.5; }},
      {"frequency",
       [](Request& r) {
         r.sampling.frequency_penalty = 0.9;
         r.sampling.repetition_penalty = 0.8;
       }},
      {"bias",
       [](Request& r) {
         r.sampling.logit_bias = {{TokenId{7}, 4.0f}, {TokenId{80}, -100.0f}};
       }},
      {"allowed",
       [](Request& r) {
         r.sampling.allowed_tokens = {TokenId{3}, TokenId{90}, TokenId{44}};
       }},
      {"logprobs", [](Request& r) { r.logprobs = {.top = 3}; }},
      {"penalties and prompt log-probabilities",
       [](Request& r) {
         r.sampling.frequency_penalty = 0.7;
         r.logprobs = {.top = 1, .prompt_top = 2};
       }},
      {"beams",
       [](Request& r) {
         r.n = 2;
         r.beam = BeamParams{};
       }},
  };
  const DeviceEngine device = ServeOn(model, false);
  const DeviceEngine host = ServeOn(model, true);
  for (const auto& [what, change] : cases) {
    Request request = RequestFor(prompt, 9);
    change(request);
    const Output got = device.Run(request);
    ExpectSame(got, host.Run(request), what, 1e-6f);
    EXPECT_FALSE(got.tokens.empty()) << what;
  }
}

// A thought of the prompt, by tokens of one byte: nothing but the tag's may come behind the budget,
// though their steps are launched before the host has seen the last ones.
TEST_P(PipelinedEngineTest, AThoughtIsClosedBehindItsBudget) {
  const TemporaryDirectory folder;
  const std::string model = WriteSmallModel(folder);
  const DeviceEngine device = ServeOn(model, false);
  const DeviceEngine host = ServeOn(model, true);
  for (const double temperature : {0.0, 1.3}) {
    Request request = RequestFor({}, 20);
    request.prompt = TextPrompt{.text = "So: <think>"};
    request.sampling.temperature = temperature;
    request.sampling.seed = 3;
    request.sampling.repetition_penalty = 1.2;
    const Output free = device.Run(request);
    request.sampling.thinking_budget_tokens = 5;
    const Output got = device.Run(request);
    if (temperature == 0) ExpectSame(got, host.Run(request), "greedy");
    ASSERT_EQ(got.tokens.size(), 20u);
    std::string tag;
    for (size_t i = 0; i < got.tokens.size(); ++i) {
      const std::string_view bytes = device.engine->tokenizer().TokenBytes(got.tokens[i].token);
      if (i < 5) {
        EXPECT_EQ(got.tokens[i].token, free.tokens[i].token) << i;
      } else if (tag.size() < kThinkClose.size()) {
        tag.append(bytes);
      }
    }
    EXPECT_EQ(tag, kThinkClose);
  }
  EXPECT_GE(device.runner->unseen_ids, 4 * 15);
}

// Requests come while others run, and some of them go; what each gets does not depend on how many
// steps are in flight, nor on what else runs.
TEST_P(PipelinedEngineTest, ARandomMixGetsTheSameWithOneAndWithTwoStepsInFlight) {
  const TemporaryDirectory folder;
  const std::string model = WriteSmallModel(folder);
  const DeviceEngine two = ServeOn(model, false, 2);
  const DeviceEngine one = ServeOn(model, false, 1);
  std::mt19937 random(7);
  constexpr int kRequests = 36;
  std::vector<Request> requests;
  for (int i = 0; i < kRequests; ++i) requests.push_back(RandomRequest(random));
  const auto leaves = [](int i) { return i % 6 == 4; };
  std::vector<std::shared_ptr<TokenStream>> streams;
  std::vector<Output> outputs(kRequests);
  for (int i = 0; i < kRequests; ++i) {
    streams.push_back(*two.engine->Submit(requests[i]));
    if (i >= 8) {  // never more than nine at once
      if (leaves(i - 8)) streams[i - 8]->Cancel();
      outputs[i - 8] = two.Wait(*streams[i - 8]);
    }
  }
  for (int i = kRequests - 8; i < kRequests; ++i) outputs[i] = two.Wait(*streams[i]);
  EXPECT_GT(two.runner->unseen_ids, 50);
  for (int i = 0; i < kRequests; ++i) {
    if (leaves(i)) continue;
    ASSERT_EQ(outputs[i].status, absl::OkStatus());
    ExpectSame(one.Run(requests[i]), outputs[i], "request " + std::to_string(i));
  }
  EXPECT_EQ(one.runner->unseen_ids, 0);
}

// Log-probabilities are looked at, not chosen by.
TEST_P(PipelinedEngineTest, AskingForLogprobsChangesNoToken) {
  const TemporaryDirectory folder;
  const DeviceEngine device = ServeOn(WriteSmallModel(folder), false);
  Request request = RequestFor({5, 80, 17}, 12);
  request.sampling.temperature = 1.2;
  request.sampling.seed = 11;
  const Output plain = device.Run(request);
  request.logprobs.top = 2;
  const Output with = device.Run(request);
  ASSERT_EQ(with.tokens.size(), plain.tokens.size());
  for (size_t i = 0; i < plain.tokens.size(); ++i) {
    EXPECT_EQ(with.tokens[i].token, plain.tokens[i].token) << i;
    EXPECT_EQ(with.tokens[i].top.size(), 2u);
  }
}

// Log-probabilities of the prompt and of each token are computed where the logits are, and the next
// step does not wait for them; beside others they are the same.
TEST_P(PipelinedEngineTest, LogprobsNeedNoLogitsOnTheHostAndHoldNoStepUp) {
  const TemporaryDirectory folder;
  EngineOptions options = SmallEngineOptions(WriteSmallModel(folder));
  CountingDevice* device = nullptr;
  const DeviceEngine served = Serve(options, [&](const BackendOptions&) {
    auto backend = std::make_unique<CountingBackend>(testing::MakeCudaBackend(GetParam()));
    device = &backend->counting;
    ChosenBackend chosen;
    chosen.backend = std::move(backend);
    return chosen;
  });
  Request request = RequestFor({5, 80, 17}, 8);
  request.logprobs = {.top = 3, .prompt_top = 2};
  const Output alone = served.Run(request);
  EXPECT_EQ(alone.tokens.size(), 3u + 8u);
  EXPECT_GE(served.runner->unseen_ids, 5);

  std::vector<std::shared_ptr<TokenStream>> others;
  for (int32_t i = 0; i < 4; ++i) {
    others.push_back(*served.engine->Submit(RequestFor({90 + i, 7, 41}, 60)));
  }
  const Output beside = served.Run(request);
  EXPECT_GE(served.engine->stats().running_sequences, 4);
  ExpectSame(beside, alone, "beside four others");
  for (const auto& other : others) other->Cancel();
  EXPECT_EQ(device->bytes_to_host, 0u);
}

INSTANTIATE_TEST_SUITE_P(Backends, PipelinedEngineTest,
                         ::testing::ValuesIn(testing::CudaBackendNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace refrain::engine
