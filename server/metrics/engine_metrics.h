#ifndef REFRAIN_SERVER_METRICS_ENGINE_METRICS_H_
#define REFRAIN_SERVER_METRICS_ENGINE_METRICS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "engine/engine.h"
#include "engine/engine_observer.h"
#include "server/metrics/histogram.h"

namespace refrain::server::metrics {

class FamilyList;

// What the pages say of the model's configuration.
struct CacheConfig {
  bool prefix_cache = true;
  std::string dtype;     // kv_cache.dtype
  std::string eviction;  // kv_cache.eviction
};

// Counts what the engine tells, in atomics, and describes it as metric families: those that vLLM
// has under its names, with its labels, buckets and meanings (docs/metrics.md names the
// differences), and our own.
//
// The engine thread calls the observer's methods, which neither lock nor allocate; any thread may
// describe.
class EngineMetrics final : public engine::EngineObserver {
 public:
  EngineMetrics();

  // --- EngineObserver ---
  void OnStep(const engine::StepObservation& step) override;
  void OnArrival(int32_t prompt_tokens) override;
  void OnFirstScheduled(double queue_s, int32_t prompt_tokens, int32_t cached_tokens) override;
  void OnFirstToken(double seconds, int32_t prompt_tokens, int32_t cached_tokens) override;
  void OnFurtherFirstToken(double seconds) override { first_token_.Observe(seconds); }
  void OnTokenGap(double seconds) override { token_gap_.Observe(seconds); }
  void OnTokens(int32_t count) override { generated_tokens_ += count; }
  void OnRequestEnd(const engine::RequestObservation& request) override;

  // vllm:*, with what stands in `families` as common labels.
  void DescribeVllm(const engine::EngineStats& stats, const engine::ModelInfo& model,
                    const CacheConfig& config, FamilyList* families) const;
  // refrain_*.
  void DescribeRefrain(const engine::EngineStats& stats, FamilyList* families) const;

 private:
  using Count = std::atomic<int64_t>;

  void DescribeVllmState(const engine::EngineStats& stats, const CacheConfig& config,
                         FamilyList* families) const;
  void DescribeVllmCounters(const engine::EngineStats& stats, FamilyList* families) const;
  void DescribeVllmRequests(const engine::ModelInfo& model, FamilyList* families) const;
  void DescribeCache(const engine::EngineStats& stats, FamilyList* families) const;
  void DescribeSteps(const engine::EngineStats& stats, FamilyList* families) const;
  void CountPrompt(int32_t prompt_tokens, int32_t cached_tokens);
  // `tokens_in_turn`: tokens that came one after the other, which those of beams do together.
  void CountChoice(const engine::RequestObservation& request,
                   const engine::ChoiceObservation& choice, int32_t tokens_in_turn,
                   int32_t computed_tokens);

  Count queried_tokens_{0};  // of prompts that were looked up
  Count hit_tokens_{0};
  // Of prompts that are there. Their sum is made of these two: a difference of counts that are read
  // one after the other might go back.
  Count computed_prompt_tokens_{0};
  Count cached_prompt_tokens_{0};
  Count generated_tokens_{0};
  std::array<Count, 4> finished_ = {};   // choices by FinishReason
  std::array<Count, 17> requests_ = {};  // by absl::StatusCode
  Count arrivals_{0};
  Count decode_rows_{0}, prefill_rows_{0};
  Count decode_keys_{0}, shared_decode_keys_{0};
  std::atomic<double> planning_seconds_{0};
  std::atomic<double> plan_seconds_{0};
  std::atomic<double> model_seconds_{0};

  // As vLLM's.
  Histogram iteration_tokens_, params_n_, params_max_tokens_;
  Histogram prompt_length_, generation_length_, most_generated_, computed_length_;
  Histogram first_token_, token_gap_, time_per_token_;
  Histogram e2e_, queue_, inference_, prefill_, decode_;
  // Ours.
  Histogram step_duration_, queue_wait_, encode_;
};

}  // namespace refrain::server::metrics

#endif  // REFRAIN_SERVER_METRICS_ENGINE_METRICS_H_
