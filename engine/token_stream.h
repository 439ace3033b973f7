#ifndef REFRAIN_ENGINE_TOKEN_STREAM_H_
#define REFRAIN_ENGINE_TOKEN_STREAM_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/annotated_mutex.h"
#include "kvcache/types.h"

namespace refrain::engine {

using kvcache::TokenId;

struct TokenLogprob {
  TokenId token;
  float logprob;     // natural log, of the model's distribution at temperature 1, before penalties
  int32_t rank = 0;  // 1 = the most probable
};

// One generated (or, with echo, prompt) token of one choice.
struct TokenEvent {
  int32_t choice = 0;
  TokenId token{};
  bool from_prompt = false;
  std::optional<TokenLogprob> logprob;
  std::vector<TokenLogprob> top;  // best first
};

enum class FinishReason : uint8_t { kStop, kLength, kCancelled, kError };

// The end of one choice. `text_bytes_to_drop` trailing bytes of the choice's output belong to a
// matched stop string and are not to be shown.
struct ChoiceEnd {
  int32_t choice = 0;
  FinishReason reason = FinishReason::kStop;
  int32_t text_bytes_to_drop = 0;
  std::optional<std::string> matched_stop;
  std::optional<TokenId> stop_token;  // an end token that ended it; not among the TokenEvents
};

struct Usage {
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;      // of the prompt, not computed for this request
  int32_t completion_tokens = 0;  // over all choices
};

// What a consumer gets from one Read, in order.
struct StreamBatch {
  std::vector<TokenEvent> tokens;
  std::vector<ChoiceEnd> ends;
  bool finished = false;  // every choice has ended; nothing comes after this batch
  absl::Status status;    // of a finished stream: OK, or why it failed
  Usage usage;            // up to now
};

// The way from the engine to one consumer: tokens of all choices of one request.
//
// The engine thread writes (Push...), never blocks, and is the only writer; one consumer reads, on
// any thread, and may cancel. The stream holds back tokens whose bytes may yet become part of a
// stop string, so that what a consumer has read is never taken back; bytes are turned into text by
// the consumer (Detokenizer). A consumer that stops reading costs memory bounded by
// max_tokens. Dropping the last reference on the consumer's side cancels.
class TokenStream {
 public:
  using Clock = std::chrono::steady_clock;

  TokenStream() = default;

  // --- consumer ---
  // Everything there is now; possibly nothing. Never blocks.
  StreamBatch Read();
  // Waits until there is something to read or `deadline`; false on deadline.
  bool WaitUntil(Clock::time_point deadline);
  // `wakeup` is called (from the engine thread, it must only post elsewhere) each time the stream
  // turns from nothing to read to something to read; at once if there is something already.
  void SetWakeup(std::function<void()> wakeup);
  // The engine ends all choices at its next step. Idempotent.
  void Cancel();

  // --- engine ---
  void PushToken(TokenEvent event);
  void PushEnd(ChoiceEnd end);
  void SetUsage(const Usage& usage);
  // Nothing may be pushed afterwards.
  void Finish(absl::Status status);
  bool cancelled() const { return cancelled_.load(std::memory_order_acquire); }

 private:
  void NotifyLocked() REFRAIN_REQUIRES(mutex_);

  std::atomic<bool> cancelled_{false};
  mutable Mutex mutex_;
  ConditionVariable readable_;
  StreamBatch pending_ REFRAIN_GUARDED_BY(mutex_);
  std::function<void()> wakeup_ REFRAIN_GUARDED_BY(mutex_);
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TOKEN_STREAM_H_
