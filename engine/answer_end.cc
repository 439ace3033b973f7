#include "engine/answer_end.h"

#include <iterator>
#include <string>
#include <string_view>

namespace refrain::engine {
namespace {

constexpr std::string_view kHermesOpen = "<tool_call>";
constexpr std::string_view kPythonTag = "<|python_tag|>";

std::string TextOf(const Tokenizer& tokenizer, std::span<const kvcache::TokenId> ids) {
  std::string text;
  for (const kvcache::TokenId id : ids) text += tokenizer.TokenBytes(id);
  return text;
}

bool BeginsWithObject(std::string_view text) {
  if (text.starts_with(kPythonTag)) text.remove_prefix(kPythonTag.size());
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && text[first] == '{';
}

}  // namespace

kvcache::AnswerEnd AnswerEndOf(const AnswerForm& form, FinishReason reason,
                               const Tokenizer& tokenizer,
                               std::span<const kvcache::TokenId> generated) {
  using kvcache::AnswerEnd;
  if (!form.is_turn || reason != FinishReason::kStop) return AnswerEnd::kOther;
  const bool calls =
      form.calls == ToolFormat::kHermes
          ? TextOf(tokenizer, generated).find(kHermesOpen) != std::string::npos
          : form.calls == ToolFormat::kLlama3 && BeginsWithObject(TextOf(tokenizer, generated));
  if (calls) return AnswerEnd::kToolCalls;
  if (form.calls == ToolFormat::kUnknown) return AnswerEnd::kOther;
  return std::ssize(generated) <= kvcache::kBriefTurnTokens ? AnswerEnd::kBriefTurn
                                                            : AnswerEnd::kTurn;
}

}  // namespace refrain::engine
