#include "engine/answer_end.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

namespace refrain::engine {
namespace {

constexpr std::string_view kHermesOpen = "<tool_call>";
constexpr std::string_view kPythonTag = "<|python_tag|>";

bool SaysHermesCall(const Tokenizer& tokenizer, std::span<const kvcache::TokenId> ids) {
  std::string text;
  for (const kvcache::TokenId id : ids) text += tokenizer.TokenBytes(id);
  return text.find(kHermesOpen) != std::string::npos;
}

std::string_view WithoutSpaceBefore(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
}

// A call is the whole answer: its first byte tells, but for space and the tag before it.
bool IsLlama3Call(const Tokenizer& tokenizer, std::span<const kvcache::TokenId> ids) {
  std::string text;
  for (const kvcache::TokenId id : ids) {
    text += tokenizer.TokenBytes(id);
    std::string_view rest = WithoutSpaceBefore(text);
    if (rest.starts_with(kPythonTag)) {
      rest = WithoutSpaceBefore(rest.substr(kPythonTag.size()));
    }
    if (!rest.empty() && !kPythonTag.starts_with(rest)) return rest.front() == '{';
  }
  return false;
}

}  // namespace

kvcache::AnswerEnd AnswerEndOf(const AnswerForm& form, FinishReason reason,
                               const Tokenizer& tokenizer,
                               std::span<const kvcache::TokenId> generated) {
  using kvcache::AnswerEnd;
  if (!form.is_turn || reason != FinishReason::kStop) return AnswerEnd::kOther;
  const bool calls = form.calls == ToolFormat::kHermes   ? SaysHermesCall(tokenizer, generated)
                     : form.calls == ToolFormat::kLlama3 ? IsLlama3Call(tokenizer, generated)
                                                         : false;
  if (calls) return AnswerEnd::kToolCalls;
  if (form.calls == ToolFormat::kUnknown) return AnswerEnd::kOther;
  return std::ssize(generated) <= kvcache::kBriefTurnTokens ? AnswerEnd::kBriefTurn
                                                            : AnswerEnd::kTurn;
}

}  // namespace refrain::engine
