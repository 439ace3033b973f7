#include "engine/text/chat_template.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/text/jinja/template.h"

namespace refrain::engine {
namespace {

// Templates compare roles with strings.
bool KnowsRole(std::string_view source, std::string_view role) {
  for (const char quote : {'"', '\''}) {
    std::string literal(1, quote);
    literal.append(role).push_back(quote);
    if (source.find(literal) != std::string_view::npos) return true;
  }
  return false;
}

// OpenAI's newer name for the role `system` becomes that again: templates that do not know it show
// the model a role it never saw, or fail.
jinja::Value WithoutDevelopers(const jinja::Value& messages) {
  using jinja::Value;
  if (!messages.is_list()) return messages;
  Value::List list = messages.AsList();
  for (Value& message : list) {
    const Value* const role = message.is_map() ? message.AsMap().FindOrNull("role") : nullptr;
    if (role == nullptr || !role->is_string() || role->AsString() != "developer") continue;
    jinja::Map map = message.AsMap();
    map.Set("role", Value::String("system"));
    message = Value::MakeMap(std::move(map));
  }
  return Value::MakeList(std::move(list));
}

// Templates spell control tokens with roles ('<|' + role + '|>'), so the usual ones count as the
// template's own text. Any others stay the request's: a role `end` would end the message.
jinja::Value WithOwnRoles(jinja::Value messages) {
  using jinja::Value;
  static constexpr std::array<std::string_view, 7> kRoles = {
      "system", "developer", "user", "assistant", "tool", "function", "ipython"};
  if (!messages.is_list()) return messages;
  Value::List list = messages.AsList();
  for (Value& message : list) {
    const Value* const role = message.is_map() ? message.AsMap().FindOrNull("role") : nullptr;
    if (role == nullptr || !role->is_string()) continue;
    const auto own = std::find(kRoles.begin(), kRoles.end(), role->AsString());
    if (own == kRoles.end()) continue;
    jinja::Map map = message.AsMap();
    map.Set("role", Value::String(std::string(*own)));
    message = Value::MakeMap(std::move(map));
  }
  return Value::MakeList(std::move(list));
}

}  // namespace

ChatTemplate::ChatTemplate(std::unique_ptr<jinja::Template> parsed, std::string_view bos_token,
                           std::string_view eos_token, ToolFormat tool_format, bool knows_developer)
    : template_(std::move(parsed)),
      bos_token_(bos_token),
      eos_token_(eos_token),
      tool_format_(tool_format),
      knows_developer_(knows_developer) {}

ChatTemplate::~ChatTemplate() = default;

absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Create(std::string_view source,
                                                                   std::string_view bos_token,
                                                                   std::string_view eos_token) {
  if (source.empty()) return absl::NotFoundError("the model has no chat template");
  absl::StatusOr<std::unique_ptr<jinja::Template>> parsed = jinja::Template::Parse(source);
  if (!parsed.ok()) return parsed.status();
  return std::unique_ptr<ChatTemplate>(new ChatTemplate(*std::move(parsed), bos_token, eos_token,
                                                        DetectToolFormat(source),
                                                        KnowsRole(source, "developer")));
}

absl::StatusOr<RenderedChat> ChatTemplate::Render(const ChatTemplateInput& input) const {
  using jinja::Value;
  constexpr int kMaxDepth = 100;
  const std::pair<const char*, const Value*> given[] = {
      {"messages", &input.messages}, {"tools", &input.tools}, {"variables", &input.extra}};
  for (const auto& [name, value] : given) {
    if (value->depth() <= kMaxDepth) continue;
    return absl::InvalidArgumentError(absl::StrCat("chat template: the ", name, " are nested ",
                                                   value->depth(), " deep; at most ", kMaxDepth,
                                                   " are accepted"));
  }
  jinja::Map variables;
  // As Hugging Face's apply_chat_template has them; templates ask `tools is not none`.
  variables.Set("tools", Value::None());
  variables.Set("documents", Value::None());
  // Before the others, so that a request cannot replace what follows.
  if (input.extra.is_map()) {
    const Value extra = input.extra.MarkedFromRequest();
    for (const jinja::Map::Entry& entry : extra.AsMap().entries()) {
      variables.Set(entry.key, entry.value);
    }
  }
  variables.Set("bos_token", Value::String(bos_token_));
  variables.Set("eos_token", Value::String(eos_token_));
  variables.Set("add_generation_prompt", Value::Bool(input.add_generation_prompt));
  const Value messages = knows_developer_ ? input.messages : WithoutDevelopers(input.messages);
  variables.Set("messages", WithOwnRoles(messages.MarkedFromRequest()));
  if (!input.tools.is_undefined()) variables.Set("tools", input.tools.MarkedFromRequest());
  const absl::StatusOr<jinja::Text> text =
      template_->Render(Value::MakeMap(std::move(variables)), input.now);
  if (!text.ok()) return text.status();
  RenderedChat rendered{.text = text->bytes(), .content_spans = {}};
  for (const jinja::Text::Mark& mark : text->marks()) {
    rendered.content_spans.push_back({mark.begin_byte, mark.end_byte});
  }
  return rendered;
}

EncodeOptions SafeEncodeOptions(const RenderedChat& rendered) {
  return {.parse_special = true, .add_bos = false, .plain_spans = rendered.content_spans};
}

}  // namespace refrain::engine
