#ifndef REFRAIN_SERVER_OPENAI_TOKENIZE_CALL_H_
#define REFRAIN_SERVER_OPENAI_TOKENIZE_CALL_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "engine/request.h"
#include "engine/text/chat_template.h"
#include "server/request_limits.h"

namespace refrain::server::openai {

// One POST to /tokenize, understood and checked.
struct TokenizeCall {
  engine::TextPrompt text;     // of a conversation: as the model's template renders it
  bool token_strings = false;  // the tokens' texts beside their ids
};

// Reads the JSON body: a `prompt`, or the `messages` of a chat. The error (INVALID_ARGUMENT,
// NOT_FOUND for the model) carries the field's name. `chat_template` may be null: then messages are
// refused. Pure; any thread.
absl::StatusOr<TokenizeCall> ParseTokenizeCall(std::string_view body, const ModelLimits& limits,
                                               const engine::ChatTemplate* chat_template);

}  // namespace refrain::server::openai

#endif  // REFRAIN_SERVER_OPENAI_TOKENIZE_CALL_H_
