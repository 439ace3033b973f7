#ifndef REFRAIN_ENGINE_TOKEN_STREAM_H_
#define REFRAIN_ENGINE_TOKEN_STREAM_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/annotated_mutex.h"
#include "engine/stream_memory.h"
#include "engine/text/reasoning_format.h"
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
  bool added_bos = false;  // of a prompt: the tokenizer put it before the text that was sent
  // Only so many leading bytes of the token are output, the rest belongs to a stop string or comes
  // after it. Absent: all of them. Only the last token of a choice may be cut.
  std::optional<int32_t> shown_bytes;
  std::optional<TokenLogprob> logprob;
  std::vector<TokenLogprob> top;  // best first
};

enum class FinishReason : uint8_t { kStop, kLength, kCancelled, kError };

// The end of one choice.
struct ChoiceEnd {
  int32_t choice = 0;
  FinishReason reason = FinishReason::kStop;
  std::optional<std::string> matched_stop;
  // What was generated behind the last TokenEvent: tokens that lie wholly inside the matched stop
  // string (none under StopParams::include_stop_in_output). They show nothing; Usage counts them.
  std::vector<TokenId> hidden_tokens;
  std::optional<TokenId> stop_token;  // an end token that ended it; not among the TokenEvents
  std::optional<TokenLogprob> stop_logprob;  // of it, as TokenEvent's
  std::vector<TokenLogprob> stop_top;
};

// Why not all of a prompt that could have been in the cache was there.
enum class CacheMissReason : uint8_t {
  kNeverSeen,  // nothing begins like it
  kDiverged,   // it goes on in another way than what is there
  kEvicted,    // more of it was there once
  kTruncated,  // its beginning was cut off (Request::keep_prompt_tokens)
  kDisabled,   // there is no prefix cache
};

struct CacheMiss {
  CacheMissReason reason = CacheMissReason::kNeverSeen;
  int32_t at_token = 0;        // so many of its first tokens were found
  int32_t evicted_tokens = 0;  // so many behind these had been there; whole chunks only
};

struct Usage {
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;      // of the prompt, found when the request started
  int32_t written_tokens = 0;     // of the prompt, added to the cache for others to find
  int32_t completion_tokens = 0;  // over all choices
  // What was computed for it up to now: of the prompt what was not found, or computed again for its
  // log-probabilities, and every token that was generated, shown or not. What a preemption makes
  // compute again is not counted.
  int32_t computed_tokens = 0;
  std::optional<CacheMiss> miss;  // as of when the request started; none: all was found
};

// What the engine sends and a consumer reads, in order.
struct StreamBatch {
  std::vector<TokenEvent> tokens;
  std::vector<ChoiceEnd> ends;
  // Once, all of them: of Engine::Tokenize's text, with `finished`; of the prompt, with its first
  // TokenEvents, under Request::tell_prompt.
  std::vector<TokenId> text_ids;
  bool finished = false;  // every choice has ended; nothing comes after this batch
  absl::Status status;    // of a finished stream: OK, or why it failed
  Usage usage;            // up to now
  // In each batch that is read: TokenStream::SetReasoningStart's.
  ReasoningStart reasoning = ReasoningStart::kBehind;
  // When the step that gave the first of the generated tokens had been computed; absent without
  // any, or from an engine that does not say.
  std::optional<std::chrono::steady_clock::time_point> first_sampled;

  // Whether not all of its tokens are of a prompt.
  bool has_output() const {
    return std::any_of(tokens.rbegin(), tokens.rend(),
                       [](const TokenEvent& event) { return !event.from_prompt; });
  }
  // The same with what shows nothing: an end token, or what a stop string hides.
  bool has_generated() const {
    return has_output() || std::any_of(ends.begin(), ends.end(), [](const ChoiceEnd& end) {
             return end.stop_token.has_value() || !end.hidden_tokens.empty();
           });
  }
};

// The way from the engine to one consumer: tokens of all choices of one request.
//
// The engine thread writes, never blocks, and is the only writer; one consumer reads, on any
// thread, and may cancel. What was read is never taken back: the engine holds tokens back as long
// as their bytes may become part of a stop string. Bytes are turned into text by the consumer
// (Detokenizer; `AppendBytes` for a token with `shown_bytes`). A consumer that stops reading costs
// memory bounded by max_tokens, which whoever submitted it may count, and cut it. Dropping the last
// reference on the consumer's side cancels: Submit returns ConsumerHandle(stream), the engine keeps
// `stream`.
class TokenStream {
 public:
  using Clock = std::chrono::steady_clock;

  TokenStream() = default;

  // --- consumer ---
  // Everything there is now; possibly nothing. Never blocks. After `finished` was read, each
  // further call returns an empty finished batch with the same status and usage.
  StreamBatch Read();
  // Waits until there is something to read or `deadline`; false on deadline.
  bool WaitUntil(Clock::time_point deadline);
  // `wakeup` is called once each time the stream turns from nothing to read to something to read;
  // at once if there is something already. It runs on the engine thread, which it holds up: it must
  // only post elsewhere, and must not call SetWakeup. After SetWakeup(nullptr) has returned the
  // former one is not running and is never called again.
  void SetWakeup(std::function<void()> wakeup);
  // The engine ends all choices at its next step. Idempotent.
  void Cancel();
  // From now on `memory` is told what the stream takes. Once.
  void CountIn(std::unique_ptr<StreamMemory> memory);
  // The consumer goes on using what it read last.
  void NoteReading();
  // The consumer has freed what it read last.
  void Release();
  // The consumer keeps so many bytes more of what it read, until it says that it has freed them.
  void CountKept(size_t bytes);
  void UncountKept(size_t bytes);

  // --- whoever counts; any thread ---
  // Ends it as Cancel does and returns what waits, which may take long to destroy: all that is read
  // from now on is this failure. The consumer is woken up once more, whatever it was told before,
  // and sees `cut`.
  StreamBatch Cut(absl::Status status);
  bool cut() const { return cut_.load(std::memory_order_acquire); }

  // --- engine ---
  // Appends the batch's tokens and ends, replaces the usage. After a batch with `finished` further
  // ones are ignored.
  void Push(StreamBatch batch);
  // Where the prompt leaves the model; before anything is pushed.
  void SetReasoningStart(ReasoningStart start);
  // Push of a batch that only ends the stream; the usage stays.
  void Finish(absl::Status status);
  // `on_cancel` is called once, on the thread of the first Cancel; set before the stream is handed
  // out.
  void SetOnCancel(std::function<void()> on_cancel) { on_cancel_ = std::move(on_cancel); }
  bool cancelled() const { return cancelled_.load(std::memory_order_acquire); }

 private:
  bool ReadableLocked() const REFRAIN_REQUIRES(mutex_);
  // Appends; whether there is something to read now where there was nothing. `crowded`: who is to
  // make room, or null.
  bool Append(StreamBatch batch, StreamMemory** crowded);
  size_t BytesLocked() const REFRAIN_REQUIRES(mutex_) {
    return waiting_bytes_ + read_bytes_ + kept_bytes_;
  }
  void WakeUp();

  std::atomic<bool> cancelled_{false}, cut_{false};
  std::function<void()> on_cancel_;
  mutable Mutex mutex_;
  ConditionVariable readable_;
  StreamBatch pending_ REFRAIN_GUARDED_BY(mutex_);
  bool end_was_read_ REFRAIN_GUARDED_BY(mutex_) = false;
  bool wakeup_is_due_ REFRAIN_GUARDED_BY(mutex_) = false;
  std::unique_ptr<StreamMemory> memory_ REFRAIN_GUARDED_BY(mutex_);  // null: nobody counts
  size_t waiting_bytes_ REFRAIN_GUARDED_BY(mutex_) = 0;              // in pending_
  size_t read_bytes_ REFRAIN_GUARDED_BY(mutex_) = 0;                 // by the last Read
  size_t kept_bytes_ REFRAIN_GUARDED_BY(mutex_) = 0;
  // Held while `wakeup_` runs, so that SetWakeup waits for it but whoever is woken up may read.
  // Taken before mutex_.
  Mutex wakeup_mutex_;
  std::function<void()> wakeup_ REFRAIN_GUARDED_BY(wakeup_mutex_);
};

// A reference for the consumer; when its last copy goes, the stream is cancelled.
std::shared_ptr<TokenStream> ConsumerHandle(std::shared_ptr<TokenStream> stream);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TOKEN_STREAM_H_
