#ifndef REFRAIN_ENGINE_RUNNING_REQUEST_H_
#define REFRAIN_ENGINE_RUNNING_REQUEST_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/beam_group.h"
#include "engine/best_of.h"
#include "engine/clock.h"
#include "engine/encoded_request.h"
#include "engine/prefix_keys.h"
#include "engine/request_timing.h"
#include "engine/sampler.h"
#include "engine/step_batch.h"
#include "engine/stop_criteria.h"
#include "engine/text/tokenizer.h"
#include "kvcache/cache_manager.h"

namespace refrain::engine {

using kvcache::SequenceId;

class RunningRequest;

// parked:  waits for another choice of its request to compute the prompt, or, as a beam that has
//          delivered, for the other beams
// waiting: in the scheduler's queue
// running: has a slot
// ended:   its ChoiceEnd is in the outbox; steps in flight may still hold it, `request` is dead
enum class SequencePhase : uint8_t { kParked, kWaiting, kRunning, kEnded };

// One choice of a request on the engine thread, or one of its beams. Its tokens are the prompt's,
// then `generated`, then `pending_samples` whose ids are still on the device.
struct SequenceState {
  SequenceState(SequenceId id, RunningRequest* request, int32_t choice,
                std::shared_ptr<const StopRules> rules)
      : id(id), request(request), choice(choice), stop(std::move(rules)) {}

  // Whether cached tokens are yet to be computed again, for their log-probabilities.
  bool replaying() const { return replay_next < replay_end; }
  // What another choice has replayed since is not replayed again, but what was lost of that is.
  void SkipReplayed();
  // The token whose row comes next.
  int32_t NextToken(int32_t appended_tokens) const {
    return replaying() ? replay_next : appended_tokens;
  }
  int32_t known_tokens() const;
  int32_t existing_tokens() const { return known_tokens() + pending_samples; }
  TokenId token(int32_t index) const;
  // Rows that can be computed from NextToken on in one piece.
  int32_t RunnableTokens(int32_t appended_tokens) const;
  // Rows that it will compute behind these, of what it knows already: those behind a replay.
  int32_t LaterTokens() const { return replaying() ? existing_tokens() - replay_end : 0; }
  // A beam: all that it has generated is a hypothesis that has ended.
  void KeepGenerated() { kept_generated = static_cast<int32_t>(generated.size()); }
  // Whether the row of token `index` gives the next token.
  bool SamplesAt(int32_t index) const;

  const SequenceId id;
  RunningRequest* const request;
  int32_t choice;  // a beam: its rank, which changes with each token
  SequencePhase phase = SequencePhase::kParked;
  int32_t pending_samples = 0;
  int32_t replay_next = 0;  // [replay_next, replay_end) are there and computed again all the same:
  int32_t replay_end = 0;   // their rows are wanted, their K and V are not written
  bool produces = false;    // running: others may be held for all that it computes
  kvcache::MatchResult match;               // while it waits: what was found last
  std::optional<int64_t> waits_since_step;  // first waited
  std::vector<TokenId> generated;
  kvcache::AnswerEnd answer = kvcache::AnswerEnd::kOther;  // once it has ended; not of beams
  int32_t kept_generated = 0;  // a beam: so many of its first ones are a hypothesis that has ended
  std::optional<SamplerState> sampler;  // made when it first runs; a beam has none
  StopCriteria stop;                    // a beam does not use it
};

// A request on the engine thread: its choices, and what its consumer will see at the end of the
// turn. With best_of it runs more sequences than it has choices, with beam search as many as there
// are beams now, one at first; their output comes when all have ended. Knows neither scheduler nor
// cache. Engine thread only; cannot fail.
class RunningRequest {
 public:
  // `prompt_keys`: of the prompt; where nothing stays in the cache one that names all of it, which
  // the request's sequences share, or none.
  RunningRequest(std::unique_ptr<EncodedRequest> encoded, SequenceId first_id,
                 PromptKeys prompt_keys);

  const Request& request() const { return encoded_->request; }
  uint64_t number() const { return encoded_->number; }
  // Its tenant's index in FairShares.
  int32_t tenant() const { return tenant_; }
  void set_tenant(int32_t index) { tenant_ = index; }
  const EncodedRequest& encoded() const { return *encoded_; }
  const std::vector<TokenId>& prompt() const { return encoded_->prompt; }
  int32_t prompt_tokens() const { return static_cast<int32_t>(encoded_->prompt.size()); }
  const PromptKeys& prompt_keys() const { return prompt_keys_; }
  int32_t max_tokens() const { return encoded_->stop_rules->max_tokens; }
  // Its sequences: the first, and once they have been made the others.
  const std::vector<std::shared_ptr<SequenceState>>& choices() const { return choices_; }
  // Ids from the first one on that no other request may use.
  uint64_t reserved_ids() const { return reserved_ids_; }
  // The other choices, parked, if they are not there yet: those of requests that wait would take
  // much memory.
  void MakeChoices();
  // Those that are not there yet and will wait to run; of a prompt alone they never do.
  int32_t unmade_choices() const {
    if (beams_.has_value() || max_tokens() == 0) return 0;
    return request().sequences() - static_cast<int32_t>(choices_.size());
  }
  bool finished() const { return outbox_.finished; }
  const Usage& usage() const { return outbox_.usage; }
  RequestTiming& timing() { return timing_; }
  const RequestTiming& timing() const { return timing_; }

  // The first time a choice runs: leaves the queue, shows the prompt where it was asked for.
  void Start();
  bool started() const { return started_; }
  // Seeds the choice's sampler, once.
  void MakeSampler(SequenceState* choice, uint64_t fresh_seed);

  // Prompt log-probabilities: the row of token `index` is to be computed for what follows it.
  bool WantsPromptRow(int32_t index) const;
  void TakePromptRow(int32_t index) { next_prompt_row_ = index + 1; }
  // A row that was taken came to nothing, nor did those behind it.
  void ReturnPromptRow(int32_t index) { next_prompt_row_ = std::min(next_prompt_row_, index); }
  // The first one that is wanted, or the prompt's length.
  int32_t FirstWantedPromptRow() const {
    return WantsPromptRow(next_prompt_row_) ? next_prompt_row_ : prompt_tokens();
  }
  // So many tokens of the prompt were found in the cache, so many will be added to it. The first
  // call counts, and says so.
  bool SetCachedTokens(int32_t found, int32_t written);
  // Whether one of its sequences has run: the cache has counted the request.
  bool has_run() const { return cached_tokens_set_; }
  // Whether `sequence`, which has all of the prompt now, is the first of them that had.
  bool IsFirstWithPrompt(SequenceId sequence) {
    if (!first_with_prompt_.has_value()) first_with_prompt_ = sequence;
    return *first_with_prompt_ == sequence;
  }
  // None of them has it any more.
  void ForgetFirstWithPrompt() { first_with_prompt_.reset(); }
  void SetCacheMiss(std::optional<CacheMiss> miss) { outbox_.usage.miss = miss; }

  void AddPromptToken(int32_t index, const SampledToken& sampled);
  // Tokens [begin, end) have been computed, by whichever of its sequences; those of the prompt that
  // are behind all that were before count.
  void CountPrompt(int32_t begin, int32_t end);
  // So many tokens have been generated for it.
  void CountGenerated(int32_t tokens) { outbox_.usage.computed_tokens += tokens; }
  // The end, when that was the choice's last token; it is then to be passed to End. `shown_bytes`:
  // what it adds to the text.
  std::optional<ChoiceEnd> AddToken(SequenceState* choice, SampledToken sampled,
                                    std::string_view shown_bytes);
  // The sequences that are the answer, where they were picked from more and all have ended.
  std::span<const size_t> best() const {
    return best_of_.has_value() ? std::span<const size_t>(best_of_->best()) : std::span<size_t>();
  }
  // Of a choice that has not ended.
  void End(SequenceState* choice, ChoiceEnd end);
  // Ends all choices that have not, and the stream.
  void Finish(absl::Status status);

  // --- beam search ---
  BeamGroup* beams() { return beams_.has_value() ? &*beams_ : nullptr; }
  const BeamGroup* beams() const { return beams_.has_value() ? &*beams_ : nullptr; }
  // A sequence of the same tokens as `parent`, parked.
  std::shared_ptr<SequenceState> MakeBeam(const SequenceState& parent);
  // The sequences from now on, by rank.
  void SetBeams(std::vector<std::shared_ptr<SequenceState>> beams);
  // Ends all, with what the search has found.
  void EndBeams();

  // Log-probabilities wanted of each sampled token.
  std::optional<int32_t> sample_logprobs() const {
    return best_of_.has_value() ? request().logprobs.top.value_or(0) : request().logprobs.top;
  }

  // Takes what there is for the stream; `sampled`: when the newest tokens had been computed.
  StreamBatch TakeOutput(Clock::TimePoint sampled);
  // To be called once nobody can see any more that the request runs, where it has ended.
  void Send(StreamBatch output) { encoded_->stream->Push(std::move(output)); }

 private:
  void PushPromptEvent(TokenEvent event);
  std::vector<TokenEvent>* OutputOf(const SequenceState& choice) {
    return best_of_.has_value() ? best_of_->output(choice.choice) : &outbox_.tokens;
  }

  std::unique_ptr<EncodedRequest> encoded_;
  int32_t tenant_ = 0;
  std::optional<BestOf> best_of_;
  std::optional<BeamGroup> beams_;
  std::vector<std::shared_ptr<SequenceState>> choices_;
  int32_t live_choices_ = 0;
  uint64_t reserved_ids_ = 0;
  uint64_t next_id_ = 0;
  const PromptKeys prompt_keys_;
  bool started_ = false;
  bool cached_tokens_set_ = false;
  std::optional<SequenceId> first_with_prompt_;
  int32_t next_prompt_row_ = 0;
  int32_t prompt_computed_end_ = 0;
  StreamBatch outbox_;
  RequestTiming timing_;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_RUNNING_REQUEST_H_
