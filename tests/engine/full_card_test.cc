// An engine on a card of which something else has taken all that was free: the emulated one, and a
// GPU where there is one, which then has to be this program's alone.

#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/device.h"
#include "tests/engine/device_engine.h"
#include "tests/engine/unforeseeing_backend.h"
#include "tests/support/cuda_cases.h"
#include "tests/support/eventually.h"

namespace refrain::engine {
namespace {

using ::refrain::testing::Eventually;

class FullCardTest : public ::testing::TestWithParam<std::string> {
 protected:
  DeviceEngine ServeOn(bool foreseeing) {
    EngineOptions options = SmallEngineOptions(model_);
    options.kv_cache.memory_bytes = 512 << 10;
    return Serve(options, [&](const BackendOptions&) {
      ChosenBackend chosen;
      chosen.backend = testing::MakeCudaBackend(GetParam());
      device_ = &chosen.backend->device();
      if (!foreseeing) {
        chosen.backend = std::make_unique<UnforeseeingBackend>(std::move(chosen.backend));
      }
      return chosen;
    });
  }

  const testing::TemporaryDirectory folder_;
  // A step takes 1 KiB of scratch for each of its tokens, and a little.
  const std::string model_ = WriteSmallModel(folder_, /*ffn_size=*/256);
  kernels::Device* device_ = nullptr;  // of the last engine
};

// Of which each prompt takes more scratch than a card gives away in one piece.
std::vector<Request> Requests() {
  std::vector<Request> requests;
  for (int32_t i = 0; i < 4; ++i) {
    std::vector<int32_t> prompt;
    for (int32_t token = 0; token < 100 + i; ++token) prompt.push_back((11 * i + 37 * token) % 300);
    requests.push_back(RequestFor(prompt, 6));
    requests.back().sampling.temperature = i % 2;
    requests.back().sampling.seed = 5 + i;
  }
  return requests;
}

// Down to pieces smaller than any that a card gives away.
std::vector<kernels::DeviceBuffer> TakeTheRest(kernels::Device& device) {
  std::vector<kernels::DeviceBuffer> rest;
  for (size_t piece = size_t{1} << 37; piece >= 512;) {
    auto part = device.Allocate(piece, false);
    if (part.ok()) {
      rest.push_back(*std::move(part));
    } else {
      piece /= 2;
    }
  }
  return rest;
}

TEST_P(FullCardTest, ARequestIsAnsweredAsElsewhereOrEndsForWantOfMemoryAndTheEngineGoesOn) {
  const std::vector<Request> requests = Requests();
  std::vector<Output> expected;
  {
    const DeviceEngine undisturbed = ServeOn(true);
    for (const Request& request : requests) expected.push_back(undisturbed.Run(request));
  }
  const DeviceEngine served = ServeOn(false);
  // Has whatever does not grow with a step's tokens allocated.
  EXPECT_TRUE(served.Run(RequestFor({1}, 12)).status.ok());
  const auto idle = [&] { return served.engine->stats().running_sequences == 0; };
  ASSERT_TRUE(Eventually(idle));
  std::vector<kernels::DeviceBuffer> rest = TakeTheRest(*device_);

  std::vector<std::shared_ptr<TokenStream>> streams;
  for (const Request& request : requests) streams.push_back(*served.engine->Submit(request));
  int answered = 0;
  for (size_t i = 0; i < streams.size(); ++i) {
    const Output output = served.Wait(*streams[i]);
    if (absl::IsResourceExhausted(output.status)) continue;
    ++answered;
    ExpectSame(output, expected[i], "request " + std::to_string(i));
  }
  const EngineStats full = served.engine->stats();
  std::printf("%d of %zu answered, %lld steps without memory\n", answered, requests.size(),
              static_cast<long long>(full.steps_without_memory_total));
  EXPECT_GE(full.steps_without_memory_total, 1);
  EXPECT_TRUE(served.engine->health().ok()) << served.engine->health();

  ASSERT_TRUE(Eventually(idle));
  rest.clear();
  for (size_t i = 0; i < requests.size(); ++i) {
    ExpectSame(served.Run(requests[i]), expected[i], "behind it, request " + std::to_string(i));
  }
  EXPECT_TRUE(served.engine->health().ok()) << served.engine->health();
}

INSTANTIATE_TEST_SUITE_P(Backends, FullCardTest, ::testing::ValuesIn(testing::CudaBackendNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace refrain::engine
