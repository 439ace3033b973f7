#ifndef REFRAIN_ENGINE_SAMPLER_H_
#define REFRAIN_ENGINE_SAMPLER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/grammar/grammar_matcher.h"
#include "engine/grammar/output_constraint.h"
#include "engine/grammar/token_set.h"
#include "engine/request.h"
#include "engine/shared_list.h"
#include "engine/step_batch.h"
#include "engine/thinking_budget.h"
#include "engine/token_stream.h"
#include "kernels/sampling_args.h"

namespace refrain::engine {

// In place of a chosen token: the greatest logit is infinite, or all are NaN. Some value grew too
// large for its type.
inline constexpr TokenId kNoToken{-1};

// Everything that choosing a sequence's next token depends on beside the logits: parameters, seed,
// how many tokens were chosen before, how often each occurred. Random numbers are a function of
// (seed, number of tokens chosen), so a sequence's choices do not depend on what else runs, and
// survive preemption. One per sequence; the model runner alone uses it while a step is in flight.
class SamplerState {
 public:
  // `late_tokens` may not be chosen before `min_tokens` tokens were. `seed` already includes the
  // choice's index. `constraint`: null = any text.
  SamplerState(const SamplingParams& params, uint64_t seed, std::span<const TokenId> prompt,
               int32_t min_tokens, SharedList<TokenId> late_tokens,
               std::shared_ptr<const OutputConstraint> constraint = nullptr);
  // For another choice of the same prompt, which is not counted again; none of its tokens is
  // chosen yet.
  SamplerState(const SamplerState& sibling, uint64_t seed);

  const SamplingParams& params() const { return params_; }
  bool greedy_but_bans() const;  // argmax of the raw logits, without `Banned`, is the answer

  // Tokens that may not be chosen now, in any order. None where no allowed token would be left, of
  // those [0, vocab_size) if all are allowed: a token must come, and one that is not allowed never
  // does.
  std::vector<TokenId> Banned(size_t vocab_size) const { return Banned(vocab_size, nullptr); }

  // Chooses the next token, or kNoToken. `logits` [vocab] may be overwritten.
  TokenId Choose(std::span<float> logits) const;
  // The sequence goes on with this token, or has come to its end by it.
  OutputState Count(TokenId token);
  // Both; `output` may be null.
  TokenId Sample(std::span<float> logits, OutputState* output = nullptr);

  // How a device chooses the next token: the row, whose edits and allowed tokens are added to the
  // step's.
  kernels::SamplingRow DeviceRow(size_t vocab_size, std::vector<kernels::LogitEdit>* edits,
                                 std::vector<int32_t>* allowed) const;

 private:
  std::vector<TokenId> Banned(size_t vocab_size, const TokenSet* held_to) const;
  // What the constraint allows now, or the one token that closes a thought whose budget is used up;
  // it stands above `allowed_tokens`. None: everything, or nothing would be left.
  std::optional<TokenSet> HeldTo(size_t vocab_size) const;
  std::optional<TokenSet> HeldToForm() const;
  OutputState Follow(TokenId token);  // with a constraint
  void Adjust(std::span<float> logits) const;
  void AddPromptPenalties(std::vector<kernels::LogitEdit>* edits) const;  // ascending
  void AddChosenPenalties(std::vector<kernels::LogitEdit>* edits) const;
  bool InPrompt(TokenId token) const;
  float Subtracted(int32_t times) const;  // from the logit of a token that was chosen so often
  double NextUniform() const;

  SamplingParams params_;
  uint64_t seed_;
  int64_t chosen_ = 0;
  int32_t min_tokens_;
  SharedList<TokenId> late_tokens_;
  std::shared_ptr<const OutputConstraint> constraint_;
  // With a constraint. Asking it may find that it is overrun; one thread at a time, as all here.
  mutable std::optional<GrammarMatcher> matcher_;
  std::optional<ThoughtCounter> thought_;  // with a thinking limit
  // Each of the prompt's tokens once, ascending; null without a repetition penalty.
  std::shared_ptr<const std::vector<TokenId>> prompt_tokens_;
  std::unordered_map<TokenId, int32_t> chosen_times_;  // kept only when a penalty is set
  size_t longest_ban_ = 0;
  std::vector<TokenId> recent_;  // the last chosen tokens, as many as a ban may ask for
};

// Index of the greatest logit, or kNoToken; the lowest index wins ties.
TokenId ArgMax(std::span<const float> logits);

// log(sum(exp(logits))).
double LogSumExp(std::span<const float> logits);

// Log-probabilities of `token` and of the `top` best tokens, from raw logits.
struct LogprobRow {
  TokenLogprob token;
  std::vector<TokenLogprob> top;  // best first; ties: lower id first
};
LogprobRow ComputeLogprobs(std::span<const float> logits, TokenId token, int32_t top);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_SAMPLER_H_
