// Template source, a zero byte, JSON of the variables: parses and renders them. Whatever the input,
// it ends in a text or a status, within the limits of a rendering.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/text/chat_template.h"
#include "engine/text/jinja/json.h"
#include "engine/text/jinja/template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace engine = refrain::engine;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = input.find('\0');
  const std::string_view source = input.substr(0, zero);
  const auto parsed = engine::jinja::Template::Parse(source);
  if (!parsed.ok()) return 0;
  engine::jinja::Value variables = engine::jinja::Value::MakeMap({});
  if (zero != std::string_view::npos) {
    const auto json = engine::jinja::ParseJsonValue(input.substr(zero + 1));
    if (json.ok() && json->is_map()) variables = *json;
  }
  (void)(*parsed)->Render(variables, {});

  const auto chat = engine::ChatTemplate::Create(source, "<s>", "</s>");
  if (!chat.ok()) return 0;
  engine::ChatTemplateInput chat_input;
  chat_input.extra = variables;
  if (const auto* messages = variables.AsMap().FindOrNull("messages")) {
    chat_input.messages = *messages;
  }
  const auto rendered = (*chat)->Render(chat_input);
  if (!rendered.ok()) return 0;
  // Spans stay sorted, disjoint and inside of the text.
  size_t end = 0;
  for (const engine::TextSpan& span : rendered->content_spans) {
    if (span.begin_byte < end || span.end_byte <= span.begin_byte ||
        span.end_byte > rendered->text.size()) {
      __builtin_trap();
    }
    end = span.end_byte;
  }
  return 0;
}
