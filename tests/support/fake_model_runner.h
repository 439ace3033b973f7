#ifndef REFRAIN_TESTS_SUPPORT_FAKE_MODEL_RUNNER_H_
#define REFRAIN_TESTS_SUPPORT_FAKE_MODEL_RUNNER_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/model_runner.h"
#include "tests/support/fake_chunk_mover.h"

namespace refrain::testing {

// A model whose next token depends on every token and position before it, and on nothing else. It
// reads them the way a kernel would: through the attention plan, from cells that earlier steps
// wrote. So a chunk that is shared, freed, copied or planned wrongly changes what it says.
//
// With one step in flight it computes in Launch; with two, a thread of its own does, and rows
// marked kFromPreviousStep take their ids from the step before. Broken batches are listed by
// errors().
class FakeModelRunner : public engine::ModelRunner {
 public:
  // Logits for the token after `history`.  // [vocab_size]
  using Logits = std::function<std::vector<float>(const std::vector<FakeKvCell>& history)>;

  // `memory` is the pool; its `before_copy` is set to wait for launched steps.
  FakeModelRunner(FakeChunkMover* memory, int32_t vocab_size, int max_in_flight);
  ~FakeModelRunner() override;

  int max_in_flight() const override { return max_in_flight_; }
  engine::StepHandle Launch(const engine::StepBatch& batch) override;
  absl::StatusOr<engine::StepResult> Collect(engine::StepHandle handle) override;

  // Before the first Launch: replaces the model.
  void set_logits(Logits logits) { logits_ = std::move(logits); }
  // Steps are numbered from 1; that one fails, and what is launched before it was collected.
  void FailStep(uint64_t number, absl::Status status) { failures_[number] = std::move(status); }
  // Called before each step is computed, on the thread that computes it.
  std::function<void(const engine::StepBatch&)> before_step;

  std::vector<std::string> errors() const;
  uint64_t launched() const { return launched_; }
  int64_t rows() const { return rows_; }

 private:
  struct Step {
    uint64_t number;
    engine::StepBatch batch;
    absl::Status failure;
  };

  void Serve();
  absl::StatusOr<engine::StepResult> Run(Step& step);
  engine::StepResult Compute(Step& step);
  std::vector<FakeKvCell> History(const engine::StepBatch& batch, int32_t slot, int32_t length);
  void Complain(std::string error);
  void WaitUntilIdle();

  FakeChunkMover* const memory_;
  const int32_t vocab_size_;
  const int max_in_flight_;
  Logits logits_;
  std::map<uint64_t, absl::Status> failures_;
  uint64_t launched_ = 0;
  uint64_t collected_ = 0;
  int64_t rows_ = 0;
  std::map<int32_t, int32_t> sampled_before_;  // slot -> id, of the last computed step

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Step> to_do_;
  std::map<uint64_t, absl::StatusOr<engine::StepResult>> done_;
  std::vector<std::string> errors_;
  bool stopped_ = false;
  bool busy_ = false;
  std::thread thread_;
};

// Logits that look random and depend on the whole history.
std::vector<float> HashLogits(const std::vector<FakeKvCell>& history, int32_t vocab_size);

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SUPPORT_FAKE_MODEL_RUNNER_H_
