#ifndef REFRAIN_TOOLS_LOADGEN_DIALOGUE_TURNS_H_
#define REFRAIN_TOOLS_LOADGEN_DIALOGUE_TURNS_H_

#include <algorithm>
#include <optional>
#include <string>

#include "tools/loadgen/recorded_dialogues.h"

namespace refrain::loadgen {

// Appends a turn in which a person says `text`; `recorded_answer_bytes` tells how long the answer
// was. Private to the readers.
inline void AppendTurn(const DialogueOptions& options, std::string text,
                       std::optional<size_t> recorded_answer_bytes, Session* session) {
  constexpr int32_t kUnknownAnswerTokens = 128;
  Turn& turn = session->turns.emplace_back();
  if (session->turns.size() > 1) turn.think_s = options.think_s;
  turn.messages.push_back({"user", std::move(text)});
  turn.output_tokens = kUnknownAnswerTokens;
  if (recorded_answer_bytes.has_value()) {
    turn.output_tokens = std::max(1, static_cast<int32_t>(*recorded_answer_bytes) / kBytesPerToken);
  }
  if (options.output_tokens > 0) turn.output_tokens = options.output_tokens;
  if (options.most_output_tokens > 0) {
    turn.output_tokens = std::min(turn.output_tokens, options.most_output_tokens);
  }
}

}  // namespace refrain::loadgen

#endif  // REFRAIN_TOOLS_LOADGEN_DIALOGUE_TURNS_H_
