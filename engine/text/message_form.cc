#include "engine/text/message_form.h"

#include <optional>
#include <string_view>
#include <utility>

namespace refrain::engine {
namespace {

using jinja::Map;
using jinja::Value;

constexpr char kFunction[] = "name_of_function";
constexpr char kName[] = "name_of_argument";
constexpr char kText[] = "text_of_argument";
constexpr char kJson[] = R"({"name_of_argument": "text_of_argument"})";
constexpr char kBroken[] = R"({"name_of_argument": "text_of_argu)";
constexpr char kRepresentation[] = "{'name_of_argument': 'text_of_argument'}";  // Python's

Value MapOf(std::initializer_list<std::pair<const char*, Value>> entries) {
  Map map;
  for (const auto& [name, value] : entries) map.Set(name, value);
  return Value::MakeMap(std::move(map));
}

Value Text(const char* text) { return Value::String(text); }

Value UserSays(const char* text) {
  return MapOf({{"role", Text("user")}, {"content", Text(text)}});
}

// A question, a call and its result. Some templates ask for ids of nine letters and digits.
Value Conversation(const MessageForm& form, const Value& arguments) {
  const Value call =
      MapOf({{"id", Text("call00001")},
             {"type", Text("function")},
             {"function", MapOf({{"name", Text(kFunction)}, {"arguments", arguments}})}});
  return Value::MakeList({UserSays("question"),
                          MapOf({{"role", Text("assistant")},
                                 {"content", form.null_content ? Value::None() : Text("")},
                                 {"tool_calls", Value::MakeList({call})}}),
                          MapOf({{"role", Text("tool")},
                                 {"name", Text(kFunction)},
                                 {"tool_call_id", Text("call00001")},
                                 {"content", Text("result")}})});
}

// Some templates show calls only beside tools.
Value Tools() {
  const Value parameters = MapOf({{"type", Text("object")}, {"properties", MapOf({})}});
  return Value::MakeList({MapOf({{"type", Text("function")},
                                 {"function", MapOf({{"name", Text(kFunction)},
                                                     {"description", Text("does something")},
                                                     {"parameters", parameters}})}})});
}

MessageForm FormOfWholeCalls(TrialRender render, const Value& tools) {
  std::optional<MessageForm> shown;
  for (const bool argument_strings : {false, true}) {
    for (const bool null_content : {false, true}) {
      const MessageForm form{.null_content = null_content, .argument_strings = argument_strings};
      const Value arguments = argument_strings ? Text(kJson) : MapOf({{kName, Text(kText)}});
      const absl::StatusOr<std::string> text = render(Conversation(form, arguments), tools);
      if (!text.ok()) continue;
      const std::string_view rendered = *text;
      if (rendered.find(kText) == std::string_view::npos) continue;
      // Where an object is shown as Python shows it the template expected a text; any other way is
      // the template's own.
      if (rendered.find(kRepresentation) == std::string_view::npos) return form;
      if (!shown) shown = form;
    }
  }
  return shown.value_or(MessageForm());
}

}  // namespace

bool ShowsMessages(TrialRender render) {
  const absl::StatusOr<std::string> one = render(Value::MakeList({UserSays("a question")}), {});
  const absl::StatusOr<std::string> other = render(Value::MakeList({UserSays("Other words!")}), {});
  return !one.ok() || !other.ok() || *one != *other;
}

bool ShowsTools(TrialRender render) {
  const absl::StatusOr<std::string> text = render(Value::MakeList({UserSays("question")}), Tools());
  return !text.ok() || text->find(kFunction) != std::string::npos;
}

MessageForm DetectMessageForm(TrialRender render) {
  const Value tools = Tools();
  MessageForm form = FormOfWholeCalls(render, tools);
  const absl::StatusOr<std::string> broken = render(Conversation(form, Text(kBroken)), tools);
  form.broken_arguments = broken.ok() && broken->find(kBroken) != std::string::npos;
  return form;
}

}  // namespace refrain::engine
