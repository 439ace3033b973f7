#ifndef REFRAIN_SERVER_OPENAI_ANSWER_FORM_H_
#define REFRAIN_SERVER_OPENAI_ANSWER_FORM_H_

#include <optional>
#include <string>
#include <string_view>

#include "engine/grammar/output_format.h"
#include "engine/request.h"
#include "server/openai/field_reader.h"
#include "server/openai/protocol.h"

namespace refrain::server::openai {

// What the fields ask for that say which form the answer has: `response_format` (of /v1/responses
// `text.format`), vLLM's `structured_outputs`, its older `guided_json`, `guided_regex`,
// `guided_choice` and `guided_grammar`, and llama-server's `json_schema` and `grammar`. None: any
// text. At most one of them may ask for a form; what is wrong is recorded in `fields`, as are other
// servers' names for it. Whether a schema, a pattern or a grammar is understood the engine says.
std::optional<engine::OutputFormat> ReadAnswerForm(FieldReader& fields, Endpoint endpoint);

// For all prompts of a call, which share it.
void SetForm(std::optional<engine::OutputFormat> form, engine::Request* request);

// What is wrong with a form, over HTTP and gRPC in the same words, which follow the name of its
// field; "" where nothing is.
std::string FormProblem(const engine::OutputFormat& format);

// Takes a JSON Schema that is sent as a text. What is wrong, as above.
std::string TakeSchemaText(std::string_view text, engine::OutputFormat::JsonSchema* schema);

}  // namespace refrain::server::openai

#endif  // REFRAIN_SERVER_OPENAI_ANSWER_FORM_H_
