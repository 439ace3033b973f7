#include "engine/text/chat_template.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/text/jinja/template.h"

namespace refrain::engine {
namespace {

// SmolLM3's name for tools that are called as JSON between tags; transformers' users pass it.
constexpr char kXmlTools[] = "xml_tools";

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

ChatTemplate::~ChatTemplate() = default;

absl::StatusOr<ChatTemplate::Variant> ChatTemplate::MakeVariant(std::string_view source) const {
  absl::StatusOr<std::unique_ptr<jinja::Template>> parsed = jinja::Template::Parse(source);
  if (!parsed.ok()) return parsed.status();
  Variant variant{.parsed = *std::move(parsed), .knows_developer = KnowsRole(source, "developer")};
  const auto render = [&](const jinja::Value& messages,
                          const jinja::Value& tools) -> absl::StatusOr<std::string> {
    absl::StatusOr<RenderedChat> rendered =
        Render(variant, {.messages = messages, .tools = tools}, nullptr);
    if (!rendered.ok()) return rendered.status();
    return std::move(rendered->text);
  };
  variant.shows_messages = ShowsMessages(render);
  variant.tool_format = DetectToolFormat(source);
  if (finds_reasoning_) variant.reasoning_format = DetectReasoningFormat(source);
  if (variant.tool_format != ToolFormat::kNone && !ShowsTools(render)) {
    variant.reads_xml_tools = source.find(kXmlTools) != std::string_view::npos;
    if (!variant.reads_xml_tools || !ShowsTools(render)) variant.tool_format = ToolFormat::kNone;
  }
  if (source.find("tool_calls") != std::string_view::npos) variant.form = DetectMessageForm(render);
  return variant;
}

MessageForms ChatTemplate::message_forms() const {
  MessageForms forms;
  if (chat_.has_value()) forms = {chat_->form, chat_->form};
  if (tool_use_.has_value()) forms.with_tools = tool_use_->form;
  return forms;
}

bool ChatTemplate::shows_messages() const {
  for (const std::optional<Variant>* variant : {&chat_, &tool_use_}) {
    if (variant->has_value() && !(*variant)->shows_messages) return false;
  }
  return true;
}

ToolFormat ChatTemplate::tool_format() const {
  // The answer is the template's, whatever is asked.
  if (!unusable_.ok()) return ToolFormat::kUnknown;
  if (tool_use_.has_value()) return tool_use_->tool_format;
  return chat_.has_value() ? chat_->tool_format : ToolFormat::kNone;
}

ReasoningFormat ChatTemplate::reasoning_format() const {
  for (const std::optional<Variant>* variant : {&chat_, &tool_use_}) {
    if (variant->has_value() && (*variant)->reasoning_format != ReasoningFormat::kNone) {
      return (*variant)->reasoning_format;
    }
  }
  return ReasoningFormat::kNone;
}

absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Create(const ChatTemplateSpec& spec) {
  if (spec.source.empty() && spec.named.empty()) {
    return absl::NotFoundError("the model has no chat template");
  }
  std::unique_ptr<ChatTemplate> chat(new ChatTemplate);
  chat->tokens_ = spec.tokens;
  chat->finds_reasoning_ = spec.finds_reasoning;
  // Templates add these to strings without asking whether they are there.
  for (const char* name : {"bos_token", "eos_token"}) chat->tokens_.try_emplace(name);
  if (!spec.source.empty()) {
    absl::StatusOr<Variant> variant = chat->MakeVariant(spec.source);
    if (!variant.ok()) return variant.status();
    chat->chat_ = *std::move(variant);
  }
  if (const auto tool_use = spec.named.find("tool_use"); tool_use != spec.named.end()) {
    absl::StatusOr<Variant> variant = chat->MakeVariant(tool_use->second);
    if (variant.ok()) {
      chat->tool_use_ = *std::move(variant);
    } else {
      const std::string problem =
          absl::StrCat("tool_use: ", std::string(variant.status().message()));
      if (!chat->chat_.has_value()) return absl::Status(variant.status().code(), problem);
      chat->warning_ = absl::StrCat("chat template ", problem, "; the default one is used instead");
    }
  }
  for (const auto& [name, source] : spec.named) {
    absl::StrAppend(&chat->names_, chat->names_.empty() ? "'" : ", '", absl::CHexEscape(name), "'");
  }
  return chat;
}

absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Create(std::string_view source,
                                                                   std::string_view bos_token,
                                                                   std::string_view eos_token) {
  return Create(
      {.source = std::string(source),
       .named = {},
       .tokens = {{"bos_token", std::string(bos_token)}, {"eos_token", std::string(eos_token)}}});
}

std::unique_ptr<ChatTemplate> ChatTemplate::Unusable(const absl::Status& why) {
  std::unique_ptr<ChatTemplate> chat(new ChatTemplate);
  chat->unusable_ = absl::FailedPreconditionError(
      absl::StrCat("the model's chat template cannot be used: ", std::string(why.message()),
                   "; use completions with a text prompt"));
  return chat;
}

absl::Status ChatTemplate::NoTemplate() const {
  return absl::FailedPreconditionError(absl::StrCat(
      "the model has no default chat template, only ", names_,
      tool_use_.has_value() ? "; 'tool_use' is for requests with tools" : ", which are not used"));
}

absl::StatusOr<RenderedChat> ChatTemplate::Render(const ChatTemplateInput& input,
                                                  EncodePace* pace) const {
  using jinja::Value;
  constexpr int kMaxDepth = 100;
  if (!unusable_.ok()) return unusable_;
  const std::pair<const char*, const Value*> given[] = {
      {"messages", &input.messages}, {"tools", &input.tools}, {"variables", &input.extra}};
  for (const auto& [name, value] : given) {
    if (value->depth() <= kMaxDepth) continue;
    return absl::InvalidArgumentError(absl::StrCat("chat template: the ", name, " are nested ",
                                                   value->depth(), " deep; at most ", kMaxDepth,
                                                   " are accepted"));
  }
  const bool with_tools = !input.tools.is_undefined();
  const std::optional<Variant>& variant = with_tools && tool_use_.has_value() ? tool_use_ : chat_;
  if (!variant.has_value()) return NoTemplate();
  return Render(*variant, input, pace);
}

absl::StatusOr<RenderedChat> ChatTemplate::Render(const Variant& variant,
                                                  const ChatTemplateInput& input,
                                                  EncodePace* pace) const {
  using jinja::Value;
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
  for (const auto& [name, text] : tokens_) variables.Set(name, Value::String(text));
  variables.Set("add_generation_prompt", Value::Bool(input.add_generation_prompt));
  const Value messages =
      variant.knows_developer ? input.messages : WithoutDevelopers(input.messages);
  variables.Set("messages", WithOwnRoles(messages.MarkedFromRequest()));
  if (!input.tools.is_undefined()) {
    const Value tools = input.tools.MarkedFromRequest();
    variables.Set("tools", tools);
    if (variant.reads_xml_tools) variables.Set(kXmlTools, tools);
  }
  const absl::StatusOr<jinja::Text> text =
      variant.parsed->Render(Value::MakeMap(std::move(variables)), input.now, pace);
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
