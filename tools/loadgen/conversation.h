#ifndef REFRAIN_TOOLS_LOADGEN_CONVERSATION_H_
#define REFRAIN_TOOLS_LOADGEN_CONVERSATION_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tools/loadgen/backend.h"
#include "tools/loadgen/recorder.h"
#include "tools/loadgen/workload.h"

namespace refrain::loadgen {

// A session under way: its history, and the times of the request that runs. It decides nothing:
// LoadRun says when to send and what follows. One thread.
class Conversation final : public AnswerSink {
 public:
  // `ended` is called last, and may end this object.
  using Ended = std::function<void(Conversation*)>;
  // How its turns are asked.
  struct Requests {
    PromptForm form = PromptForm::kTokenIds;
    bool sets_most_tokens = true;  // as in LoadOptions
  };

  Conversation(Session session, Requests requests, Backend* backend, Recorder* recorder,
               Ended ended);

  // Makes the bytes of the next request; false when there are no more turns.
  bool Prepare();
  // Beyond the one that was prepared.
  bool has_more_turns() const { return next_turn_ < session_.turns.size(); }
  // The time between the last answer and the request that was prepared.
  double think_s() const;
  void Plan(double planned_s) { record_.planned_s = planned_s; }
  double planned_s() const { return record_.planned_s; }
  void Send(double now_s);
  // Instead of Send: the run is over. `ended` is not called.
  void GiveUp(double now_s, Failure failure);

  // --- once a request has ended ---
  bool failed() const { return failure().has_value(); }
  const std::optional<Failure>& failure() const { return record_.failure; }
  std::optional<double> retry_after_s() const { return retry_after_s_; }
  double end_s() const { return record_.end_s; }
  // A conversation of ids goes on only with the ids of its answers.
  bool lacks_answer_ids() const;

  // --- AnswerSink ---
  void OnTokens(double at_s, int32_t tokens, std::string_view content,
                std::span<const int32_t> ids) override;
  void OnEnd(double at_s, const AnswerEnd& end) override;

 private:
  void CountTokens(double at_s, int32_t tokens);
  // Why what `usage` says of an answer's tokens cannot be.
  std::optional<Failure> FindUntruth(int32_t told_tokens) const;

  Session session_;
  const bool sets_most_tokens_;
  Backend* const backend_;
  Recorder* const recorder_;
  const Ended ended_;
  size_t next_turn_ = 0;
  GenerationRequest request_;  // with all that was said so far
  std::string encoded_;
  RequestRecord record_;
  std::string answer_text_;
  std::vector<int32_t> answer_ids_;
  int64_t ids_received_ = 0;  // of the answer
  std::optional<double> retry_after_s_;
};

}  // namespace refrain::loadgen

#endif  // REFRAIN_TOOLS_LOADGEN_CONVERSATION_H_
