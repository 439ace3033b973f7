#ifndef REFRAIN_ENGINE_ENGINE_OBSERVER_H_
#define REFRAIN_ENGINE_ENGINE_OBSERVER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "engine/token_stream.h"

namespace refrain::engine {

// One turn of the engine thread that launched a step.
struct StepObservation {
  int32_t decode_rows = 0;   // tokens computed that had been generated
  int32_t prefill_rows = 0;  // tokens computed of prompts
  int32_t sequences = 0;     // that took part
  // Keys that rows of decoding sequences attend to, and those of them that two or more of these
  // sequences share in the attention plan, so that the chunk-first phase reads them once.
  int64_t decode_keys = 0;
  int64_t shared_decode_keys = 0;
  double turn_seconds = 0;
  double model_seconds = 0;       // of these, in the model
  double scheduling_seconds = 0;  // of these, not in the model: planning, tokens, streams
  // Of these, until the step is launched, and to publish in the prefix tree what it computed:
  // requests taken in, the tree, Plan, the attention plan.
  double planning_seconds = 0;
  double plan_seconds = 0;  // of these, in the scheduler's Plan
};

// One of several choices of a request, at the request's end. Times in seconds, as below.
struct ChoiceObservation {
  int32_t tokens = 0;                   // generated
  std::optional<double> first_token_s;  // from Submit
  std::optional<double> prefill_s;      // from the request's running first to the first token
  std::optional<double> decode_s;       // from the first token to the last
  double total_s = 0;                   // from Submit to its last token
};

// A request at its end, however it ended. Times in seconds; absent where it did not come so far.
// Where it has more than one sequence, `choices` has each of them; else what is said of the request
// is what is to be said of its choice.
struct RequestObservation {
  std::string_view tenant;
  absl::StatusCode status = absl::StatusCode::kOk;
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;                   // of the prompt, not computed for this request
  int32_t generated_tokens = 0;                // over all choices
  int32_t most_choice_tokens = 0;              // of the longest sequence
  int32_t n = 1;                               // choices
  int32_t max_tokens = 0;                      // per choice, as far as the context reaches
  bool prompt_done = false;                    // all of the prompt was there
  std::array<int32_t, 4> ends = {};            // choices by FinishReason
  double encode_s = 0;                         // from Submit to the engine thread
  std::optional<double> queue_s;               // from there until it ran first
  std::optional<double> first_token_s;         // from Submit
  std::optional<double> prefill_s;             // from running first to the first token
  std::optional<double> decode_s;              // from the first token to the last
  double total_s = 0;                          // from Submit to the end
  std::span<const ChoiceObservation> choices;  // valid during the call

  int32_t ended(FinishReason reason) const { return ends[static_cast<size_t>(reason)]; }
};

// Is told what the engine does: steps and requests as they happen, for metrics. The engine knows
// nothing of who listens. Every call comes from the engine thread, which must not be held up: an
// implementation does not block and does not allocate. Numbers that stand for a state (running
// sequences, chunks) are Engine::stats().
class EngineObserver {
 public:
  virtual ~EngineObserver() = default;

  virtual void OnStep(const StepObservation& step) = 0;
  // A request's prompt is encoded and it waits to run.
  virtual void OnArrival(int32_t prompt_tokens) = 0;
  // It runs for the first time: `cached_tokens` of its prompt were found.
  virtual void OnFirstScheduled(double queue_s, int32_t prompt_tokens, int32_t cached_tokens) = 0;
  // All of its prompt is there and it has generated its first token, `seconds` after Submit.
  virtual void OnFirstToken(double seconds, int32_t prompt_tokens, int32_t cached_tokens) = 0;
  // Another choice of the same request has its first token, `seconds` after Submit.
  virtual void OnFurtherFirstToken(double seconds) = 0;
  // Between two tokens of one choice.
  virtual void OnTokenGap(double seconds) = 0;
  // Tokens were generated, the first ones of choices included.
  virtual void OnTokens(int32_t count) = 0;
  virtual void OnRequestEnd(const RequestObservation& request) = 0;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_ENGINE_OBSERVER_H_
