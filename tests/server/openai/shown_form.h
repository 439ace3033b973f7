#ifndef REFRAIN_TESTS_SERVER_OPENAI_SHOWN_FORM_H_
#define REFRAIN_TESTS_SERVER_OPENAI_SHOWN_FORM_H_

#include <string>
#include <variant>

#include "engine/request.h"

namespace refrain::testing {

inline std::string Shown(const engine::OutputFormat::JsonObject&) { return "object"; }
inline std::string Shown(const engine::OutputFormat::JsonSchema& form) {
  return "schema " + form.schema;
}
inline std::string Shown(const engine::OutputFormat::Regex& form) {
  return "regex " + form.pattern;
}
inline std::string Shown(const engine::OutputFormat::Ebnf& form) {
  return "grammar " + form.grammar;
}
inline std::string Shown(const engine::OutputFormat::Choice& form) {
  std::string text = "choice";
  for (const std::string& one : form.texts) text += " " + one;
  return text;
}
inline std::string Shown(const engine::OutputFormat::ToolCalls& form) {
  std::string text = form.several ? "calls" : "call";
  for (const auto& tool : form.tools) text += " " + tool.name + "(" + tool.parameters + ")";
  return text;
}

// All of the form that a request asks for: "regex a+ by guided_regex"; "none" where it asks for
// none.
inline std::string ShownForm(const engine::Request& request) {
  if (request.format == nullptr) return "none";
  const engine::OutputFormat& format = *request.format;
  std::string text = std::visit([](const auto& form) { return Shown(form); }, format.form);
  if (format.or_calls.has_value()) text += " or " + Shown(*format.or_calls);
  return text + " by " + format.field;
}

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SERVER_OPENAI_SHOWN_FORM_H_
