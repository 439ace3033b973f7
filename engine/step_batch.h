#ifndef REFRAIN_ENGINE_STEP_BATCH_H_
#define REFRAIN_ENGINE_STEP_BATCH_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/token_stream.h"
#include "kernels/attention_args.h"
#include "kernels/ops.h"
#include "kvcache/types.h"

namespace refrain::engine {

class SamplerState;

// The attention plan as arrays that a back end can read; made anew only when the tree changed.
struct AttentionPlanArrays {
  uint64_t generation = 0;
  std::vector<kernels::AttentionRun> runs;
  std::vector<kernels::RunChunk> chunks;
  std::vector<kernels::RunSlot> slots;

  kernels::AttentionPlanView view() const { return {runs, chunks, slots}; }
};

// Logits wanted at one row.
struct LogitsRow {
  int32_t row = 0;
  // Of a sequence whose newest token is in this row: sample the next token with this state, which
  // the runner advances. Null: nothing is chosen, only log-probabilities are wanted.
  SamplerState* sampler = nullptr;
  // Without a sampler, the token that they are of; none = the most probable (beam search, which
  // goes by `top_logprobs`).
  std::optional<TokenId> prompt_next;
  std::optional<int32_t> top_logprobs;  // none = no log-probabilities at all
};

// One step, ready to run: tokens of all sequences that take part, concatenated, those of the oldest
// running ones first and those just admitted last. A row whose token is `kFromPreviousStep` takes
// the id that the step launched before sampled for the same slot.
struct StepBatch {
  static constexpr int32_t kFromPreviousStep = -1;

  std::vector<int32_t> tokens;                   // [rows]
  std::vector<int32_t> positions;                // [rows]
  std::vector<kernels::KvSlotRef> destinations;  // [rows]
  std::vector<kernels::SlotStep> slots;          // [max_sequences], by slot number
  std::shared_ptr<const AttentionPlanArrays> plan;
  std::vector<LogitsRow> logits;      // ascending rows
  std::vector<int32_t> logits_slots;  // [logits.size()] slot of each
};

// What a token makes of an output that is held to a form (SamplerState): a step behind it may be in
// flight by when the loop reads it, which the sampler knows already.
enum class OutputState : uint8_t {
  kGoesOn,
  kComplete,  // nothing may follow
  // It cannot go on, though it is not complete: no token of the vocabulary fits, or the matcher is
  // overrun (GrammarMatcher::is_overrun).
  kStuck,
};

struct SampledToken {
  TokenId token{};  // sampled, or prompt_next, or the most probable; may be kNoToken (sampler.h)
  std::optional<TokenLogprob> logprob;
  std::vector<TokenLogprob> top;
  OutputState output = OutputState::kGoesOn;
};

struct StepResult {
  std::vector<SampledToken> rows;  // one per LogitsRow
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_STEP_BATCH_H_
