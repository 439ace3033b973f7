#include "server/metrics/engine_metrics.h"

#include <algorithm>

#include "server/metrics/family_list.h"

namespace refrain::server::metrics {
namespace {

using engine::FinishReason;

// vLLM's buckets.
constexpr double kCounts[] = {1,      2,      5,    10,   20,    50,    100,   200,
                              500,    1000,   2000, 5000, 10000, 20000, 50000, 100000,
                              200000, 500000, 1e6,  2e6,  5e6,   1e7};
constexpr double kIterationTokens[] = {1,   8,    16,   32,   64,   128,  256,
                                       512, 1024, 2048, 4096, 8192, 16384};
constexpr double kChoices[] = {1, 2, 5, 10, 20};
constexpr double kFirstToken[] = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                  1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
constexpr double kTokenGap[] = {.01, .025, .05, .075, .1,  .15, .2, .3, .4, .5,
                                .75, 1,    2.5, 5,    7.5, 10,  20, 40, 80};
constexpr double kRequestSeconds[] = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                      30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
// Ours: a step on a GPU takes a millisecond, a full prefill step on a CPU seconds.
constexpr double kStepSeconds[] = {.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10};
constexpr double kWaitSeconds[] = {.001, .002, .005, .01, .02, .05, .1,  .2,  .5,
                                   1,    2,    5,    10,  20,  50,  100, 200, 500};

template <typename Array>
double At(const Array& counts, FinishReason reason) {
  return static_cast<double>(counts[static_cast<size_t>(reason)].load());
}

}  // namespace

EngineMetrics::EngineMetrics()
    : iteration_tokens_(kIterationTokens),
      params_n_(kChoices),
      params_max_tokens_(kCounts),
      prompt_length_(kCounts),
      generation_length_(kCounts),
      most_generated_(kCounts),
      computed_length_(kCounts),
      first_token_(kFirstToken),
      token_gap_(kTokenGap),
      time_per_token_(kTokenGap),
      e2e_(kRequestSeconds),
      queue_(kRequestSeconds),
      inference_(kRequestSeconds),
      prefill_(kRequestSeconds),
      decode_(kRequestSeconds),
      step_duration_(kStepSeconds),
      queue_wait_(kWaitSeconds),
      encode_(kWaitSeconds) {}

// --- what the engine tells ---

void EngineMetrics::OnStep(const engine::StepObservation& step) {
  decode_rows_ += step.decode_rows;
  prefill_rows_ += step.prefill_rows;
  decode_keys_ += step.decode_keys;
  shared_decode_keys_ += step.shared_decode_keys;
  planning_seconds_ += step.planning_seconds;
  plan_seconds_ += step.plan_seconds;
  model_seconds_ += step.model_seconds;
  step_duration_.Observe(step.turn_seconds);
  iteration_tokens_.Observe(step.decode_rows + step.prefill_rows);
}

void EngineMetrics::OnArrival(int32_t prompt_tokens) { ++arrivals_; }

void EngineMetrics::OnFirstScheduled(double queue_s, int32_t prompt_tokens, int32_t cached_tokens) {
  queried_tokens_ += prompt_tokens;
  hit_tokens_ += cached_tokens;
  queue_wait_.Observe(queue_s);
}

void EngineMetrics::OnFirstToken(double seconds, int32_t prompt_tokens, int32_t cached_tokens) {
  first_token_.Observe(seconds);
  CountPrompt(prompt_tokens, cached_tokens);
}

void EngineMetrics::CountPrompt(int32_t prompt_tokens, int32_t cached_tokens) {
  computed_prompt_tokens_ += prompt_tokens - cached_tokens;
  cached_prompt_tokens_ += cached_tokens;
}

void EngineMetrics::OnRequestEnd(const engine::RequestObservation& request) {
  for (size_t i = 0; i < request.ends.size(); ++i) finished_[i] += request.ends[i];
  ++requests_[std::min(static_cast<size_t>(request.status), requests_.size() - 1)];
  // A request for its prompt alone has no first token.
  if (request.prompt_done && !request.first_token_s.has_value()) {
    CountPrompt(request.prompt_tokens, request.cached_tokens);
  }
  params_n_.Observe(request.n);
  most_generated_.Observe(request.most_choice_tokens);
  encode_.Observe(request.encode_s);
  int32_t computed = request.prompt_tokens - request.cached_tokens;
  for (const engine::ChoiceObservation& choice : request.choices) {
    CountChoice(request, choice, choice.tokens, computed);
    computed = std::min(computed, 1);  // the prompt's last token is what the others compute of it
  }
  if (!request.choices.empty()) return;
  const engine::ChoiceObservation only{.tokens = request.generated_tokens,
                                       .first_token_s = request.first_token_s,
                                       .prefill_s = request.prefill_s,
                                       .decode_s = request.decode_s,
                                       .total_s = request.total_s};
  CountChoice(request, only, request.most_choice_tokens, computed);
}

// What vLLM, where each choice is a request, counts for each.
void EngineMetrics::CountChoice(const engine::RequestObservation& request,
                                const engine::ChoiceObservation& choice, int32_t tokens_in_turn,
                                int32_t computed_tokens) {
  params_max_tokens_.Observe(request.max_tokens);
  prompt_length_.Observe(request.prompt_tokens);
  generation_length_.Observe(choice.tokens);
  computed_length_.Observe(computed_tokens);
  e2e_.Observe(choice.total_s);
  if (request.queue_s.has_value()) queue_.Observe(*request.queue_s);
  if (choice.prefill_s.has_value()) prefill_.Observe(*choice.prefill_s);
  if (!choice.decode_s.has_value()) return;
  decode_.Observe(*choice.decode_s);
  if (choice.prefill_s.has_value()) inference_.Observe(*choice.prefill_s + *choice.decode_s);
  if (tokens_in_turn > 1) time_per_token_.Observe(*choice.decode_s / (tokens_in_turn - 1));
}

// --- vllm: ---

void EngineMetrics::DescribeVllm(const engine::EngineStats& stats, const engine::ModelInfo& model,
                                 const CacheConfig& config, FamilyList* families) const {
  DescribeVllmState(stats, config, families);
  DescribeVllmCounters(stats, families);
  DescribeVllmRequests(model, families);
}

void EngineMetrics::DescribeVllmState(const engine::EngineStats& stats, const CacheConfig& config,
                                      FamilyList* families) const {
  families->Gauge("vllm:num_requests_running", "Sequences that run now.", stats.running_sequences);
  const int32_t waiting = stats.waiting_sequences;
  const int32_t deferred = std::min(stats.deferred_sequences, waiting);
  families->Gauge("vllm:num_requests_waiting",
                  "Sequences that wait to run, for the first time or again.", waiting);
  families->Gauge("vllm:num_requests_waiting_by_reason",
                  "Sequences that wait for room (capacity) or for a prefix that another is "
                  "computing (deferred).",
                  {{static_cast<double>(waiting - deferred), {{"reason", "capacity"}}},
                   {static_cast<double>(deferred), {{"reason", "deferred"}}}});
  // A board made for vLLM shows a server without this as down.
  families->Gauge("vllm:engine_sleep_state",
                  "1 for the state that the engine is in; it never sleeps.",
                  {{1, {{"sleep_state", "awake"}}},
                   {0, {{"sleep_state", "weights_offloaded"}}},
                   {0, {{"sleep_state", "discard_all"}}}});
  const int64_t chunks = stats.kv_used_chunks + stats.kv_cached_chunks + stats.kv_free_chunks;
  families->Gauge("vllm:kv_cache_usage_perc",
                  "Share of the KV cache that running sequences use; 1 is all of it.",
                  chunks > 0 ? static_cast<double>(stats.kv_used_chunks) / chunks : 0);
  families->Gauge(
      "vllm:cache_config_info", "How the KV cache is configured; always 1.",
      {{1,
        {{"block_size", std::to_string(chunks > 0 ? stats.kv_capacity_tokens / chunks : 0)},
         {"num_gpu_blocks", std::to_string(chunks)},
         {"cache_dtype", config.dtype},
         {"enable_prefix_caching", config.prefix_cache ? "True" : "False"},
         {"eviction", config.eviction}}}});
}

void EngineMetrics::DescribeVllmCounters(const engine::EngineStats& stats,
                                         FamilyList* families) const {
  const auto number = [](const Count& count) { return static_cast<double>(count.load()); };
  families->Counter("vllm:prefix_cache_queries_total",
                    "Prompt tokens that were looked up in the KV cache.", number(queried_tokens_));
  families->Counter("vllm:prefix_cache_hits_total",
                    "Prompt tokens that were found in the KV cache.", number(hit_tokens_));
  families->Counter("vllm:num_preemptions_total",
                    "Times a running sequence had to give up its chunks and wait.",
                    static_cast<double>(stats.preemptions_total));
  families->Counter("vllm:corrupted_requests_total",
                    "Requests that ended with an error, as their logits were no finite numbers.",
                    static_cast<double>(stats.corrupted_requests_total));
  const double computed = number(computed_prompt_tokens_);
  const double cached = number(cached_prompt_tokens_);
  families->Counter("vllm:prompt_tokens_total", "Tokens of prompts that were processed.",
                    computed + cached);
  families->Counter("vllm:prompt_tokens_by_source_total",
                    "Tokens of prompts by where their keys and values came from.",
                    {{computed, {{"source", "local_compute"}}},
                     {cached, {{"source", "local_cache_hit"}}},
                     {0, {{"source", "external_kv_transfer"}}}});
  families->Counter("vllm:prompt_tokens_cached_total",
                    "Tokens of prompts that were found in the KV cache.", cached);
  families->Counter("vllm:prompt_tokens_cached_by_source_total",
                    "Prompt tokens that were found in the KV cache, by where they were kept.",
                    {{number(hit_tokens_), {{"source", "device"}}},
                     {0, {{"source", "host"}}},
                     {0, {{"source", "disk"}}},
                     {0, {{"source", "p2p"}}},
                     {0, {{"source", "external_unspecified"}}}});
  families->Counter("vllm:generation_tokens_total", "Tokens generated.", number(generated_tokens_));
  families->Counter("vllm:request_success_total", "Choices that ended, by reason.",
                    {{At(finished_, FinishReason::kStop), {{"finished_reason", "stop"}}},
                     {At(finished_, FinishReason::kLength), {{"finished_reason", "length"}}},
                     {At(finished_, FinishReason::kCancelled), {{"finished_reason", "abort"}}},
                     {At(finished_, FinishReason::kError), {{"finished_reason", "error"}}},
                     {0, {{"finished_reason", "repetition"}}}});
}

void EngineMetrics::DescribeVllmRequests(const engine::ModelInfo& model,
                                         FamilyList* families) const {
  const double longest = model.max_context_tokens;
  families->AddHistogram("vllm:iteration_tokens_total", "Tokens computed per step.",
                         iteration_tokens_);
  families->AddHistogram("vllm:request_prompt_tokens", "Tokens of a request's prompt.",
                         prompt_length_, longest);
  families->AddHistogram("vllm:request_generation_tokens", "Tokens generated for a request.",
                         generation_length_, longest);
  families->AddHistogram("vllm:request_max_num_generation_tokens",
                         "Tokens of a request's longest choice.", most_generated_, longest);
  families->AddHistogram("vllm:request_params_n", "Choices that a request asks for.", params_n_);
  families->AddHistogram("vllm:request_params_max_tokens", "max_tokens of a request.",
                         params_max_tokens_, longest);
  families->AddHistogram("vllm:request_prefill_kv_computed_tokens",
                         "Tokens of a request's prompt that were not found in the KV cache.",
                         computed_length_, longest);
  families->AddHistogram("vllm:time_to_first_token_seconds",
                         "From a request's arrival to its first token.", first_token_);
  families->AddHistogram("vllm:inter_token_latency_seconds", "Between two tokens of one choice.",
                         token_gap_);
  families->AddHistogram("vllm:request_time_per_output_token_seconds",
                         "Mean time per token of a request after its first one.", time_per_token_);
  families->AddHistogram("vllm:e2e_request_latency_seconds", "From a request's arrival to its end.",
                         e2e_);
  families->AddHistogram("vllm:request_queue_time_seconds",
                         "From when a request waits until it runs first.", queue_);
  families->AddHistogram("vllm:request_inference_time_seconds",
                         "From when a request runs first to its last token.", inference_);
  families->AddHistogram("vllm:request_prefill_time_seconds",
                         "From when a request runs first to its first token.", prefill_);
  families->AddHistogram("vllm:request_decode_time_seconds",
                         "From a request's first token to its last one.", decode_);
}

// --- refrain_ ---

void EngineMetrics::DescribeRefrain(const engine::EngineStats& stats, FamilyList* families) const {
  DescribeCache(stats, families);
  DescribeSteps(stats, families);
  families->Gauge("refrain_held_sequences",
                  "Sequences that wait for chunks which another sequence is computing.",
                  stats.held_sequences);
  families->Counter("refrain_arrived_requests_total",
                    "Requests whose prompt was encoded and that waited to run.",
                    static_cast<double>(arrivals_.load()));
  std::vector<FamilyList::Sample> by_status;
  for (size_t code = 0; code < requests_.size(); ++code) {
    by_status.push_back(
        {static_cast<double>(requests_[code].load()),
         {{"status", absl::StatusCodeToString(static_cast<absl::StatusCode>(code))}}});
  }
  families->Counter("refrain_requests_total", "Requests that ended, by status.", by_status);
  families->AddHistogram("refrain_queue_wait_seconds",
                         "From when a request waits until it runs first, in finer buckets.",
                         queue_wait_);
  families->AddHistogram("refrain_encode_seconds",
                         "From a request's arrival until its prompt was encoded and waited.",
                         encode_);
}

void EngineMetrics::DescribeCache(const engine::EngineStats& stats, FamilyList* families) const {
  const auto used = static_cast<double>(stats.kv_used_chunks);
  const int64_t chunks = stats.kv_used_chunks + stats.kv_cached_chunks + stats.kv_free_chunks;
  families->Gauge("refrain_kv_chunks",
                  "Chunks of the KV cache: in use by running sequences, kept for later requests, "
                  "or free.",
                  {{used, {{"state", "used"}}},
                   {static_cast<double>(stats.kv_cached_chunks), {{"state", "cached"}}},
                   {static_cast<double>(stats.kv_free_chunks), {{"state", "free"}}}});
  const double physical =
      chunks > 0 ? used * static_cast<double>(stats.kv_capacity_tokens) / chunks : 0;
  const auto logical = static_cast<double>(stats.kv_logical_tokens);
  families->Gauge("refrain_kv_capacity_tokens", "Tokens that the KV cache has room for.",
                  static_cast<double>(stats.kv_capacity_tokens));
  families->Gauge("refrain_kv_logical_tokens",
                  "Tokens of all running sequences, shared ones counted for each.", logical);
  families->Gauge("refrain_kv_physical_tokens", "Room of the chunks in use, in tokens.", physical);
  families->Gauge("refrain_kv_used_bytes", "Bytes of the chunks in use.",
                  used * static_cast<double>(stats.kv_chunk_bytes));
  families->Gauge("refrain_kv_sharing_factor",
                  "Logical by physical tokens: over 1 where sequences share chunks; 1 where none "
                  "run.",
                  physical > 0 && logical > 0 ? logical / physical : 1);
  families->Counter("refrain_kv_evicted_chunks_total", "Cached chunks given up for new ones.",
                    static_cast<double>(stats.kv_evicted_chunks_total));
  families->Counter("refrain_kv_copied_chunks_total",
                    "Part-full chunks copied for a sequence that goes on differently.",
                    static_cast<double>(stats.kv_copied_chunks_total));
}

void EngineMetrics::DescribeSteps(const engine::EngineStats& stats, FamilyList* families) const {
  const auto number = [](const Count& count) { return static_cast<double>(count.load()); };
  families->Counter("refrain_steps_total", "Steps of the engine.",
                    static_cast<double>(stats.steps_total));
  families->Counter("refrain_steps_without_memory_total",
                    "Steps for which the device had no memory, run again as smaller ones.",
                    static_cast<double>(stats.steps_without_memory_total));
  families->Counter("refrain_rows_total", "Tokens computed, of prompts and of what was generated.",
                    {{number(prefill_rows_), {{"kind", "prefill"}}},
                     {number(decode_rows_), {{"kind", "decode"}}}});
  families->Counter("refrain_decode_keys_total",
                    "Keys that decoding rows attended to, each for each row.",
                    number(decode_keys_));
  families->Counter("refrain_decode_chunk_first_keys_total",
                    "Of these, keys that two or more sequences of the step shared by the attention "
                    "plan, so that the chunk-first phase reads them once.",
                    number(shared_decode_keys_));
  families->Counter("refrain_step_seconds_total", "Time of the engine thread for steps.",
                    stats.turn_seconds_total);
  families->Counter("refrain_step_model_seconds_total", "Of these, in the model.",
                    model_seconds_.load());
  families->Counter("refrain_step_scheduling_seconds_total",
                    "Of these, not in the model: planning, tokens, streams.",
                    stats.scheduling_seconds_total);
  families->Counter("refrain_step_planning_seconds_total",
                    "Of these, in planning: requests taken in, the prefix tree, the scheduler's "
                    "plan and the attention plan.",
                    planning_seconds_.load());
  families->Counter("refrain_step_plan_seconds_total", "Of these, in the scheduler's plan.",
                    plan_seconds_.load());
  families->Counter("refrain_device_step_seconds_total",
                    "Time that a device beside the host had steps, by its own clock.",
                    stats.device_step_seconds_total);
  families->Counter("refrain_device_idle_seconds_total",
                    "Of these, time in which it waited for the host between and within steps.",
                    stats.device_idle_seconds_total);
  families->Counter("refrain_device_unrecorded_steps_total",
                    "Steps whose kernels the host launched one by one; waits between these are not "
                    "in refrain_device_idle_seconds_total.",
                    static_cast<double>(stats.device_unrecorded_steps_total));
  families->AddHistogram("refrain_step_duration_seconds", "Time of the engine thread per step.",
                         step_duration_);
}

}  // namespace refrain::server::metrics
