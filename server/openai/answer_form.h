#ifndef REFRAIN_SERVER_OPENAI_ANSWER_FORM_H_
#define REFRAIN_SERVER_OPENAI_ANSWER_FORM_H_

#include <string_view>

#include "server/openai/chat_messages.h"
#include "server/openai/field_reader.h"

namespace refrain::server::openai {

// The fields that force an answer into a form, which is not possible: what asks for any other than
// free text, with calls where the model makes them, is refused.

// What is wrong with another choice of tools.
inline constexpr char kToolChoiceProblem[] =
    "is supported only as \"none\" or \"auto\": answers cannot be forced into a form; use \"auto\"";

// The schema of the field that ReadAnswerForm reads.
inline constexpr char kAnswerFormSchema[] =
    R"({"type":["object","null"],"required":["type"],"properties":{"type":{"const":"text"}}})";

// `response_format`, or what else the field is called. `path` of an inner object: "text.".
void ReadAnswerForm(FieldReader& fields, std::string_view name, std::string_view path = "");

// `tool_choice`; `name_member` of one that forces a function says which, or holds that.
ToolChoice ReadToolChoice(FieldReader& fields, const char* name_member);

}  // namespace refrain::server::openai

#endif  // REFRAIN_SERVER_OPENAI_ANSWER_FORM_H_
