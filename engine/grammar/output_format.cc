#include "engine/grammar/output_format.h"

namespace refrain::engine {
namespace {

size_t BytesOf(const OutputFormat::JsonObject&) { return 0; }
size_t BytesOf(const OutputFormat::JsonSchema& form) { return form.schema.size(); }
size_t BytesOf(const OutputFormat::Regex& form) { return form.pattern.size(); }
size_t BytesOf(const OutputFormat::Ebnf& form) { return form.grammar.size(); }
size_t BytesOf(const OutputFormat::Choice& form) {
  size_t sum = 0;
  for (const std::string& text : form.texts) sum += text.size() + sizeof(std::string);
  return sum;
}
size_t BytesOf(const OutputFormat::ToolCalls& form) {
  size_t sum = 0;
  for (const auto& tool : form.tools) {
    sum += tool.name.size() + tool.parameters.size() + sizeof(tool);
  }
  return sum;
}

}  // namespace

size_t OutputFormat::bytes() const {
  return field.size() + std::visit([](const auto& form) { return BytesOf(form); }, form) +
         (or_calls.has_value() ? BytesOf(*or_calls) : 0);
}

}  // namespace refrain::engine
