#ifndef REFRAIN_TESTS_ENGINE_COSTLESS_LOOP_H_
#define REFRAIN_TESTS_ENGINE_COSTLESS_LOOP_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine_loop.h"
#include "tests/support/fake_chunk_mover.h"
#include "tests/support/fake_tokenizer.h"

namespace refrain::testing {

// All answers are alike, and take no time.
class CostlessRunner final : public engine::ModelRunner {
 public:
  int max_in_flight() const override { return 1; }
  engine::StepHandle Launch(const engine::StepBatch& batch) override {
    rows_ = batch.logits.size();
    return engine::StepHandle{++launched_};
  }
  absl::StatusOr<engine::StepResult> Collect(engine::StepHandle) override {
    engine::StepResult result;
    result.rows.resize(rows_);
    for (engine::SampledToken& row : result.rows) {
      row.token = kvcache::TokenId{3};
      row.logprob = engine::TokenLogprob{kvcache::TokenId{3}, -1, 1};
    }
    return result;
  }

 private:
  uint64_t launched_ = 0;
  size_t rows_ = 0;
};

struct CostlessRequest {
  int32_t seed = 0;
  int32_t prompt_tokens = 1;
  int32_t max_tokens = 1;
  int32_t n = 1;
  int32_t best_of = 1;
  int32_t priority = 0;
  std::string tenant;
};

struct CostlessOptions {
  int32_t num_chunks = 1;
  engine::SchedulerLimits scheduler;
  engine::PlanFunction planner = &engine::Plan;
};

// An engine loop over a cache without bytes and a model without work: what a turn takes is the
// loop's own. Single-threaded.
class CostlessLoop {
 public:
  explicit CostlessLoop(const CostlessOptions& options)
      : memory_(options.num_chunks, options.scheduler.chunk_tokens),
        cache_(*kvcache::CacheManager::Create({.num_chunks = options.num_chunks,
                                               .chunk_tokens = options.scheduler.chunk_tokens,
                                               .max_slots = options.scheduler.max_sequences},
                                              &memory_)),
        loop({.runner = &runner_,
              .cache = cache_.get(),
              .tokenizer = &tokenizer_,
              .queue = &queue_,
              .ledger = ledger_.get(),
              .clock = &clock_},
             {.scheduler = options.scheduler, .planner = options.planner}) {}

  // Prompts of other seeds, of which there are 20, begin differently.
  std::shared_ptr<engine::TokenStream> Submit(const CostlessRequest& request) {
    std::vector<kvcache::TokenId> prompt;
    prompt.reserve(static_cast<size_t>(request.prompt_tokens));
    for (int64_t i = 0; i < request.prompt_tokens; ++i) {
      const int64_t id = i == 0 ? request.seed : (request.seed + i * i) % 20;
      prompt.push_back(kvcache::TokenId{static_cast<int32_t>(id)});
    }
    return SubmitPrompt(request, std::move(prompt));
  }
  std::shared_ptr<engine::TokenStream> SubmitPrompt(const CostlessRequest& request,
                                                    std::vector<kvcache::TokenId> prompt) {
    auto encoded = std::make_unique<engine::EncodedRequest>();
    encoded->number = ++number_;
    encoded->ticket = *ledger_->Enter(request.tenant);
    encoded->stream = std::make_shared<engine::TokenStream>();
    encoded->request.n = request.n;
    if (request.best_of > request.n) encoded->request.best_of = request.best_of;
    encoded->request.priority = request.priority;
    encoded->request.tenant = request.tenant;
    encoded->request.sampling.temperature = 0;
    encoded->request.stop.max_tokens = request.max_tokens;
    encoded->request.stop.ignore_eos = true;
    encoded->prompt = std::move(prompt);
    encoded->stop_rules = std::make_shared<const engine::StopRules>(
        encoded->request.stop, request.max_tokens, std::vector<kvcache::TokenId>{});
    streams_.push_back(encoded->stream);
    queue_.Push(std::move(encoded));
    return streams_.back();
  }

  // The one that was submitted as number `number`, from 1 on.
  void Cancel(uint64_t number) { queue_.PostCancel(number); }

  void RunUntilIdle() {
    while (loop.Turn()) continue;
  }
  double TurnUs() {
    const auto begin = std::chrono::steady_clock::now();
    loop.Turn();
    const auto end = std::chrono::steady_clock::now();
    return std::chrono::duration<double, std::micro>(end - begin).count();
  }
  double MedianTurnUs(int turns) {
    std::vector<double> us;
    for (int i = 0; i < turns; ++i) us.push_back(TurnUs());
    std::nth_element(us.begin(), us.begin() + turns / 2, us.end());
    return us[static_cast<size_t>(turns / 2)];
  }

 private:
  FakeChunkMover memory_;
  FakeTokenizer tokenizer_{LetterVocabulary()};
  std::unique_ptr<kvcache::CacheManager> cache_;
  std::shared_ptr<engine::AdmissionLedger> ledger_ =
      std::make_shared<engine::AdmissionLedger>(1 << 20, int64_t{1} << 40);
  engine::RequestQueue queue_;
  engine::SteadyClock clock_;
  CostlessRunner runner_;
  std::vector<std::shared_ptr<engine::TokenStream>> streams_;
  uint64_t number_ = 0;

 public:
  engine::EngineLoop loop;
};

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_ENGINE_COSTLESS_LOOP_H_
