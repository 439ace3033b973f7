#ifndef REFRAIN_TESTS_ENGINE_DEVICE_ENGINE_H_
#define REFRAIN_TESTS_ENGINE_DEVICE_ENGINE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/create_engine.h"
#include "engine/engine.h"
#include "engine/model_runner.h"
#include "tests/support/temporary_directory.h"

namespace refrain::engine {

// Passes on, with at most so many steps in flight, and counts.
class WatchedRunner final : public ModelRunner {
 public:
  WatchedRunner(std::unique_ptr<ModelRunner> runner, int most);

  int max_in_flight() const override { return most_; }
  StepHandle Launch(const StepBatch& batch) override;
  absl::StatusOr<StepResult> Collect(StepHandle handle) override { return on_->Collect(handle); }
  kernels::DeviceTimes device_times() override { return on_->device_times(); }

  std::atomic<int64_t> unseen_ids = 0;  // rows launched before the host had seen their token

 private:
  const std::unique_ptr<ModelRunner> on_;
  const int most_;
};

// What a consumer read of one request, the events of each choice together.
struct Output {
  absl::Status status;
  std::vector<TokenEvent> tokens;
  std::vector<ChoiceEnd> ends;
};
// Log-probabilities may differ by so much.
void ExpectSame(const Output& got, const Output& expected, const std::string& what,
                float logprob_error = 0.0f);

// An engine with its threads and a small model, in f32 and reproducible, on any back end.
struct DeviceEngine {
  Output Run(const Request& request) const { return Wait(**engine->Submit(request)); }
  Output Wait(TokenStream& stream) const;

  WatchedRunner* runner = nullptr;
  std::unique_ptr<Engine> engine;
};
EngineOptions SmallEngineOptions(const std::string& model_path);
DeviceEngine Serve(const EngineOptions& options, const BackendChooser& choose,
                   int most_in_flight = 2);

// Small enough for many steps of the emulated device: 300 tokens, a context of 128.
std::string WriteSmallModel(const testing::TemporaryDirectory& folder, int32_t ffn_size = 32,
                            int32_t window_tokens = 0);

// For the small model: prompts of 1 to 32 tokens, many of which begin alike, up to 12 new tokens,
// with every way of sampling, some with log-probabilities or two choices.
Request RandomRequest(std::mt19937& random);

// Greedy, whatever comes.
Request RequestFor(const std::vector<int32_t>& prompt, int32_t max_tokens);

}  // namespace refrain::engine

#endif  // REFRAIN_TESTS_ENGINE_DEVICE_ENGINE_H_
