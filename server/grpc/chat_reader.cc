#include "server/grpc/chat_reader.h"

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "server/json.h"
#include "server/openai/field_reader.h"
#include "server/openai/tool_choice.h"

namespace refrain::server::rpc {
namespace {

// JSON that a field holds; absent when the field is empty. That of all fields together is bounded.
void AddJson(const std::string& text, const char* field, Json* object, const char* name,
             JsonMemory* all, Complaint& complaint) {
  if (text.empty() || all->is_too_much()) return;
  absl::StatusOr<Json> parsed = ParseJson(text);
  if (!parsed.ok()) {
    complaint.Refuse(field, Concat("is not JSON: ", parsed.status().message()));
    return;
  }
  all->Add(text.size(), *parsed);
  if (all->is_too_much()) {
    complaint.Refuse(field, Concat("has values that would take, with those before, over ",
                                   all->most(), " bytes of memory"));
    return;
  }
  (*object)[name] = *std::move(parsed);
}

// The field that became the member `param` of the JSON that the reader of HTTP's messages sees.
// JSON is one field, whatever is wrong inside of it.
std::string FieldOf(std::string_view param) {
  for (const std::string_view name : {"tools", "chat_template_kwargs", "tool_calls", "documents"}) {
    const size_t begin = param.starts_with(name) ? 0 : param.find(Concat(".", name));
    if (begin == std::string_view::npos) continue;
    const size_t end = param.find(name, begin) + name.size();
    return Concat(param.substr(0, end), "_json");
  }
  return std::string(param);
}

Json MessageJson(const v1::ChatMessage& in, int index, JsonMemory* all, Complaint& complaint) {
  const Complaint::Inside inside(complaint, Concat("messages[", index, "]"));
  Json message = Json::object();
  message["role"] = in.role();
  message["content"] = in.content();
  if (in.has_name()) message["name"] = in.name();
  if (in.has_tool_call_id()) message["tool_call_id"] = in.tool_call_id();
  if (in.has_reasoning()) message["reasoning_content"] = in.reasoning();
  AddJson(in.tool_calls_json(), "tool_calls_json", &message, "tool_calls", all, complaint);
  return message;
}

// Of a choice that is read but for them.
void ReadAllowedTools(const v1::ChatPrompt& in, openai::CallChoice* choice, Complaint& complaint) {
  if (in.allowed_tools().empty()) return;
  if (in.has_tool_function()) complaint.Refuse("allowed_tools", "excludes tool_function");
  if (choice->choice == openai::ToolChoice::kNone) {
    complaint.Refuse("allowed_tools", "excludes the tool_choice \"none\"");
  }
  complaint.RequireAtMost("allowed_tools", in.allowed_tools_size(), openai::kMaxTools, "tools");
  if (!complaint.ok()) return;
  choice->names_field = "allowed_tools";
  choice->names.assign(in.allowed_tools().begin(), in.allowed_tools().end());
}

openai::CallChoice ReadToolChoice(const v1::ChatPrompt& in, Complaint& complaint) {
  const std::string& said = in.tool_choice();
  openai::CallChoice choice;
  choice.several = in.has_parallel_tool_calls() ? in.parallel_tool_calls() : true;
  choice.tools_field = complaint.PathOf("tools_json");
  if (in.has_tool_function()) {
    if (!said.empty()) complaint.Refuse("tool_function", "excludes tool_choice");
    choice.field = choice.names_field = "tool_function";
    choice.names = {in.tool_function()};
    choice.several = false;
  } else if (said == "none") {
    choice.choice = openai::ToolChoice::kNone;
  } else if (!said.empty() && said != "auto" && said != "required") {
    complaint.Refuse("tool_choice", Concat("must be \"auto\", \"none\" or \"required\", not ",
                                           ShownValue(Json(said))));
  }
  choice.forced = in.has_tool_function() || said == "required";
  ReadAllowedTools(in, &choice, complaint);
  return choice;
}

}  // namespace

engine::ChatPrompt ReadChatPrompt(const v1::ChatPrompt& in, GenerationRequest* out,
                                  std::optional<engine::OutputFormat>* form, Complaint& complaint) {
  const Complaint::Inside chat(complaint, "chat");
  complaint.RequireAtMost("messages", in.messages_size(), openai::kMaxMessages, "messages");
  if (!complaint.status().ok()) return {};
  Json body = Json::object();
  Json& messages = body["messages"] = Json::array();
  JsonMemory all;
  for (const v1::ChatMessage& message : in.messages()) {
    messages.push_back(MessageJson(message, static_cast<int>(messages.size()), &all, complaint));
  }
  AddJson(in.tools_json(), "tools_json", &body, "tools", &all, complaint);
  AddJson(in.chat_template_kwargs_json(), "chat_template_kwargs_json", &body,
          "chat_template_kwargs", &all, complaint);
  AddJson(in.documents_json(), "documents_json", &body, "documents", &all, complaint);
  if (!in.reasoning_effort().empty()) body["reasoning_effort"] = in.reasoning_effort();
  engine::ChatPrompt prompt;
  prompt.continue_final_message = in.continue_final_message();
  prompt.input.add_generation_prompt =
      in.has_add_generation_prompt() ? in.add_generation_prompt() : !in.continue_final_message();
  if (prompt.continue_final_message && prompt.input.add_generation_prompt) {
    complaint.Refuse("continue_final_message", "excludes add_generation_prompt");
  }
  openai::FieldReader fields(body, "");
  const openai::CallChoice choice = ReadToolChoice(in, complaint);
  const ModelLimits& limits = complaint.limits();
  out->conversation_bytes = openai::ReadChatMessages(fields, choice.choice, limits, &prompt);
  openai::AddCalls(choice, fields.ArrayOrNull("tools"), limits, fields, form);
  complaint.FailAsOverHttp(fields.status(), FieldOf);
  openai::ShownText::Options& shown = out->answer.shown;
  shown.reasoning = limits.reasoning;
  shown.include_reasoning = in.has_include_reasoning() ? in.include_reasoning() : true;
  if (!prompt.may_call_tools) return prompt;
  shown.tools = limits.tools;
  shown.parallel_tool_calls = choice.several;
  return prompt;
}

}  // namespace refrain::server::rpc
