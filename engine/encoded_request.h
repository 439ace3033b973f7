#ifndef REFRAIN_ENGINE_ENCODED_REQUEST_H_
#define REFRAIN_ENGINE_ENCODED_REQUEST_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/admission_ledger.h"
#include "engine/answer_end.h"
#include "engine/clock.h"
#include "engine/grammar/output_constraint.h"
#include "engine/request.h"
#include "engine/stop_criteria.h"
#include "engine/token_stream.h"
#include "engine/turn_memory.h"

namespace refrain::engine {

// A request on its way to the engine thread. The encode pool fills `prompt`, `answers`,
// `stop_rules` and `constraint`; each has one owner at a time.
struct EncodedRequest {
  uint64_t number = 0;         // ascends with arrival
  Request request;             // its prompt is dropped once encoded
  bool only_tokenize = false;  // the ids go into `stream`, and no further
  std::vector<TokenId> prompt;
  bool added_bos = false;       // the prompt begins with a bos that its text does not spell
  bool truncated = false;       // by Request::keep_prompt_tokens
  std::optional<TurnKey> turn;  // of a conversation: its answers are to be remembered under this
  AnswerForm answers;
  std::shared_ptr<const StopRules> stop_rules;
  std::shared_ptr<const OutputConstraint> constraint;  // of Request::format; null without one
  std::shared_ptr<TokenStream> stream;
  double timeout_s = 0;  // 0 = none
  std::optional<Clock::TimePoint> deadline;
  std::optional<Clock::TimePoint> submitted;  // for an EngineObserver; absent: not known
  AdmissionTicket ticket;

  // Ends one that never ran. Its place in the queue is free before its consumer hears of it, who
  // may come again at once.
  void End(absl::Status status) {
    ticket.LeaveQueue();
    stream->Finish(std::move(status));
  }
};

// RESOURCE_EXHAUSTED of a prompt for which the system refuses memory. Made by the first call: ask
// while there is some.
const absl::Status& NoMemoryForPrompt();

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_ENCODED_REQUEST_H_
