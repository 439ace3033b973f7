#ifndef REFRAIN_SERVER_OPENAI_CHAT_MESSAGES_H_
#define REFRAIN_SERVER_OPENAI_CHAT_MESSAGES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"
#include "engine/text/chat_template.h"
#include "engine/text/jinja/value.h"
#include "server/openai/field_reader.h"

namespace refrain::server::openai {

inline constexpr size_t kMaxMessages = 16384;
inline constexpr size_t kMaxTools = 1024;

// kNone: calls in the answer are text. The tools are shown all the same, or the conversation so far
// would not be found in the cache: an agent asks so for its last answer.
enum class ToolChoice : uint8_t { kAuto, kNone };

// `continue_final_message` and `add_generation_prompt`: of the two one at most, and the latter
// unless something else is said.
engine::ChatPrompt ReadChatOptions(FieldReader& fields);

// What a prompt is rendered from, in the form of /v1/chat/completions. All but the messages may be
// null.
struct Conversation {
  std::string_view field = "messages";  // that errors are about
  const Json* messages = nullptr;       // an array
  // [messages] which part of the field each of them was made from; null: itself.
  const std::vector<size_t>* items = nullptr;
  // [tool calls of all messages] the same of the part that each of them is; null: of its message.
  const std::vector<size_t>* calls = nullptr;
  const Json* tools = nullptr;      // an array
  const Json* variables = nullptr;  // an object: chat_template_kwargs
  const Json* documents = nullptr;  // an array
  const Json* effort = nullptr;     // anything
};

// Reads the messages and what comes with them into what templates are made for: content is always
// one string (absent and null are empty, text parts are joined by newlines), arguments of tool
// calls are objects where the client sent their JSON as text, {} or that text where it is the JSON
// of none; both but for templates that take an assistant's calls otherwise. Of an assistant's
// `reasoning` and `reasoning_content` one that is there alone, a string, is shown under both names.
// Other members stay as they are. An effort also sets `enable_thinking`, as in vLLM; members of
// `chat_template_kwargs` stand above both. Returns about how many bytes of memory the input takes:
// many times those of its JSON where that holds many small values. One that would take more than it
// may is refused before it does. Tools for a template without a place for them are refused where
// they may be called, else left out.
size_t ReadConversation(const Conversation& conversation, FieldReader& fields, ToolChoice choice,
                        const ModelLimits& limits, engine::ChatPrompt* prompt);

// The same of `messages`, `tools`, `documents`, `reasoning_effort` and `chat_template_kwargs`.
size_t ReadChatMessages(FieldReader& fields, ToolChoice choice, const ModelLimits& limits,
                        engine::ChatPrompt* prompt);
// Whether `tools`, an array, has more than are accepted.
bool RefusesManyTools(const Json& tools, FieldReader& fields);
// `documents` and `chat_template_kwargs` alone.
void ReadTemplateFields(FieldReader& fields, Conversation* conversation);

// The text of the last message if it is the assistant's, else none. After ReadChatMessages.
std::string LastAssistantText(FieldReader& fields);

// A request brings no template of its own.
void RefuseChatTemplate(FieldReader& fields);

// The same value in the template language. Nesting is bounded by the JSON parser.
engine::jinja::Value ToTemplateValue(const Json& json);

}  // namespace refrain::server::openai

#endif  // REFRAIN_SERVER_OPENAI_CHAT_MESSAGES_H_
