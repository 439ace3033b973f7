#include "server/openai/chat_messages.h"

#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "server/concat.h"
#include "server/openai/text_parts.h"

namespace refrain::server::openai {
namespace {

using engine::MessageForm;
using engine::jinja::Map;
using engine::jinja::Value;

// Of a value of the template language that is a string, a list or a map, with its block of memory;
// and of each member of a map: its key, its place and that in the index.
constexpr size_t kStringBytes = 88;
constexpr size_t kListBytes = 80;
constexpr size_t kMapBytes = 128;
constexpr size_t kMemberBytes = 224;

// About what ToTemplateValue makes of it.
size_t TemplateMemoryOf(const Json& json) {
  if (const auto* text = json.get_ptr<const std::string*>()) return kStringBytes + text->size();
  size_t bytes = 0;
  if (json.is_array()) {
    bytes = kListBytes + sizeof(Value) * json.size();
    for (const Json& element : json) bytes += TemplateMemoryOf(element);
  } else if (json.is_object()) {
    bytes = kMapBytes;
    for (const auto& [name, member] : json.get_ref<const Json::object_t&>()) {
      bytes += kMemberBytes + name.size() + TemplateMemoryOf(member);
    }
  }
  return bytes;
}

// What a conversation takes, while it is read.
struct Memory {
  size_t most = 0;
  size_t bytes = 0;           // of values
  JsonMemory arguments = {};  // of tool calls, that are JSON inside of its texts
  size_t calls = 0;           // tool calls read so far

  std::string problem() const {
    if (arguments.is_too_much()) {
      return Concat("hold arguments whose values would take over ", arguments.most(),
                    " bytes of memory");
    }
    if (bytes <= most) return "";
    return Concat("would take over ", most, " bytes of memory (limits.bodies_bytes)");
  }
};

// What is wrong inside of one tool call or tool, and where: ".function.name".
struct Fault {
  std::string place;
  std::string problem;
};

// Absent and null are the same.
const Json* MemberOrNull(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

Fault TypeFault(std::string place, std::string_view expected, const Json& value) {
  return {std::move(place), Concat("must be ", expected, ", not ", JsonTypeName(value))};
}

// Templates print the name, or add it to a string.
std::optional<Fault> FaultOfName(const Json& function, std::string place) {
  const Json* const name = MemberOrNull(function, "name");
  if (name == nullptr) return Fault{std::move(place), "is required"};
  if (!name->is_string()) return TypeFault(std::move(place), "a string", *name);
  return std::nullopt;
}

// Of an assistant's call as OpenAI has it, or as transformers does: the function's members in the
// call itself. Old clients send no `id` and no `type`; what arguments there are ArgumentsValue
// takes.
std::optional<Fault> FaultOfCall(const Json& call) {
  if (!call.is_object()) return TypeFault("", "an object", call);
  for (const char* const member : {"id", "type"}) {
    const Json* const value = MemberOrNull(call, member);
    if (value != nullptr && !value->is_string()) {
      return TypeFault(Concat(".", member), "a string", *value);
    }
  }
  const Json* const function = MemberOrNull(call, "function");
  if (function == nullptr) {
    if (MemberOrNull(call, "name") == nullptr) return Fault{".function", "is required"};
    return FaultOfName(call, ".name");
  }
  if (!function->is_object()) return TypeFault(".function", "an object", *function);
  return FaultOfName(*function, ".function.name");
}

// How clients send a call without arguments.
bool IsNothing(const Json& arguments) {
  return arguments.is_null() ||
         (arguments.is_string() && arguments.get_ref<const std::string&>().find_first_not_of(
                                       " \t\r\n") == std::string::npos);
}

// For all calls: they are many times as large as what stands for them in the request.
const Value& NoArguments(const MessageForm& form) {
  static const Value* const kNoArguments = new Value(Value::MakeMap({}));
  static const Value* const kNoArgumentsText = new Value(Value::String("{}"));
  return form.argument_strings ? *kNoArgumentsText : *kNoArguments;
}

// `arguments` as the template expects it: OpenAI's clients send an object's JSON as a string. One
// that is no object is a call that was cut, or that the model broke: templates fail that look for
// names in it, on every later turn. The parsed ones are added to `memory`, and are left out where
// they are too much.
Value ArgumentsValue(const Json& arguments, const MessageForm& form, Memory* memory) {
  if (IsNothing(arguments)) return NoArguments(form);
  if (form.argument_strings) {
    return arguments.is_string() ? ToTemplateValue(arguments) : Value::String(arguments.dump());
  }
  if (arguments.is_object()) return ToTemplateValue(arguments);
  if (!arguments.is_string()) return NoArguments(form);
  const auto& text = arguments.get_ref<const std::string&>();
  const auto parsed = ParseJson(text, {.as_python = true});
  // The next best to what was generated, whose KV is found in the cache if it is shown as it was.
  if (!parsed.ok() || !parsed->is_object()) {
    return form.broken_arguments ? Value::String(text) : NoArguments(form);
  }
  memory->arguments.Add(text.size(), *parsed);
  memory->bytes += TemplateMemoryOf(*parsed);
  return memory->problem().empty() ? ToTemplateValue(*parsed) : NoArguments(form);
}

Value ToolCallValue(const Json& call, const MessageForm& form, Memory* memory) {
  static const Value* const kArguments = new Value(Value::String("arguments"));
  if (!call.is_object()) return ToTemplateValue(call);
  Map map;
  for (const auto& [name, value] : call.items()) {
    if (name == "function" && value.is_object()) {
      map.Set(name, ToolCallValue(value, form, memory));
      continue;
    }
    if (name == "arguments") {
      map.Set(*kArguments, ArgumentsValue(value, form, memory));
      continue;
    }
    // Templates ask whether it is there, and some then print it.
    if (!value.is_null()) map.Set(name, ToTemplateValue(value));
  }
  const bool is_function = MemberOrNull(call, "function") == nullptr;
  if (is_function && !call.contains("arguments")) map.Set(*kArguments, NoArguments(form));
  return Value::MakeMap(std::move(map));
}

// Servers answer with either name, and clients send that back; templates look for one of them.
void NameReasoningTwice(Map* message) {
  constexpr const char* kNames[] = {"reasoning", "reasoning_content"};
  for (const int i : {0, 1}) {
    const Value* const there = message->FindOrNull(kNames[i]);
    const bool alone = there != nullptr && message->FindOrNull(kNames[1 - i]) == nullptr;
    if (alone && there->is_string()) message->Set(kNames[1 - i], *there);
  }
}

Value MessageValue(const Json& message, const std::string& prefix, const MessageForm& form,
                   FieldReader& all, Memory* memory) {
  FieldReader fields(message, prefix);
  const auto role = fields.String("role", 64);
  if (!role.has_value() || role->empty()) fields.Refuse("role", "is required");
  std::string content;
  if (const Json* value = fields.AnyOrNull("content")) {
    if (value->is_string()) {
      content = value->get<std::string>();
    } else if (!value->is_array()) {
      fields.Refuse("content", Concat("must be a string or an array of text parts, not ",
                                      JsonTypeName(*value)));
    } else if (!JoinTextParts(*value, &content)) {
      fields.Refuse("content",
                    "has a part that is not text; only {\"type\":\"text\",\"text\":...} "
                    "parts are supported");
    }
  } else if (role != "assistant" && role != "tool") {  // a tool may have returned nothing
    fields.Refuse("content", "is required");
  }
  fields.String("name");
  fields.String("tool_call_id");
  const Json* tool_calls = fields.ArrayOrNull("tool_calls");
  for (size_t i = 0; tool_calls != nullptr && i < tool_calls->size(); ++i) {
    const std::optional<Fault> fault = FaultOfCall((*tool_calls)[i]);
    if (!fault.has_value()) continue;
    fields.Refuse(Concat("tool_calls[", i, "]", fault->place), fault->problem);
    break;
  }
  all.Fail(fields.status());
  const bool has_calls = role == "assistant" && tool_calls != nullptr && !tool_calls->empty();
  const bool no_content = has_calls && form.null_content && content.empty();

  Map map;
  for (const auto& [name, value] : message.items()) {
    if (name == "content" || value.is_null()) continue;
    // Other servers' answers say so of a message without calls, and clients send those back.
    if (name == "tool_calls" && tool_calls != nullptr && tool_calls->empty()) continue;
    if (name == "tool_calls" && tool_calls != nullptr) {
      Value::List calls;
      for (const Json& call : *tool_calls) {
        calls.push_back(ToolCallValue(call, form, memory));
        ++memory->calls;
        if (!memory->problem().empty()) break;
      }
      map.Set(name, Value::MakeList(std::move(calls)));
    } else {
      map.Set(name, ToTemplateValue(value));
    }
    if (name == "role") {
      map.Set("content", no_content ? Value::None() : Value::String(content));
    }
  }
  if (role == "assistant") NameReasoningTwice(&map);
  return Value::MakeMap(std::move(map));
}

void CheckTools(const Json& tools, FieldReader& fields) {
  for (size_t i = 0; i < tools.size(); ++i) {
    const Json& tool = tools[i];
    const Json* const function = tool.is_object() ? MemberOrNull(tool, "function") : nullptr;
    if (function == nullptr || !function->is_object() || FaultOfName(*function, "").has_value()) {
      return fields.Refuse(
          "tools", "must be an array of {\"type\":\"function\",\"function\":{\"name\":...}}");
    }
    const Json* const parameters = MemberOrNull(*function, "parameters");
    if (parameters == nullptr || parameters->is_object()) continue;
    const Fault fault =
        TypeFault(Concat("tools[", i, "].function.parameters"), "an object", *parameters);
    return fields.Refuse(fault.place, fault.problem);
  }
}

// The template's variables: chat_template_kwargs, and what it lacks of those that other fields set.
Value TemplateVariables(const Json* extra, const Json* documents, const Json* effort) {
  Map variables;
  if (extra != nullptr) {
    for (const auto& [name, value] : extra->items()) variables.Set(name, ToTemplateValue(value));
  }
  const auto add = [&](const char* name, Value value) {
    if (variables.FindOrNull(name) == nullptr) variables.Set(name, std::move(value));
  };
  if (documents != nullptr) add("documents", ToTemplateValue(*documents));
  if (effort != nullptr) {
    add("reasoning_effort", ToTemplateValue(*effort));
    add("enable_thinking", Value::Bool(*effort != "none"));
  }
  return Value::MakeMap(std::move(variables));
}

}  // namespace

Value ToTemplateValue(const Json& json) {
  switch (json.type()) {
    case Json::value_t::object: {
      Map map;
      for (const auto& [name, value] : json.items()) map.Set(name, ToTemplateValue(value));
      return Value::MakeMap(std::move(map));
    }
    case Json::value_t::array: {
      Value::List list;
      list.reserve(json.size());
      for (const Json& element : json) list.push_back(ToTemplateValue(element));
      return Value::MakeList(std::move(list));
    }
    case Json::value_t::string:
      return Value::String(json.get<std::string>());
    case Json::value_t::boolean:
      return Value::Bool(json.get<bool>());
    case Json::value_t::number_integer:
      return Value::Int(json.get<int64_t>());
    case Json::value_t::number_unsigned:
      if (json.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX)) {
        return Value::Int(json.get<int64_t>());
      }
      return Value::BigInt(json.get<uint64_t>());
    case Json::value_t::number_float:
      return Value::Float(json.get<double>());
    case Json::value_t::null:
    case Json::value_t::binary:
    case Json::value_t::discarded:
      break;
  }
  return Value::None();
}

void RefuseChatTemplate(FieldReader& fields) {
  fields.Describe("chat_template", R"({"type":"null"})");
  if (fields.String("chat_template").has_value()) {
    fields.Refuse("chat_template", "of a request is not accepted; the model's own is used");
  }
}

engine::ChatPrompt ReadChatOptions(FieldReader& fields) {
  engine::ChatPrompt chat;
  chat.continue_final_message = fields.Bool("continue_final_message").value_or(false);
  const auto add_generation_prompt = fields.Bool("add_generation_prompt");
  chat.input.add_generation_prompt = add_generation_prompt.value_or(!chat.continue_final_message);
  if (chat.continue_final_message && chat.input.add_generation_prompt) {
    fields.Refuse("continue_final_message", "excludes add_generation_prompt");
  }
  return chat;
}

size_t ReadChatMessages(FieldReader& fields, ToolChoice choice, const ModelLimits& limits,
                        engine::ChatPrompt* prompt) {
  fields.Describe("messages", R"({"type":"array","minItems":1,"maxItems":16384,"items":)"
                              R"({"$ref":"#/components/schemas/Message"}})");
  fields.Describe("tools", R"({"type":["array","null"],"maxItems":1024,"items":)"
                           R"({"$ref":"#/components/schemas/Tool"}})");
  Conversation conversation;
  conversation.messages = fields.ArrayOrNull("messages");
  conversation.tools = fields.ArrayOrNull("tools");
  conversation.effort = fields.AnyOrNull("reasoning_effort");
  ReadTemplateFields(fields, &conversation);
  const Json* const messages = conversation.messages;
  if (messages == nullptr || messages->empty() || messages->size() > kMaxMessages) {
    fields.Refuse("messages", Concat("is required: an array of 1 to ", kMaxMessages, " messages"));
    return 0;
  }
  return ReadConversation(conversation, fields, choice, limits, prompt);
}

bool RefusesManyTools(const Json& tools, FieldReader& fields) {
  if (tools.size() <= kMaxTools) return false;
  fields.Refuse("tools",
                Concat("has ", tools.size(), " tools; at most ", kMaxTools, " are accepted"));
  return true;
}

void ReadTemplateFields(FieldReader& fields, Conversation* conversation) {
  fields.Describe("documents", R"({"type":["array","null"],"items":{"type":"object"}})");
  conversation->variables = fields.ObjectOrNull("chat_template_kwargs");
  conversation->documents = fields.ArrayOrNull("documents");
}

size_t ReadConversation(const Conversation& conversation, FieldReader& fields, ToolChoice choice,
                        const ModelLimits& limits, engine::ChatPrompt* prompt) {
  const auto& [field, messages, items, calls, tools, extra, documents, any_effort] = conversation;
  // Templates compare it with words; of anything else they are not told.
  const bool has_effort = any_effort != nullptr && any_effort->is_string() &&
                          !any_effort->get_ref<const std::string&>().empty();
  const Json* const effort = has_effort ? any_effort : nullptr;
  const bool has_tools = tools != nullptr && !tools->empty();
  const bool with_tools = has_tools && limits.tools != engine::ToolFormat::kNone;
  const engine::MessageForms& forms = limits.message_forms;
  const MessageForm& form = with_tools ? forms.with_tools : forms.without_tools;
  Memory memory{.most = limits.max_conversation_bytes};
  for (const Json* part : {messages, tools, extra, documents}) {
    if (part != nullptr) memory.bytes += TemplateMemoryOf(*part);
  }
  if (const std::string problem = memory.problem(); !problem.empty()) {
    fields.Refuse(field,
                  Concat("and what comes with ", field == "messages" ? "them " : "it ", problem));
    return 0;
  }
  Value::List list;
  list.reserve(messages->size());
  for (size_t i = 0; i < messages->size(); ++i) {
    const Json& message = (*messages)[i];
    const std::string name = Concat(field, "[", items != nullptr ? (*items)[i] : i, "]");
    if (!message.is_object()) {
      fields.Refuse(name, Concat("must be an object, not ", JsonTypeName(message)));
      return 0;
    }
    list.push_back(MessageValue(message, name + ".", form, fields, &memory));
    if (const std::string problem = memory.problem(); !problem.empty()) {
      fields.Refuse(calls == nullptr
                        ? name + ".tool_calls"
                        : Concat(field, "[", (*calls)[memory.calls - 1], "].arguments"),
                    problem);
    }
    if (!fields.status().ok()) return 0;
  }
  engine::ChatTemplateInput& input = prompt->input;
  input.messages = Value::MakeList(std::move(list));

  if (has_tools) {
    if (RefusesManyTools(*tools, fields)) return 0;
    CheckTools(*tools, fields);
    if (!fields.status().ok()) return 0;
    if (with_tools) {
      input.tools = ToTemplateValue(*tools);
      prompt->may_call_tools = choice == ToolChoice::kAuto;
    } else if (choice == ToolChoice::kAuto) {
      fields.Refuse("tools", "are not supported: the model's chat template has no place for them");
    }
  }
  if (documents != nullptr) {
    for (const Json& document : *documents) {
      if (document.is_object()) continue;
      fields.Refuse("documents",
                    Concat("must be an array of objects, not of ", JsonTypeName(document)));
      return 0;
    }
  }
  if (extra != nullptr || documents != nullptr || effort != nullptr) {
    input.extra = TemplateVariables(extra, documents, effort);
  }
  const std::time_t now = std::time(nullptr);
  localtime_r(&now, &input.now);
  return memory.bytes;
}

std::string LastAssistantText(FieldReader& fields) {
  const Json* messages = fields.ArrayOrNull("messages");
  if (!fields.status().ok() || messages == nullptr || messages->empty()) return "";
  const Json& last = messages->back();
  if (last["role"] != "assistant" || !last.contains("content")) return "";
  const Json& content = last["content"];
  std::string text;
  if (content.is_string()) return content.get<std::string>();
  if (content.is_array()) JoinTextParts(content, &text);
  return text;
}

}  // namespace refrain::server::openai
