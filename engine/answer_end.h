#ifndef REFRAIN_ENGINE_ANSWER_END_H_
#define REFRAIN_ENGINE_ANSWER_END_H_

#include <span>

#include "engine/text/reasoning_format.h"
#include "engine/text/tokenizer.h"
#include "engine/text/tool_format.h"
#include "engine/token_stream.h"
#include "kvcache/types.h"

namespace refrain::engine {

// What a request's answers are to its client.
struct AnswerForm {
  bool is_turn = false;                  // of a conversation that we rendered
  ToolFormat calls = ToolFormat::kNone;  // kNone: it calls no tools
  ReasoningStart reasoning = ReasoningStart::kBehind;
};

// What an answer leaves its client to do, for the eviction policy: who was told to run a tool sends
// the result within seconds, who reads the answer takes minutes, or never comes back. A hint: a
// call is told by how it begins in what was generated, shown or not, and not by whether it can be
// parsed, and not inside of a thought. kOther where the answer was cut short, is none of a
// conversation, or may be a call in an unknown format.
//
// Pure; looks at the bytes of `generated` once, and only where tools may be called.
kvcache::AnswerEnd AnswerEndOf(const AnswerForm& form, FinishReason reason,
                               const Tokenizer& tokenizer,
                               std::span<const kvcache::TokenId> generated);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_ANSWER_END_H_
