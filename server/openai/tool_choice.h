#ifndef REFRAIN_SERVER_OPENAI_TOOL_CHOICE_H_
#define REFRAIN_SERVER_OPENAI_TOOL_CHOICE_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/output_format.h"
#include "server/json.h"
#include "server/openai/chat_messages.h"
#include "server/openai/field_reader.h"
#include "server/openai/protocol.h"
#include "server/request_limits.h"

namespace refrain::server::openai {

// Which calls an answer may, or has to, consist of.
struct CallChoice {
  ToolChoice choice = ToolChoice::kAuto;         // kAuto where calls are forced, too
  bool forced = false;                           // a call has to come, and nothing else
  std::vector<std::string> names;                // of the functions that may be called; empty: all
  bool several = true;                           // more than one call may come
  std::string_view field = "tool_choice";        // that forces a call
  std::string_view names_field = "tool_choice";  // that has the names
  std::string tools_field = "tools";  // what messages call the tools; OutputFormat::field
};

// `tool_choice` of a chat or a response, and `parallel_tool_calls`.
CallChoice ReadToolChoice(FieldReader& fields, Endpoint endpoint);

// Makes what `choice` says of `tools` (of a chat, checked; may be null) a part of the form that the
// other fields ask for: forced calls come in place of `response_format` and `text.format` and
// exclude any other; calls that are only possible may come in its place, or could no longer. A
// choice that `tools` or the model's template do not allow is recorded in `fields`, as is one of
// more than a form may have.
void AddCalls(const CallChoice& choice, const Json* tools, const ModelLimits& limits,
              FieldReader& fields, std::optional<engine::OutputFormat>* form);

}  // namespace refrain::server::openai

#endif  // REFRAIN_SERVER_OPENAI_TOOL_CHOICE_H_
