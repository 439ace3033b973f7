#include "engine/text/known_templates.h"

#include "absl/strings/str_cat.h"

namespace refrain::engine {
namespace {

constexpr char kChatMl[] =
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

// Versions 1 and 3: what the system says is a part of the next user's turn. `lead` stands around
// the tags of a turn, `inner` before what is said.
std::string OfTurns(const char* lead, const char* inner, const char* answer) {
  return absl::StrCat(
      "{% set turn = namespace(is_open=false) %}{% for message in messages %}"
      "{% if not turn.is_open %}",
      lead, "[INST]", inner,
      "{% set turn.is_open = true %}{% endif %}"
      "{% if message.role == 'system' %}{{ message.content + '\\n\\n' }}"
      "{% elif message.role == 'user' %}{{ message.content }}",
      lead, "[/INST]{% else %}", inner, answer,
      "</s>{% set turn.is_open = false %}{% endif %}{% endfor %}");
}

// Version 7: the system has tags of its own.
std::string OfTags(const char* inner) {
  return absl::StrCat(
      "{% for message in messages %}{% if message.role == 'system' %}[SYSTEM_PROMPT]", inner,
      "{{ message.content }}[/SYSTEM_PROMPT]{% elif message.role == 'user' %}[INST]", inner,
      "{{ message.content }}[/INST]{% else %}", inner,
      "{{ message.content }}</s>{% endif %}{% endfor %}");
}

}  // namespace

std::optional<std::string> KnownChatTemplate(std::string_view name) {
  constexpr char kContent[] = "{{ message.content }}";
  if (name == "chatml") return kChatMl;
  if (name == "mistral-v1") return OfTurns(" ", " ", kContent);
  if (name == "mistral-v3") return OfTurns("", " ", "{{ message.content | trim }}");
  if (name == "mistral-v3-tekken") return OfTurns("", "", kContent);
  if (name == "mistral-v7") return OfTags(" ");
  if (name == "mistral-v7-tekken") return OfTags("");
  return std::nullopt;
}

}  // namespace refrain::engine
