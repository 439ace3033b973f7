#include "engine/answer_end.h"

#include <iterator>
#include <string>
#include <string_view>

namespace refrain::engine {
namespace {

constexpr std::string_view kHermesOpen = "<tool_call>";
constexpr std::string_view kPythonTag = "<|python_tag|>";
// In front of what still is a call, and as much behind its tag: as the parser of calls has it.
constexpr size_t kMostSpaceBytes = 1024;

bool SaysHermesCall(const Tokenizer& tokenizer, std::span<const kvcache::TokenId> ids,
                    ReasoningStart reasoning) {
  std::string text;
  for (const kvcache::TokenId id : ids) text += tokenizer.TokenBytes(id);
  return WithoutReasoning(text, reasoning).find(kHermesOpen) != std::string_view::npos;
}

bool IsSpace(char byte) { return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n'; }

// A call is the whole answer: its first byte tells, but for space and the tag before it.
bool IsLlama3Call(const Tokenizer& tokenizer, std::span<const kvcache::TokenId> ids) {
  size_t tag_bytes = 0;  // of the tag, that have come
  size_t space_bytes = 0;
  for (const kvcache::TokenId id : ids) {
    for (const char byte : tokenizer.TokenBytes(id)) {
      const bool in_tag = tag_bytes > 0 && tag_bytes < kPythonTag.size();
      if (in_tag || (tag_bytes == 0 && byte == kPythonTag.front())) {
        if (byte != kPythonTag[tag_bytes++]) return false;
        space_bytes = 0;
      } else if (!IsSpace(byte)) {
        return byte == '{';
      } else if (++space_bytes > kMostSpaceBytes) {
        return false;
      }
    }
  }
  return false;
}

}  // namespace

kvcache::AnswerEnd AnswerEndOf(const AnswerForm& form, FinishReason reason,
                               const Tokenizer& tokenizer,
                               std::span<const kvcache::TokenId> generated) {
  using kvcache::AnswerEnd;
  if (!form.is_turn || reason != FinishReason::kStop) return AnswerEnd::kOther;
  const bool calls = form.calls == ToolFormat::kHermes
                         ? SaysHermesCall(tokenizer, generated, form.reasoning)
                     : form.calls == ToolFormat::kLlama3 ? IsLlama3Call(tokenizer, generated)
                                                         : false;
  if (calls) return AnswerEnd::kToolCalls;
  if (form.calls == ToolFormat::kUnknown) return AnswerEnd::kOther;
  return std::ssize(generated) <= kvcache::kBriefTurnTokens ? AnswerEnd::kBriefTurn
                                                            : AnswerEnd::kTurn;
}

}  // namespace refrain::engine
