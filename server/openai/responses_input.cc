#include "server/openai/responses_input.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "server/concat.h"
#include "server/openai/chat_messages.h"
#include "server/openai/text_parts.h"

namespace refrain::server::openai {
namespace {

// A part, an item or a tool that is not of a type that is known.
void RefuseType(FieldReader& all, const std::string& place, const Json& value,
                std::string_view known) {
  if (!value.is_object()) {
    return all.Refuse(place, Concat("must be an object, not ", JsonTypeName(value)));
  }
  const auto type = value.find("type");
  const bool has_type = type != value.end() && !type->is_null();
  all.Refuse(place, has_type ? Concat("is of type ", ShownValue(*type), "; ", known)
                             : Concat("has no type; ", known));
}

void RefusePart(FieldReader& all, const std::string& place, const Json& part) {
  const auto type = part.is_object() ? part.find("type") : part.end();
  const char* const member =
      part.is_object() && type != part.end() ? TextMemberOrNull(*type) : nullptr;
  if (member == nullptr) {
    return RefuseType(all, place, part,
                      "only text parts are supported: input_text, output_text, text, refusal");
  }
  all.Refuse(Concat(place, ".", member),
             Concat("must be a string, not ", JsonTypeName(part[member])));
}

// The text of a string or of a list of parts. Nothing where it is wrong, which is recorded.
std::optional<std::string> TextOf(const Json& content, const std::string& place, FieldReader& all) {
  if (content.is_string()) return content.get<std::string>();
  std::string text;
  if (!content.is_array()) {
    all.Refuse(place,
               Concat("must be a string or an array of text parts, not ", JsonTypeName(content)));
  } else if (JoinTextParts(content, &text)) {
    return text;
  } else {
    const size_t other = FirstOtherPart(content);
    RefusePart(all, Concat(place, "[", other, "]"), content[other]);
  }
  return std::nullopt;
}

// Makes messages of items, one after the other.
class ItemReader {
 public:
  ItemReader(FieldReader& all, ResponsesInput* input) : all_(all), input_(*input) {}

  void SetInstructions(std::string text) {
    Push({{"role", "system"}, {"content", std::move(text)}}, 0);
    instructions_ = true;
  }
  void Read(const Json& item, size_t index);
  void EndTurn();

 private:
  Json& last() { return input_.messages.back(); }
  void Push(Json message, size_t index) {
    input_.messages.push_back(std::move(message));
    input_.items.push_back(index);
  }
  // The assistant's message that what it said at `index` belongs to.
  Json& Turn(size_t index, bool begins);
  void ReadMessage(const Json& item, size_t index, const std::string& name);
  void AddAssistantText(const Json* content_or_null, size_t index, const std::string& name);
  void ReadCall(const Json& item, size_t index, const std::string& name);
  void ReadCallOutput(const Json& item, size_t index, const std::string& name);
  void ReadReasoning(const Json& item, const std::string& name);
  void AttachReasoning(Json* message);

  FieldReader& all_;
  ResponsesInput& input_;
  bool instructions_ = false;  // they are the last message
  bool in_turn_ = false;       // the last message is the assistant's, and may grow
  std::string reasoning_;      // that belongs to what follows
};

void ItemReader::Read(const Json& item, size_t index) {
  const std::string name = Concat("input[", index, "]");
  if (!item.is_object()) {
    return all_.Refuse(name, Concat("must be an object, not ", JsonTypeName(item)));
  }
  const auto type = item.find("type");
  const bool has_type = type != item.end() && !type->is_null();
  if (has_type ? *type == "message" : item.contains("role")) {
    ReadMessage(item, index, name);
  } else if (has_type && *type == "function_call") {
    ReadCall(item, index, name);
  } else if (has_type && *type == "function_call_output") {
    ReadCallOutput(item, index, name);
  } else if (has_type && *type == "reasoning") {
    ReadReasoning(item, name);
  } else {
    RefuseType(all_, name, item,
               "only message, function_call, function_call_output and reasoning are supported");
  }
}

void ItemReader::ReadMessage(const Json& item, size_t index, const std::string& name) {
  FieldReader fields(item, name + ".");
  const auto role = fields.String("role", 64);
  const bool is_system = role == "system" || role == "developer";
  if (!role.has_value()) {
    fields.Refuse("role", "is required");
  } else if (!is_system && role != "user" && role != "assistant") {
    fields.Refuse("role", Concat("must be \"user\", \"assistant\", \"system\" or \"developer\", "
                                 "not ",
                                 ShownValue(Json(*role))));
  }
  const Json* const content = fields.AnyOrNull("content");
  if (content == nullptr && role != "assistant") fields.Refuse("content", "is required");
  all_.Fail(fields.status());
  if (!all_.status().ok()) return;
  if (role == "assistant") return AddAssistantText(content, index, name + ".content");
  EndTurn();
  std::optional<std::string> text = TextOf(*content, name + ".content", all_);
  if (!text.has_value()) return;
  if (is_system && instructions_) {
    last()["content"].get_ref<std::string&>().append("\n\n").append(*text);
    return;
  }
  instructions_ = false;
  Push({{"role", *role}, {"content", *std::move(text)}}, index);
}

Json& ItemReader::Turn(size_t index, bool begins) {
  if (begins || !in_turn_) Push({{"role", "assistant"}, {"content", nullptr}}, index);
  in_turn_ = true;
  instructions_ = false;
  AttachReasoning(&last());
  return last();
}

void ItemReader::AddAssistantText(const Json* content_or_null, size_t index,
                                  const std::string& name) {
  std::optional<std::string> text;
  if (content_or_null != nullptr) {
    text = TextOf(*content_or_null, name, all_);
    if (!text.has_value()) return;
  }
  const bool has_text = in_turn_ && !last()["content"].is_null();
  const bool is_second = has_text && !last().contains("tool_calls");
  Json& content = Turn(index, /*begins=*/is_second)["content"];
  if (content.is_null()) {
    content = std::move(text).value_or("");
  } else if (text.has_value() && !text->empty()) {
    auto& before = content.get_ref<std::string&>();
    before.append(before.empty() ? "" : "\n").append(*text);
  }
}

void ItemReader::ReadCall(const Json& item, size_t index, const std::string& name) {
  FieldReader fields(item, name + ".");
  const auto call_id = fields.String("call_id");
  const auto function = fields.String("name");
  for (const char* const member : {"call_id", "name"}) {
    if (fields.AnyOrNull(member) == nullptr) fields.Refuse(member, "is required");
  }
  const Json* const arguments = fields.AnyOrNull("arguments");
  all_.Fail(fields.status());
  if (!all_.status().ok()) return;
  Json called = {{"name", *function}};
  if (arguments != nullptr) called["arguments"] = *arguments;
  Json& message = Turn(index, /*begins=*/false);
  if (!message.contains("tool_calls")) message["tool_calls"] = Json::array();
  input_.calls.push_back(index);
  message["tool_calls"].push_back(
      {{"id", *call_id}, {"type", "function"}, {"function", std::move(called)}});
}

void ItemReader::ReadCallOutput(const Json& item, size_t index, const std::string& name) {
  FieldReader fields(item, name + ".");
  const auto call_id = fields.String("call_id");
  const Json* const output = fields.AnyOrNull("output");
  if (!call_id.has_value()) fields.Refuse("call_id", "is required");
  if (output == nullptr) fields.Refuse("output", "is required");
  all_.Fail(fields.status());
  if (!all_.status().ok()) return;
  EndTurn();
  std::optional<std::string> text = TextOf(*output, name + ".output", all_);
  if (!text.has_value()) return;
  instructions_ = false;
  Push({{"role", "tool"}, {"tool_call_id", *call_id}, {"content", *std::move(text)}}, index);
}

void ItemReader::ReadReasoning(const Json& item, const std::string& name) {
  FieldReader fields(item, name + ".");
  std::string text;
  // What was thought, or else what was told of it.
  for (const char* const member : {"content", "summary"}) {
    const Json* const parts = fields.ArrayOrNull(member);
    if (parts == nullptr) continue;
    std::string said;
    for (size_t i = 0; i < parts->size(); ++i) {
      const Json& part = (*parts)[i];
      const auto found = part.is_object() ? part.find("text") : part.end();
      if (!part.is_object() || found == part.end() || !found->is_string()) {
        fields.Refuse(Concat(member, "[", i, "]"), "must be an object with a string 'text'");
        break;
      }
      ConcatTo(&said, said.empty() ? "" : "\n", found->get_ref<const std::string&>());
    }
    if (text.empty()) text = std::move(said);
  }
  all_.Fail(fields.status());
  if (!text.empty()) ConcatTo(&reasoning_, reasoning_.empty() ? "" : "\n", text);
}

void ItemReader::AttachReasoning(Json* message) {
  if (reasoning_.empty()) return;
  Json& there = (*message)["reasoning_content"];
  if (there.is_null()) {
    there = std::exchange(reasoning_, {});
  } else {
    there.get_ref<std::string&>().append("\n").append(std::exchange(reasoning_, {}));
  }
}

void ItemReader::EndTurn() {
  if (in_turn_) AttachReasoning(&last());
  reasoning_.clear();
  in_turn_ = false;
}

}  // namespace

ResponsesInput ReadResponsesInput(FieldReader& fields) {
  fields.Describe("input", R"({"anyOf":[{"type":"string"},{"type":"array","minItems":1,)"
                           R"("maxItems":16384,"items":)"
                           R"({"$ref":"#/components/schemas/InputItem"}}]})");
  ResponsesInput input;
  ItemReader reader(fields, &input);
  if (auto instructions = fields.String("instructions"); !instructions.value_or("").empty()) {
    reader.SetInstructions(*std::move(instructions));
  }
  const Json* const value = fields.AnyOrNull("input");
  const bool is_list = value != nullptr && value->is_array();
  if (value == nullptr || !(value->is_string() || is_list) ||
      (is_list && (value->empty() || value->size() > kMaxMessages))) {
    fields.Refuse("input",
                  Concat("is required: a string, or an array of 1 to ", kMaxMessages, " items"));
    return input;
  }
  if (!is_list) {
    input.messages.push_back({{"role", "user"}, {"content", *value}});
    input.items.push_back(0);
    return input;
  }
  for (size_t i = 0; i < value->size() && fields.status().ok(); ++i) reader.Read((*value)[i], i);
  reader.EndTurn();
  if (input.messages.empty()) {
    fields.Refuse("input", "has nothing that the model could be shown");
  }
  return input;
}

Json ReadResponsesTools(FieldReader& all) {
  all.Describe("tools", R"({"type":["array","null"],"maxItems":1024,"items":)"
                        R"({"$ref":"#/components/schemas/FunctionTool"}})");
  Json chat = Json::array();
  const Json* const tools = all.ArrayOrNull("tools");
  if (tools == nullptr || RefusesManyTools(*tools, all) || !all.status().ok()) return chat;
  for (size_t i = 0; i < tools->size(); ++i) {
    const Json& tool = (*tools)[i];
    const std::string place = Concat("tools[", i, "]");
    if (!tool.is_object() || !tool.contains("type") || tool["type"] != "function") {
      RefuseType(all, place, tool, "only \"function\" is supported");
      break;
    }
    FieldReader fields(tool, place + ".");
    const auto name = fields.String("name");
    if (!name.has_value()) fields.Refuse("name", "is required");
    fields.ObjectOrNull("parameters");
    all.Fail(fields.status());
    if (!all.status().ok()) break;
    Json function = Json::object();
    for (const char* const member : {"name", "description", "parameters", "strict"}) {
      if (const Json* const found = fields.AnyOrNull(member)) function[member] = *found;
    }
    chat.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return chat;
}

}  // namespace refrain::server::openai
