#include "engine/text/message_form.h"

#include <gtest/gtest.h>

#include <string>

#include "engine/text/chat_template.h"
#include "engine/text/jinja/json.h"

namespace refrain::engine {
namespace {

// What is asked for with "content" where that is none, and with "string" where arguments are text.
std::string FormOf(const std::string& arguments, const std::string& condition) {
  const auto chat =
      ChatTemplate::Create("{% for m in messages %}{% for c in m.tool_calls %}{% if " + condition +
                               " %}{{ '<' + c.function.name + '>' }}" + arguments +
                               "{% endif %}{% endfor %}{% endfor %}",
                           "", "");
  EXPECT_TRUE(chat.ok()) << chat.status();
  const MessageForm form = (*chat)->message_forms().without_tools;
  EXPECT_EQ((*chat)->message_forms().with_tools, form);
  return std::string(form.null_content ? "content " : "") +
         (form.argument_strings ? "string" : "object");
}

TEST(MessageFormTest, FindsOutHowItTakesToolCalls) {
  const std::string as_json = "{{ c.function.arguments | tojson }}";
  const std::string added = "{{ 'x' + c.function.arguments }}";
  EXPECT_EQ(FormOf(as_json, "true"), "object");
  EXPECT_EQ(FormOf("{{ c['function']['arguments'] | tojson(indent=2) }}", "true"), "object");
  EXPECT_EQ(
      FormOf("{% for k, v in c.function.arguments|items %}{{ k }}{{ v }}{% endfor %}", "true"),
      "object");
  EXPECT_EQ(FormOf("{% if c.function.arguments is string %}{{ c.function.arguments }}{% else %}" +
                       as_json + "{% endif %}",
                   "true"),
            "object");
  // Its own way for objects, and texts as they are: objects, as with transformers.
  EXPECT_EQ(
      FormOf("{% if c.function.arguments is mapping %}{% for k, v in c.function.arguments|items %}"
             "{{ k }}:<e>{{ v }}</e>{% endfor %}{% else %}{{ c.function.arguments }}{% endif %}",
             "true"),
      "object");
  EXPECT_EQ(FormOf("{% if c.function.arguments is string %}{{ c.function.arguments }}{% else %}"
                   "{{ c.function.arguments | tojson(indent=4) }}{% endif %}",
                   "true"),
            "object");
  EXPECT_EQ(FormOf("{{ c.function.arguments }}", "true"), "string");
  EXPECT_EQ(FormOf(added, "true"), "string");
  EXPECT_EQ(FormOf(as_json, "m.content is none"), "content object");
  EXPECT_EQ(FormOf(added, "m['content'] is none"), "content string");
  EXPECT_EQ(FormOf(as_json, "m['content'] is not none"), "object");
  EXPECT_EQ(FormOf(as_json, "tools"), "object");
  EXPECT_EQ(FormOf("", "true"), "object");
  EXPECT_EQ(FormOf("{{ raise_exception('no') }}", "true"), "object");
}

// A call that was cut has arguments that are no JSON.
TEST(MessageFormTest, FindsOutWhetherItShowsBrokenArgumentsAsTheyAre) {
  const auto shows = [](const std::string& call) {
    const auto chat = ChatTemplate::Create(
        "{% for m in messages %}{% for c in m.tool_calls %}" + call + "{% endfor %}{% endfor %}",
        "", "");
    EXPECT_TRUE(chat.ok()) << chat.status();
    return (*chat)->message_forms().with_tools.broken_arguments;
  };
  EXPECT_TRUE(
      shows("{% if c.function.arguments is string %}{{ c.function.arguments }}{% else %}"
            "{{ c.function.arguments | tojson }}{% endif %}"));
  EXPECT_TRUE(shows("{{ 'x' + c.function.arguments }}"));
  EXPECT_FALSE(shows("{{ c.function.arguments | tojson }}"));
  EXPECT_FALSE(shows("{{ c | tojson }}"));
  EXPECT_FALSE(shows("{% for k, v in c.function.arguments|items %}{{ k }}{{ v }}{% endfor %}"));
  EXPECT_FALSE(shows("{{ c.function.name }}"));
}

// The two templates of a model may differ.
TEST(MessageFormTest, EachTemplateTakesToolCallsItsOwnWay) {
  const std::string begin =
      "{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.arguments";
  const std::string end = " }}{% endfor %}{% endfor %}";
  const auto chat = ChatTemplate::Create(
      {.source = begin + end, .named = {{"tool_use", begin + " | tojson" + end}}});
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_TRUE((*chat)->message_forms().without_tools.argument_strings);
  EXPECT_FALSE((*chat)->message_forms().with_tools.argument_strings);
}

bool ShowsMessages(const std::string& source) {
  const auto chat = ChatTemplate::Create(source, "<s>", "</s>");
  EXPECT_TRUE(chat.ok()) << chat.status();
  return (*chat)->shows_messages();
}

// A name that stands for a template is a template, too: one of text alone.
TEST(MessageFormTest, FindsOutWhetherAConversationIsShown) {
  EXPECT_FALSE(ShowsMessages("mistral-v7"));
  EXPECT_FALSE(ShowsMessages("{{ bos_token }}{% if add_generation_prompt %}A:{% endif %}"));
  // It expects parts in place of a text.
  EXPECT_FALSE(
      ShowsMessages("{% for m in messages %}{% for c in m.content %}{{ c.text }}"
                    "{% endfor %}{% endfor %}"));
  EXPECT_TRUE(ShowsMessages("{% for m in messages %}{{ m.content | trim | upper }}{% endfor %}"));
  EXPECT_TRUE(ShowsMessages("{{ raise_exception('no system message') }}"));
}

ToolFormat FormatOf(const std::string& source) {
  const auto chat = ChatTemplate::Create(source + "{{ messages[0].content }}", "", "");
  EXPECT_TRUE(chat.ok()) << chat.status();
  return (*chat)->tool_format();
}

TEST(MessageFormTest, FindsOutWhetherToolsAreShown) {
  EXPECT_EQ(FormatOf("{% if tools %}{{ tools | tojson }}<tool_call>{% endif %}"),
            ToolFormat::kHermes);
  EXPECT_EQ(FormatOf("{% if tools %}{{ raise_exception('no') }}<tool_call>{% endif %}"),
            ToolFormat::kHermes);
  EXPECT_EQ(FormatOf("{% if tools %}Say <tool_call>.{% endif %}"), ToolFormat::kNone);
  EXPECT_EQ(FormatOf("{% if other_tools %}{{ other_tools }}<tool_call>{% endif %}"),
            ToolFormat::kNone);
  EXPECT_EQ(FormatOf("{% if xml_tools %}Say <tool_call>.{% endif %}"), ToolFormat::kNone);
}

// As SmolLM3's template does.
TEST(MessageFormTest, GivesToolsToATemplateThatHasAnotherNameForThem) {
  const std::string source =
      "{% if xml_tools or python_tools %}{% if xml_tools %}<tools>{% for tool in xml_tools[:] %}"
      "{{ tool | string }}{% endfor %}</tools><tool_call>{% endif %}"
      "{% if python_tools %}{{ python_tools }}{% endif %}{% endif %}"
      "{% for m in messages %}{{ m.content }}{% endfor %}";
  const auto chat = ChatTemplate::Create(source, "", "");
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ((*chat)->tool_format(), ToolFormat::kHermes);
  ChatTemplateInput input{.messages = *jinja::ParseJsonValue(R"([{"content": "Hi"}])")};
  EXPECT_EQ((*chat)->Render(input)->text, "Hi");
  input.tools = *jinja::ParseJsonValue(R"([{"type": "function"}])");
  EXPECT_EQ((*chat)->Render(input)->text, "<tools>{'type': 'function'}</tools><tool_call>Hi");
}

}  // namespace
}  // namespace refrain::engine
