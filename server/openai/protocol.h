#ifndef REFRAIN_SERVER_OPENAI_PROTOCOL_H_
#define REFRAIN_SERVER_OPENAI_PROTOCOL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/request.h"
#include "engine/text/reasoning_format.h"
#include "engine/text/tool_format.h"
#include "server/json.h"
#include "server/request_limits.h"

namespace refrain::server::openai {

enum class Endpoint : uint8_t { kCompletions, kChatCompletions, kResponses };

// The field that has the text, or the conversation, that is answered.
std::string_view InputField(Endpoint endpoint);

// What an answer shows beside its text.
struct OutputOptions {
  bool echo = false;
  std::string prefix;  // what a chat's answer is shown to begin with: the message it continues
  std::optional<int32_t> logprobs;         // of each token: so many best beside it
  std::optional<int32_t> prompt_logprobs;  // of each prompt token
  bool token_ids = false;                  // of prompt and output
  bool tokens_as_ids = false;              // log-probabilities name tokens "token_id:5"
  bool skip_special = true;                // control tokens are no text
  bool cache_report = false;               // usage tells why a miss was a miss
  engine::ToolFormat tools = engine::ToolFormat::kNone;  // in which calls are looked for
  bool parallel_tool_calls = true;
  // In which thoughts are told apart from the answer.
  engine::ReasoningFormat reasoning = engine::ReasoningFormat::kNone;
  bool include_reasoning = true;  // false: they are left out
};

// One HTTP request for generated text, understood and checked.
struct GenerationCall {
  Endpoint endpoint = Endpoint::kCompletions;
  std::vector<engine::Request> requests;  // one per prompt; ids are the caller's
  OutputOptions output;
  bool stream = false;
  bool include_usage = false;     // a last chunk with usage
  bool continuous_usage = false;  // usage in every chunk
  // Of /v1/responses: the members of the answer that repeat the request, as JSON without braces.
  std::string echo;
  std::vector<std::string> ignored_fields;
  size_t conversation_bytes = 0;  // of memory, until the prompt is encoded; beside the body

  const engine::Request& first() const { return requests.front(); }
};

// Reads the body of one of the endpoints. Every field is checked by type,
// range and combination; the error (INVALID_ARGUMENT, NOT_FOUND for the model) carries the field's
// name. Unknown fields are listed, not refused: clients send more than servers know.
// Pure; any thread.
absl::StatusOr<GenerationCall> ReadGenerationCall(Endpoint endpoint, const Json& body,
                                                  const ModelLimits& limits);
// The same of the body's text.
absl::StatusOr<GenerationCall> ParseGenerationCall(Endpoint endpoint, std::string_view body,
                                                   const ModelLimits& limits);

// About how many choices a body asks for, prompts times `n`, before it is checked. Reads no more of
// it than that.
size_t ChoicesAskedFor(Endpoint endpoint, const Json& body);

// The JSON schema of that body, as the parser reads it.
std::string RequestSchema(Endpoint endpoint, const ModelLimits& limits);

}  // namespace refrain::server::openai

#endif  // REFRAIN_SERVER_OPENAI_PROTOCOL_H_
