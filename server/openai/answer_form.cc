#include "server/openai/answer_form.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "server/concat.h"
#include "server/openai/sampling_fields.h"

namespace refrain::server::openai {

void ReadAnswerForm(FieldReader& fields, std::string_view name, std::string_view path) {
  fields.Describe(name, kAnswerFormSchema);
  const Json* format = fields.ObjectOrNull(name);
  if (format == nullptr) return;
  FieldReader inner(*format, Concat(path, name, "."));
  const auto type = inner.String("type", 64);
  if (!type.has_value()) inner.Refuse("type", "is required");
  fields.Fail(inner.status());
  if (type != "text") {
    fields.Refuse(name,
                  Concat("of type \"", type.value_or(""), "\" is not supported; only \"text\" is"));
  }
}

ToolChoice ReadToolChoice(FieldReader& fields, const char* name_member) {
  fields.Describe("tool_choice", R"({"enum":["none","auto",null]})");
  const Json* choice = fields.AnyOrNull("tool_choice");
  if (choice == nullptr) return ToolChoice::kAuto;
  if (choice->is_string() && *choice == "auto") return ToolChoice::kAuto;
  if (choice->is_string() && *choice == "none") return ToolChoice::kNone;
  // Where there are no tools a call cannot be meant: LlamaIndex sends "required" when it wants an
  // answer by the schema that its prompt shows.
  const bool forces =
      *choice == "required" || (choice->is_object() && choice->contains("type") &&
                                choice->at("type") == "function" && choice->contains(name_member));
  if (forces && IsEmpty(fields.AnyOrNull("tools"))) return ToolChoice::kNone;
  fields.Refuse("tool_choice", kToolChoiceProblem);
  return ToolChoice::kNone;
}

}  // namespace refrain::server::openai
