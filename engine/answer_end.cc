#include "engine/answer_end.h"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

namespace refrain::engine {
namespace {

constexpr std::string_view kHermesOpen = "<tool_call>";
constexpr std::string_view kPythonTag = "<|python_tag|>";
// In front of what still is a call, and as much behind its tag: as the parser of calls has it.
constexpr size_t kMostSpaceBytes = 1024;

// Enough to tell whether an answer without a thought is a call.
constexpr size_t kMostHeadBytes = 2 * kMostSpaceBytes + kPythonTag.size() + 1;

// Of the first tokens, until so many bytes have come.
std::string TextOf(const Tokenizer& tokenizer, std::span<const kvcache::TokenId> ids,
                   size_t most_bytes) {
  std::string text;
  for (size_t i = 0; i < ids.size() && text.size() < most_bytes; ++i) {
    text += tokenizer.TokenBytes(ids[i]);
  }
  return text;
}

bool SaysHermesCall(const Tokenizer& tokenizer, std::span<const kvcache::TokenId> ids,
                    ReasoningStart reasoning) {
  const std::string text = TextOf(tokenizer, ids, SIZE_MAX);
  return WithoutReasoning(text, reasoning).find(kHermesOpen) != std::string_view::npos;
}

bool IsSpace(char byte) { return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n'; }

// A call is the whole answer: its first byte tells, but for space and the tag before it.
bool IsLlama3Call(const Tokenizer& tokenizer, std::span<const kvcache::TokenId> ids,
                  ReasoningStart reasoning) {
  const bool may_think = reasoning != ReasoningStart::kBehind;
  const std::string text = TextOf(tokenizer, ids, may_think ? SIZE_MAX : kMostHeadBytes);
  size_t tag_bytes = 0;  // of the tag, that have come
  size_t space_bytes = 0;
  for (const char byte : WithoutReasoning(text, reasoning)) {
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
  return false;
}

}  // namespace

kvcache::AnswerEnd AnswerEndOf(const AnswerForm& form, FinishReason reason,
                               const Tokenizer& tokenizer,
                               std::span<const kvcache::TokenId> generated) {
  using kvcache::AnswerEnd;
  if (!form.is_turn || reason != FinishReason::kStop) return AnswerEnd::kOther;
  const bool calls =
      form.calls == ToolFormat::kHermes   ? SaysHermesCall(tokenizer, generated, form.reasoning)
      : form.calls == ToolFormat::kLlama3 ? IsLlama3Call(tokenizer, generated, form.reasoning)
                                          : false;
  if (calls) return AnswerEnd::kToolCalls;
  if (form.calls == ToolFormat::kUnknown) return AnswerEnd::kOther;
  return std::ssize(generated) <= kvcache::kBriefTurnTokens ? AnswerEnd::kBriefTurn
                                                            : AnswerEnd::kTurn;
}

}  // namespace refrain::engine
