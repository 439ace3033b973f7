#include "server/openai/tool_choice.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "server/concat.h"
#include "server/openai/answer_form.h"
#include "server/openai/sampling_fields.h"

namespace refrain::server::openai {
namespace {

using engine::OutputFormat;

// `function` of a chat's choice, or the choice of a response itself.
std::optional<std::string> ReadFunctionName(const Json& value, const std::string& place,
                                            Endpoint endpoint, FieldReader& fields) {
  FieldReader outer(value, place + ".");
  const bool is_chat = endpoint == Endpoint::kChatCompletions;
  const Json* const function = is_chat ? outer.ObjectOrNull("function") : &value;
  if (function == nullptr) outer.Refuse("function", "is required");
  fields.Fail(outer.status());
  if (function == nullptr) return std::nullopt;
  FieldReader inner(*function, place + (is_chat ? ".function." : "."));
  auto name = inner.String("name");
  if (!name.has_value()) inner.Refuse("name", "is required");
  fields.Fail(inner.status());
  return name;
}

// Of type `allowed_tools`: some of the tools.
void ReadAllowedTools(const Json& value, Endpoint endpoint, FieldReader& fields,
                      CallChoice* choice) {
  std::string place = "tool_choice";
  const Json* allowed = &value;
  if (endpoint == Endpoint::kChatCompletions) {
    FieldReader outer(value, place + ".");
    allowed = outer.ObjectOrNull("allowed_tools");
    if (allowed == nullptr) outer.Refuse("allowed_tools", "is required");
    fields.Fail(outer.status());
    if (allowed == nullptr) return;
    place += ".allowed_tools";
  }
  FieldReader inner(*allowed, place + ".");
  const auto mode = inner.String("mode", 64);
  if (mode != "auto" && mode != "required") {
    inner.Refuse("mode", "must be \"auto\" or \"required\"");
  }
  const Json* const tools = inner.ArrayOrNull("tools");
  if (tools == nullptr || tools->empty()) {
    inner.Refuse("tools", "is required: an array of functions that may be called");
  } else if (tools->size() > kMaxTools) {
    inner.Refuse("tools",
                 Concat("has ", tools->size(), " tools; at most ", kMaxTools, " are accepted"));
  }
  fields.Fail(inner.status());
  if (!inner.status().ok()) return;
  choice->forced = mode == "required";
  for (size_t i = 0; i < tools->size(); ++i) {
    const Json& tool = (*tools)[i];
    const std::string name = Concat(place, ".tools[", i, "]");
    if (!tool.is_object() || !tool.contains("type") || tool["type"] != "function") {
      return fields.Refuse(name, "must be an object of type \"function\"");
    }
    if (auto function = ReadFunctionName(tool, name, endpoint, fields)) {
      choice->names.push_back(*std::move(function));
    }
  }
}

using Names = std::set<std::string_view>;

const std::string& NameOf(const Json& tool) {
  return tool.at("function").at("name").get_ref<const std::string&>();
}

// The schema of a function's arguments, which are an object whether it says so or not.
std::string ArgumentsSchema(const Json& function) {
  const auto found = function.find("parameters");
  // OpenAI's: no arguments.
  if (found == function.end() || found->is_null()) {
    return R"({"type":"object","additionalProperties":false})";
  }
  if (found->empty()) return "";
  const auto has = [&](const char* name) { return found->contains(name); };
  if (has("type") || has("$ref") || has("anyOf") || has("oneOf") || has("allOf") || has("enum") ||
      has("const")) {
    return found->dump();
  }
  std::string text = found->dump();
  text.insert(1, R"("type":"object",)");  // there is a member behind it
  return text;
}

// As OpenAI has it: without `strict` what a schema says is held as far as it can be.
bool IsStrict(const Json& function) {
  const auto found = function.find("strict");
  return found != function.end() && *found == true;
}

// Whether the schema, by its `type`, allows objects.
bool AllowsObjects(const Json& schema) {
  const auto type = schema.find("type");
  if (type == schema.end()) return true;
  if (!type->is_array()) return !type->is_string() || *type == "object";
  return std::find(type->begin(), type->end(), "object") != type->end();
}

// What is wrong with the parameters of the tools that may be called, "" where nothing is.
std::string ParametersProblem(const CallChoice& choice, const Json& tools) {
  const Names names(choice.names.begin(), choice.names.end());
  for (size_t i = 0; i < tools.size(); ++i) {
    if (!names.empty() && !names.contains(NameOf(tools[i]))) continue;
    const auto& function = tools[i].at("function");
    const auto parameters = function.find("parameters");
    if (parameters == function.end() || parameters->is_null() || AllowsObjects(*parameters))
      continue;
    return Concat("has at ", i, " parameters of another type than \"object\", of ",
                  ShownValue(Json(NameOf(tools[i]))), ": a call's arguments are an object");
  }
  return "";
}

// Calls of the tools that may be called. With `schemas` their arguments are held to these.
OutputFormat::ToolCalls CallsOf(const CallChoice& choice, const Json& tools, bool schemas) {
  OutputFormat::ToolCalls calls{.tools = {}, .several = choice.several};
  const Names names(choice.names.begin(), choice.names.end());
  for (const Json& tool : tools) {
    if (!names.empty() && !names.contains(NameOf(tool))) continue;
    calls.tools.push_back({.name = NameOf(tool),
                           .parameters = schemas ? ArgumentsSchema(tool.at("function")) : "",
                           .is_strict = IsStrict(tool.at("function"))});
  }
  return calls;
}

// What is wrong with the names, "" where nothing is.
std::string NamesProblem(const CallChoice& choice, const Json* tools) {
  Names there;
  if (tools != nullptr) {
    for (const Json& tool : *tools) there.insert(NameOf(tool));
  }
  for (const std::string& name : choice.names) {
    if (there.contains(name)) continue;
    return Concat("names ", ShownValue(Json(name)), ", which is not among '", choice.tools_field,
                  "'");
  }
  if (choice.names.empty() || choice.forced) return "";
  const Names names(choice.names.begin(), choice.names.end());
  const auto named = std::count_if(tools->begin(), tools->end(),
                                   [&](const Json& tool) { return names.contains(NameOf(tool)); });
  if (std::cmp_equal(named, tools->size())) return "";
  return Concat("allows ", named, " of ", tools->size(),
                " tools with mode \"auto\", in which what is called is not held to them; "
                "use \"required\", or leave the others out of '",
                choice.tools_field, "'");
}

// Calls that may come in place of an answer of the form, of tools that have a name.
void AddPossibleCalls(const CallChoice& choice, const Json& tools, FieldReader& fields,
                      OutputFormat* form) {
  OutputFormat::ToolCalls calls = CallsOf(choice, tools, /*schemas=*/false);
  std::erase_if(calls.tools, [](const auto& tool) { return tool.name.empty(); });
  if (calls.tools.empty()) return;
  form->or_calls = std::move(calls);
  if (const std::string problem = FormProblem(*form); !problem.empty()) {
    fields.Refuse("tools", Concat("beside '", form->field, "' ", problem));
  }
}

// Whether the form is that of an answer's content, of which a call has none, and not of all that
// is generated.
bool IsOfContent(const OutputFormat& form) {
  return form.field.starts_with("response_format") || form.field.starts_with("text.format");
}

bool IsUnderstood(engine::ToolFormat format) {
  return format == engine::ToolFormat::kHermes || format == engine::ToolFormat::kLlama3;
}

}  // namespace

CallChoice ReadToolChoice(FieldReader& fields, Endpoint endpoint) {
  const bool is_chat = endpoint == Endpoint::kChatCompletions;
  fields.Describe("tool_choice", is_chat ? R"({"$ref":"#/components/schemas/ToolChoice"})"
                                         : R"({"$ref":"#/components/schemas/ResponseToolChoice"})");
  CallChoice choice;
  choice.several = fields.Bool("parallel_tool_calls").value_or(true);
  const Json* const value = fields.AnyOrNull("tool_choice");
  if (value == nullptr || *value == "auto") return choice;
  const Json type = value->is_object() ? value->value("type", Json()) : *value;
  if (type == "none" && value->is_string()) {
    choice.choice = ToolChoice::kNone;
  } else if (type == "required" && value->is_string()) {
    choice.forced = true;
  } else if (type == "function" && value->is_object()) {
    choice.forced = true;
    choice.several = false;
    if (auto name = ReadFunctionName(*value, "tool_choice", endpoint, fields)) {
      choice.names.push_back(*std::move(name));
    }
  } else if (type == "allowed_tools" && value->is_object()) {
    ReadAllowedTools(*value, endpoint, fields, &choice);
    return choice;
  } else {
    fields.Refuse("tool_choice",
                  "must be \"auto\", \"none\", \"required\", or an object of type \"function\" or "
                  "\"allowed_tools\"");
  }
  // Where there are no tools a call cannot be meant: LlamaIndex forces one when it wants an answer
  // by the schema that its prompt shows.
  if (choice.forced && IsEmpty(fields.AnyOrNull("tools"))) {
    choice = {.choice = ToolChoice::kNone, .several = choice.several};
  }
  return choice;
}

void AddCalls(const CallChoice& choice, const Json* tools, const ModelLimits& limits,
              FieldReader& fields, std::optional<OutputFormat>* form) {
  if (!fields.status().ok() || choice.choice == ToolChoice::kNone) return;
  const bool has_tools = tools != nullptr && !tools->empty();
  if (const std::string problem = NamesProblem(choice, has_tools ? tools : nullptr);
      !problem.empty()) {
    return fields.Refuse(choice.names_field, problem);
  }
  if (!has_tools) return;
  if (!choice.forced) {
    if (form->has_value() && IsUnderstood(limits.tools)) {
      AddPossibleCalls(choice, *tools, fields, &**form);
    }
    return;
  }
  if (!IsUnderstood(limits.tools)) {
    return fields.Refuse(choice.field,
                         "cannot force a call: the model's chat template has no way of calling "
                         "tools that is understood");
  }
  if (form->has_value() && !IsOfContent(**form)) {
    return fields.Refuse(choice.field, Concat("forces a call, and '", (*form)->field,
                                              "' asks for a form of the answer: both cannot be"));
  }
  if (const std::string problem = ParametersProblem(choice, *tools); !problem.empty()) {
    return fields.Refuse("tools", problem);
  }
  OutputFormat forced{.form = CallsOf(choice, *tools, /*schemas=*/true),
                      .or_calls = {},
                      .field = choice.tools_field};
  if (const std::string problem = FormProblem(forced); !problem.empty()) {
    return fields.Refuse("tools", problem);
  }
  *form = std::move(forced);
}

}  // namespace refrain::server::openai
