// Requests that join and leave at random on a device: what each gets does not depend on sharing, on
// how attention reads, or on the others; and nothing is left behind. On the emulated device, and on
// a GPU where there is one.

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include "tests/engine/device_engine.h"
#include "tests/support/cuda_cases.h"
#include "tests/support/eventually.h"

namespace refrain::engine {
namespace {

using ::refrain::testing::Eventually;

class DeviceRandomStepsTest : public ::testing::TestWithParam<std::string> {
 protected:
  DeviceEngine ServeWith(const EngineOptions& options) {
    return Serve(options, [this](const BackendOptions&) {
      ChosenBackend chosen;
      chosen.backend = testing::MakeCudaBackend(GetParam());
      backend_ = chosen.backend.get();
      return chosen;
    });
  }
  bool on_gpu() const { return GetParam() == "cuda"; }

  const testing::TemporaryDirectory folder_;
  const std::string model_ = WriteSmallModel(folder_);
  kernels::Backend* backend_ = nullptr;  // of the last engine
};

std::vector<Request> RandomRequests(int count) {
  std::mt19937 random(21);
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    requests.push_back(RandomRequest(random));
    requests.back().logprobs.top = 1;
  }
  return requests;
}

// All at once, as far as the engine has places.
std::vector<Output> RunTogether(const DeviceEngine& served, const std::vector<Request>& requests) {
  std::vector<std::shared_ptr<TokenStream>> streams;
  for (const Request& request : requests) streams.push_back(*served.engine->Submit(request));
  std::vector<Output> outputs;
  for (const auto& stream : streams) outputs.push_back(served.Wait(*stream));
  return outputs;
}

TEST_P(DeviceRandomStepsTest, NeitherSharingNorTheWayOfReadingNorOthersChangeABit) {
  const std::vector<Request> requests = RandomRequests(9);
  std::vector<Output> alone;
  {
    EngineOptions options = SmallEngineOptions(model_);
    options.kv_cache.prefix_cache = false;
    options.attention_mode = AttentionModeOption::kPaged;
    const DeviceEngine served = ServeWith(options);
    for (const Request& request : requests) alone.push_back(served.Run(request));
  }
  for (const bool shares : {true, false}) {
    for (const auto mode : {AttentionModeOption::kTwoPhase, AttentionModeOption::kPaged}) {
      EngineOptions options = SmallEngineOptions(model_);
      options.kv_cache.prefix_cache = shares;
      options.attention_mode = mode;
      const DeviceEngine served = ServeWith(options);
      const std::vector<Output> outputs = RunTogether(served, requests);
      EXPECT_EQ(served.engine->stats().cached_prompt_tokens_total > 0, shares);
      for (size_t i = 0; i < requests.size(); ++i) {
        ASSERT_TRUE(outputs[i].status.ok()) << outputs[i].status;
        ExpectSame(outputs[i], alone[i],
                   (shares ? "shared, request " : "not shared, request ") + std::to_string(i));
      }
    }
  }
}

int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// How many steps: few on the emulated device, where one takes milliseconds.
int64_t Steps(bool on_gpu) {
  const char* const wanted = std::getenv("REFRAIN_DEVICE_STEPS");
  return wanted != nullptr ? std::atoll(wanted) : on_gpu ? 100'000 : 200;
}

#if defined(__SANITIZE_ADDRESS__)
// What was freed stays for a while, up to this much of it; it finds leaks itself.
constexpr int64_t kHostSlack = int64_t{256} << 20;
#else
constexpr int64_t kHostSlack = int64_t{16} << 20;
#endif

TEST_P(DeviceRandomStepsTest, JoiningAndLeavingLeaveNothingBehind) {
  // A card's own count of free memory, which graphs that are recorded anew move. So does whatever
  // else runs there: tools/gpu_check runs this case alone.
  const int64_t device_slack = on_gpu() ? int64_t{32} << 20 : 0;
  // Room for fewer chunks than are asked for: sequences wait and give way.
  EngineOptions options = SmallEngineOptions(model_);
  options.kv_cache.memory_bytes = 96 << 10;
  options.reproducible = false;
  const DeviceEngine served = ServeWith(options);
  std::mt19937 random(5);
  std::deque<std::shared_ptr<TokenStream>> streams;
  int64_t answered = 0, cancelled = 0;
  const auto finish_first = [&] {
    const Output output = served.Wait(*streams.front());
    streams.pop_front();
    (output.status.ok() ? answered : cancelled) += 1;
    EXPECT_TRUE(output.status.ok() || absl::IsCancelled(output.status)) << output.status;
  };
  struct Left {
    int64_t device_bytes, host_bytes;
  };
  // With nothing running and nothing cached.
  const auto look = [&]() -> Left {
    while (!streams.empty()) finish_first();
    EXPECT_TRUE(served.engine->DropIdleCache().ok());
    const auto left = [&] {
      const EngineStats stats = served.engine->stats();
      return stats.running_sequences + stats.queued_requests + stats.held_sequences +
             stats.kv_used_chunks + stats.kv_cached_chunks;
    };
    // Told behind the turn in which it was done.
    EXPECT_TRUE(Eventually([&] { return left() == 0; })) << left();
    return {static_cast<int64_t>(backend_->device().AvailableBytes()), ResidentBytes()};
  };
  const int64_t steps = Steps(on_gpu());
  Left warm{};
  int64_t told = 0;
  for (const int64_t until : {steps / 3, steps}) {
    for (int64_t done = 0; (done = served.engine->stats().steps_total) < until;) {
      // Whoever waits for it sees that it goes on.
      if (done >= told + 1000) std::printf("%lld steps\n", static_cast<long long>(told = done));
      std::fflush(stdout);
      streams.push_back(*served.engine->Submit(RandomRequest(random)));
      if (random() % 4 == 0) streams[random() % streams.size()]->Cancel();
      if (streams.size() > 8) finish_first();
    }
    if (until < steps) warm = look();
  }
  const Left end = look();
  EXPECT_LE(warm.device_bytes - end.device_bytes, device_slack);
  EXPECT_LE(end.host_bytes - warm.host_bytes, kHostSlack);
  EXPECT_GT(answered, steps / 40);
  EXPECT_GT(cancelled, steps / 200);
  EXPECT_EQ(served.engine->stats().corrupted_requests_total, 0);
  EXPECT_TRUE(served.engine->health().ok());
}

INSTANTIATE_TEST_SUITE_P(Backends, DeviceRandomStepsTest,
                         ::testing::ValuesIn(testing::CudaBackendNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace refrain::engine
