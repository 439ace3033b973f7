#ifndef REFRAIN_ENGINE_ENGINE_H_
#define REFRAIN_ENGINE_ENGINE_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/cache_view.h"
#include "engine/clock.h"
#include "engine/options.h"
#include "engine/pinned_prefix.h"
#include "engine/request.h"
#include "engine/token_stream.h"

namespace refrain::engine {
class Tokenizer;
class ChatTemplate;

// What a client needs that makes prompts of its own, as the model's files say it.
struct TokenizerInfo {
  std::string tokenizer_class;  // the name that transformers has for it; empty: none is told
  // Spellings by role: "bos_token", "eos_token", "pad_token" and the like; what is absent there is
  // not.
  std::map<std::string, std::string> tokens;
  bool adds_bos = false;
  std::string chat_template;  // Jinja source of the default one; empty: none
};

// What a server tells about the model it serves.
struct ModelInfo {
  std::string served_name;
  std::string description;  // for logs: architecture, layers, types of weights and KV
  std::string warning;      // for logs: what of machine or model is not as it should be, else ""
  int32_t max_context_tokens = 0;
  int32_t vocab_size = 0;
  int64_t created_unix_s = 0;
  TokenizerInfo tokenizer;
  SamplingParams sampling;  // of a request that says nothing of it; not for beam search
};

// What Engine::stats tells: a copy of what the engine thread published after its last step, so that
// its members fit one another, but for queued_requests, as it stands and as a part of
// waiting_sequences, and until_idle_s, which are of now. Counters (..._total) only grow.
struct EngineStats {
  int32_t running_sequences = 0;
  int32_t queued_requests = 0;  // that are to run and have not, not those of /tokenize
  // That are to run, the choices of a request and those that were preempted included; a request
  // that is still encoded is one.
  int32_t waiting_sequences = 0;
  double until_idle_s = 0;  // estimated: until all requests that are there have ended
  int64_t kv_capacity_tokens = 0;
  int64_t kv_chunk_bytes = 0;  // of K and V in one chunk
  int64_t kv_used_chunks = 0;
  int64_t kv_cached_chunks = 0;
  int64_t kv_free_chunks = 0;
  int64_t prompt_tokens_total = 0;
  int64_t cached_prompt_tokens_total = 0;    // found when their request started
  int64_t computed_prompt_tokens_total = 0;  // by all requests, with what preemption repeats
  int64_t generated_tokens_total = 0;
  int64_t steps_total = 0;
  int64_t preemptions_total = 0;
  int64_t steps_without_memory_total = 0;  // that ran again as smaller ones
  int64_t corrupted_requests_total = 0;    // ended, as their logits were no finite numbers
  int32_t held_sequences = 0;              // wait for chunks that another is computing
  int32_t deferred_sequences = 0;  // these, and choices whose prompt their first one is computing
  int64_t kv_logical_tokens = 0;   // of the running sequences, each with all of its tokens
  int64_t kv_evicted_chunks_total = 0;
  int64_t kv_copied_chunks_total = 0;
  double turn_seconds_total = 0;        // of the engine thread, for steps
  double scheduling_seconds_total = 0;  // of these, not in the model: planning, tokens, streams
  // Of a device that works beside the host (kernels::DeviceTimes), else 0.
  double device_step_seconds_total = 0;
  double device_idle_seconds_total = 0;
  int64_t device_unrecorded_steps_total = 0;
};

// What EndWaiting has done.
struct WaitingEnded {
  // But for those that are being encoded, which end soon.
  int32_t requests = 0;
  // OK; or why those that the engine thread has are not among them: DEADLINE_EXCEEDED, they will
  // end once its step has; UNAVAILABLE, it has stopped.
  absl::Status status;
};

// The inference engine as its front ends see it: requests in, token streams out. Front ends (HTTP,
// gRPC) and tests depend on this interface; the real one is made by CreateEngine, and
// tests/support has a fake that needs no model.
//
// Thread rule: every method may be called from any thread. Failure: Submit refuses at once what can
// be seen without encoding (INVALID_ARGUMENT, RESOURCE_EXHAUSTED when the queue is full,
// UNAVAILABLE when draining); what is found later (prompt too long, template error) finishes the
// stream with that status.
class Engine {
 public:
  virtual ~Engine() = default;  // stops at once: running streams finish with CANCELLED

  virtual absl::StatusOr<std::shared_ptr<TokenStream>> Submit(Request request) = 0;

  // The ids that a text has as a prompt, made by the threads that encode prompts, at their pace and
  // behind their work: as StreamBatch::text_ids, and nothing else. It is refused as a request is,
  // waits among its tenant's, times out and is cancelled as one; the context's length does not
  // count. `timeout_s` and `arrived` as in a request.
  virtual absl::StatusOr<std::shared_ptr<TokenStream>> Tokenize(
      TextPrompt text, std::string tenant, std::optional<double> timeout_s,
      std::optional<Clock::TimePoint> arrived) = 0;

  virtual const ModelInfo& model() const = 0;
  virtual const Tokenizer& tokenizer() const = 0;
  // Null when the model has no chat template.
  virtual const ChatTemplate* chat_template() const = 0;
  virtual EngineStats stats() const = 0;
  // What the KV cache holds. Waits for the engine thread, up to a step; UNAVAILABLE once it has
  // stopped.
  virtual absl::StatusOr<CacheView> DescribeCache(const CacheViewLimits& limits) = 0;
  // The conversations and prompts that may come back, the last used first; as DescribeCache, but
  // for a step for every 16,384 chunks (kvcache::SessionScan).
  virtual absl::StatusOr<SessionList> ListSessions(int32_t max_sessions) = 0;
  // --- what operators do with the cache ---
  // Prompt, tenant and cache_salt of the request count. The prompt is encoded on the caller's
  // thread, then the call waits for the engine thread, up to a step; UNAVAILABLE once it has
  // stopped. Nothing is computed: what is to be there is submitted first, with max_tokens 0.
  virtual absl::StatusOr<PinnedPrefix> PinPrefix(const Request& prompt) = 0;
  virtual absl::Status UnpinPrefix(PinId pin) = 0;
  virtual absl::StatusOr<PinList> PinnedPrefixes() = 0;
  // Forgets what nobody uses of the prompt, but for what other cached prompts begin with, too, and
  // of what continues it; of everything without one. In steps as ListSessions (kvcache::IdleSweep):
  // what is used or comes meanwhile may stay. Returns the number of chunks.
  virtual absl::StatusOr<int32_t> DropPrefix(const Request& prompt) = 0;
  virtual absl::StatusOr<int32_t> DropIdleCache() = 0;

  // Ends with `reason` what came of the tenants before and has not begun to run, what is being
  // encoded or tokenized within 20 ms or so; what runs goes on. Waits for the engine thread, up to
  // a step.
  virtual WaitingEnded EndWaiting(std::span<const std::string> tenants, const absl::Status& reason,
                                  std::chrono::steady_clock::time_point deadline) = 0;

  // OK while the engine loop lives and gets on. UNAVAILABLE, which may pass: it has had something
  // to do and not finished a step for EngineOptions::stall_s. Else the reason why it is dead.
  virtual absl::Status health() const = 0;

  // Refuses new requests from now on, waits until the running ones have finished or `deadline` has
  // passed; true when all finished.
  virtual bool Drain(std::chrono::steady_clock::time_point deadline) = 0;
  // Gives up the step in work, where that may take seconds, and all that is there: it ends,
  // CANCELLED, as soon as may be. Nothing enters any more.
  virtual void Abandon() = 0;
};

// Loads the model and starts the engine's threads.
absl::StatusOr<std::unique_ptr<Engine>> CreateEngine(const EngineOptions& options);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_ENGINE_H_
