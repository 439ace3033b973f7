#ifndef REFRAIN_ENGINE_CONTEXT_LENGTH_H_
#define REFRAIN_ENGINE_CONTEXT_LENGTH_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"

namespace refrain::engine {

// Anthropic's words: LangChain, which shortens a conversation when it sees them, knows otherwise
// OpenAI's code alone, and newer versions of OpenAI's library do not show it that.
inline constexpr char kTooLong[] = ": the prompt is too long";

// INVALID_ARGUMENT: a prompt that the context does not hold, or not with a token behind it. It is
// told apart from other refusals, since clients answer it by dropping the oldest turns of a
// conversation. `prompt_tokens` is a number, or "at least" one; `remark` follows it.
absl::Status ContextLengthError(std::string_view prompt_tokens, int32_t max_context_tokens,
                                std::string_view remark = kTooLong);
bool IsContextLengthError(const absl::Status& status);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_CONTEXT_LENGTH_H_
