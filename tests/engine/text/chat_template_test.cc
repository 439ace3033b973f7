// Injection, hostile templates, what is refused, and details of the Jinja engine that the golden
// cases do not reach (expected values: jinja2 3.1.6).

#include "engine/text/chat_template.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/encode_pace.h"
#include "engine/text/jinja/json.h"
#include "engine/text/jinja/template.h"
#include "tests/support/slow_build.h"

namespace refrain::engine {
namespace {

using jinja::Value;

std::string RenderOrError(const std::string& source, const std::string& variables = "{}") {
  const auto parsed = jinja::Template::Parse(source);
  if (!parsed.ok()) return "parse: " + std::string(parsed.status().message());
  const auto text = (*parsed)->Render(*jinja::ParseJsonValue(variables), {});
  return text.ok() ? text->bytes() : "render: " + std::string(text.status().message());
}

std::vector<std::string> ContentOf(const RenderedChat& rendered) {
  std::vector<std::string> parts;
  for (const TextSpan& span : rendered.content_spans) {
    parts.push_back(rendered.text.substr(span.begin_byte, span.end_byte - span.begin_byte));
  }
  return parts;
}

std::vector<std::string> ContentOf(const std::string& source, const std::string& messages) {
  const auto chat = ChatTemplate::Create(source, "<s>", "</s>");
  EXPECT_TRUE(chat.ok()) << chat.status();
  const auto rendered = (*chat)->Render({.messages = *jinja::ParseJsonValue(messages)});
  EXPECT_TRUE(rendered.ok()) << rendered.status();
  return rendered.ok() ? ContentOf(*rendered) : std::vector<std::string>();
}

// Content stays known as content whatever the template does with it.
TEST(ChatTemplateTest, MarksContentThroughEveryOperation) {
  const std::string messages = R"([{"role": "user", "content": " a<X>b "}])";
  const auto content = [&](const std::string& expression) {
    return ContentOf("<{{ '[' ~ " + expression + " ~ ']' }}>", messages);
  };
  const std::string c = "messages[0].content";
  using Parts = std::vector<std::string>;
  EXPECT_EQ(content(c), Parts{" a<X>b "});
  EXPECT_EQ(content("'' ~ " + c + "|trim"), Parts{"a<X>b"});
  EXPECT_EQ(content(c + ".strip() + '!'"), Parts{"a<X>b"});
  EXPECT_EQ(content(c + "[2:5]"), Parts{"<X>"});
  EXPECT_EQ(content(c + "[::-1]"), Parts{" b>X<a "});
  EXPECT_EQ(content(c + ".split('X')[1]"), Parts{">b "});
  EXPECT_EQ(content(c + ".replace('X', 'Y')"), (Parts{" a<", ">b "}));
  EXPECT_EQ(content("'pXq'.replace('X', " + c + ")"), Parts{" a<X>b "});
  EXPECT_EQ(content(c + "|upper"), Parts{" A<X>B "});
  EXPECT_EQ(content(c + "|tojson"), Parts{"\" a<X>b \""});
  EXPECT_EQ(content("[" + c + "]"), Parts{"' a<X>b '"});
  EXPECT_EQ(content("['x', " + c + "]|join('-')"), Parts{" a<X>b "});
  EXPECT_EQ(content(c + " * 2"), Parts{" a<X>b  a<X>b "});
  EXPECT_EQ(content(c + "|list|last"), Parts{" "});
  EXPECT_EQ(content(c + "|e"), Parts{" a&lt;X&gt;b "});
  EXPECT_EQ(content("('<' + " + c + " + '>')|e"), Parts{" a&lt;X&gt;b "});
  EXPECT_EQ(content("('<'|safe + " + c + " + '>')"), Parts{" a&lt;X&gt;b "});
  EXPECT_EQ(content("messages[0]|items|first|first"), Parts{"role"});
  EXPECT_EQ(content("messages[0].role|length"), Parts{});
  EXPECT_EQ(ContentOf("{% set x %}<{{ messages[0].content }}>{% endset %}{{ x }}", messages),
            Parts{" a<X>b "});
  EXPECT_EQ(
      ContentOf("{% macro f(x) %}({{ x }}){% endmacro %}{{ f(messages[0].content) }}", messages),
      Parts{" a<X>b "});
  EXPECT_EQ(ContentOf("{{ bos_token }}{{ eos_token }}", messages), Parts{});
}

std::string RolesOf(const std::string& source) {
  const auto chat = ChatTemplate::Create(source, "", "");
  EXPECT_TRUE(chat.ok()) << chat.status();
  const auto rendered = (*chat)->Render(
      {.messages = *jinja::ParseJsonValue(
           R"([{"role": "developer", "content": "a"}, {"role": "user", "content": "b"}])")});
  EXPECT_TRUE(rendered.ok()) << rendered.status();
  return rendered.ok() ? rendered->text : "";
}

// OpenAI's newer name for `system`, which few templates know.
TEST(ChatTemplateTest, TakesDevelopersForSystemUnlessItKnowsThem) {
  const std::string loop = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}";
  EXPECT_EQ(RolesOf(loop), "system:a;user:b;");
  EXPECT_EQ(RolesOf("{% set known = ['system', 'developer'] %}" + loop), "developer:a;user:b;");
  EXPECT_EQ(RolesOf("{# for the developer #}" + loop), "system:a;user:b;");
}

// '<|' + role + '|>' is one token of the models whose templates write it.
TEST(ChatTemplateTest, UsualRolesAreTheTemplatesOwnText) {
  const std::string source =
      "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m.content }}{% endfor %}";
  const auto spans = [&](const std::string& role) {
    return ContentOf(source, R"([{"role": ")" + role + R"(", "content": "x"}])");
  };
  using Parts = std::vector<std::string>;
  for (const char* role :
       {"system", "developer", "user", "assistant", "tool", "function", "ipython"}) {
    EXPECT_EQ(spans(role), Parts{"x"}) << role;
  }
  EXPECT_EQ(spans("end"), (Parts{"end", "x"}));
  EXPECT_EQ(spans("user|><|end"), (Parts{"user|><|end", "x"}));
}

// As Hugging Face's apply_chat_template.
TEST(ChatTemplateTest, ToolsAndDocumentsAreNoneWithoutAny) {
  const auto chat = ChatTemplate::Create(
      "{{ tools is defined }} {{ tools is none }} {{ documents is none }}", "", "");
  ASSERT_TRUE(chat.ok()) << chat.status();
  const auto none = (*chat)->Render({.messages = Value::MakeList({})});
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(none->text, "True True True");
  const auto some = (*chat)->Render({.messages = Value::MakeList({}),
                                     .tools = Value::MakeList({}),
                                     .extra = *jinja::ParseJsonValue(R"({"documents": []})")});
  ASSERT_TRUE(some.ok()) << some.status();
  EXPECT_EQ(some->text, "True False False");
}

// What a chat with and one without tools are rendered as, or why not. Expected values here and in
// the next test: transformers 5.24.
std::vector<std::string> WithoutAndWithTools(const ChatTemplateSpec& spec) {
  const auto chat = ChatTemplate::Create(spec);
  if (!chat.ok()) return {std::string(chat.status().message())};
  std::vector<std::string> texts;
  for (const bool with_tools : {false, true}) {
    ChatTemplateInput input{.messages = Value::MakeList({})};
    if (with_tools) input.tools = *jinja::ParseJsonValue(R"([{"function": {"name": "f"}}])");
    const auto rendered = (*chat)->Render(input);
    texts.push_back(rendered.ok() ? rendered->text : std::string(rendered.status().message()));
  }
  return texts;
}

TEST(ChatTemplateTest, ToolsAreShownByTheTemplateOfThatName) {
  using Texts = std::vector<std::string>;
  const std::string tool_use = "T{{ tools[0].function.name }}";
  EXPECT_EQ(
      WithoutAndWithTools({.source = "D{{ tools is none }}", .named = {{"tool_use", tool_use}}}),
      (Texts{"DTrue", "Tf"}));
  EXPECT_EQ(WithoutAndWithTools({.source = "D{{ tools is none }}", .named = {{"rag", "R"}}}),
            (Texts{"DTrue", "DFalse"}));
  EXPECT_EQ(WithoutAndWithTools({.named = {{"rag", "R"}, {"tool_use", tool_use}}}),
            (Texts{"the model has no default chat template, only 'rag', 'tool_use'; 'tool_use' is "
                   "for requests with tools",
                   "Tf"}));
  const std::string only_rag =
      "the model has no default chat template, only 'rag', which are not used";
  EXPECT_EQ(WithoutAndWithTools({.named = {{"rag", "R"}}}), (Texts{only_rag, only_rag}));
  // One that is beyond us leaves the model its default, with a warning.
  const ChatTemplateSpec beyond = {.source = "D", .named = {{"tool_use", "\n{% x %}"}}};
  EXPECT_EQ(WithoutAndWithTools(beyond), (Texts{"D", "D"}));
  EXPECT_EQ((*ChatTemplate::Create(beyond))->warning().find("chat template tool_use: "), 0u);
  EXPECT_EQ(ChatTemplate::Create({.named = {{"tool_use", "\n{% x %}"}}})
                .status()
                .message()
                .find("tool_use: chat tem"),
            0u);
  const auto format = [](const char* source, const char* tools) {
    return (*ChatTemplate::Create({.source = source, .named = {{"tool_use", tools}}}))
        ->tool_format();
  };
  EXPECT_EQ(format("no place", "{{ tools }}<tool_call>"), ToolFormat::kHermes);
  EXPECT_EQ(format("{{ tools }}<tool_call>", "no place"), ToolFormat::kNone);
}

// What is rendered for nobody ends long before its steps are used up.
TEST(ChatTemplateTest, IsHeldUpAndStoppedByItsPace) {
  class Pace : public EncodePace {
   public:
    int checkpoints = 0;

   protected:
    void Checkpoint() override {
      if (++checkpoints == 3) Stop();
    }
  };
  const auto chat = ChatTemplate::Create(
      "{% for a in range(1000) %}{% for b in range(1000) %}.{% endfor %}{% endfor %}", "", "");
  ASSERT_TRUE(chat.ok()) << chat.status();
  Pace pace;
  EXPECT_EQ((*chat)->Render({}, &pace).status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(pace.checkpoints, 3);
  EXPECT_TRUE((*chat)->Render({}).ok());
}

TEST(ChatTemplateTest, SeesTheTokensThatTheModelHas) {
  EXPECT_EQ(
      WithoutAndWithTools({.source = "{{ bos_token }}{{ eos_token }}{{ pad_token }}{{ unk_token }}"
                                     "{{ mask_token is defined }}",
                           .tokens = {{"eos_token", "<|im_end|>"},
                                      {"pad_token", "[PAD]"},
                                      {"unk_token", "<|endoftext|>"}}})[0],
      "<|im_end|>[PAD]<|endoftext|>False");
}

TEST(ChatTemplateTest, ExtraVariablesCannotReplaceTheirElders) {
  const auto chat =
      ChatTemplate::Create("{{ bos_token }}{{ add_generation_prompt }}{{ x }}", "<s>", "");
  ASSERT_TRUE(chat.ok());
  const auto rendered =
      (*chat)->Render({.messages = Value::MakeList({}),
                       .extra = *jinja::ParseJsonValue(R"({"bos_token": "<|evil|>", "x": "y"})")});
  ASSERT_TRUE(rendered.ok()) << rendered.status();
  EXPECT_EQ(rendered->text, "<s>Truey");
  EXPECT_EQ(ContentOf(*rendered), std::vector<std::string>{"y"});
}

TEST(ChatTemplateTest, SaysWhatIsNestedTooDeep) {
  const auto chat = ChatTemplate::Create("{{ messages }}", "", "");
  ASSERT_TRUE(chat.ok()) << chat.status();
  Value deep = Value::MakeList({});
  for (int i = 0; i < 100; ++i) deep = Value::MakeList({deep});
  const auto message_of = [&](const ChatTemplateInput& input) {
    return std::string((*chat)->Render(input).status().message());
  };
  EXPECT_EQ(message_of({.messages = Value::MakeList({}), .tools = deep}),
            "chat template: the tools are nested 101 deep; at most 100 are accepted");
  EXPECT_EQ(message_of({.messages = deep}),
            "chat template: the messages are nested 101 deep; at most 100 are accepted");
}

TEST(ChatTemplateTest, RefusesAnEmptyTemplate) {
  EXPECT_FALSE(ChatTemplate::Create("", "", "").ok());
}

TEST(JinjaTest, RefusesWhatItDoesNotKnowWithLineAndName) {
  for (const auto& [source, line, what] : std::vector<std::array<std::string, 3>>{
           {"a\n{% include 'x' %}", "line 2", "include"},
           {"{% extends 'x' %}", "line 1", "extends"},
           {"\n\n{% call f() %}{% endcall %}", "line 3", "call"},
           {"{{ x | nonesuch }}", "line 1", "nonesuch"},
           {"{{ x is nonesuch }}", "line 1", "nonesuch"},
           {"\n{{ x | map('nonesuch') }}", "line 2", "filter 'nonesuch'"},
           {"{{ x | select('nonesuch') }}", "line 1", "test 'nonesuch'"},
           {"{{ x | reject('upper') | reject('trim') }}", "line 1", "test 'trim'"},
           {"{{ x | selectattr('a',\n'nonesuch') | list }}", "line 2", "test 'nonesuch'"},
           {"{% filter rejectattr('a', 'nonesuch') %}{% endfilter %}", "line 1", "test 'nonesuch'"},
           {"{% for a in b recursive %}{% endfor %}", "line 1", "recursive"},
           {"{{ f(*a) }}", "line 1", "unpacking"},
           {"\n{{ x.swapcase() }}", "line 2", "method 'swapcase'"},
           {"{% if false %}\n{% set x = nonesuch() %}{% endif %}", "line 2", "function 'nonesuch'"},
           {"{{ x.items().nonesuch() }}", "line 1", "method 'nonesuch'"},
           {"{% if x %}", "line 1", "endif"},
           {"{{ x", "line 1", "}}"},
           {"{{ 'x }}", "line 1", "string"},
           {"{# x", "line 1", "comment"},
           {"{% raw %}", "line 1", "raw"},
           {"{% break %}", "line 1", "loop"},
           {"{{ 99999999999999999999 }}", "line 1", "64 bits"},
           {"{{ x ? y }}", "line 1", "?"},
           {"{{ 'a\\N{BULLET}' }}", "line 1", "by its name"},
           {"\n{% macro m() %}{{ varargs }}{% endmacro %}", "line 2", "varargs"},
           {"{% macro m() %}{{ caller() }}{% endmacro %}", "line 1", "caller"},
           {"{% endif %}", "line 1", "endif"},
           {"{{ (1]) }}", "line 1", "]"},
           {"{{ }}", "line 1", "expression"}}) {
    const std::string message = RenderOrError(source);
    EXPECT_TRUE(message.starts_with("parse: ")) << source << ": " << message;
    EXPECT_NE(message.find(line), std::string::npos) << message;
    EXPECT_NE(message.find(what), std::string::npos) << message;
  }
}

// What may be callable, or is asked for first, is left to the rendering.
TEST(JinjaTest, AcceptsCallsOfWhatTheTemplateMakesOrAsksFor) {
  for (const auto& [source, text] : std::vector<std::array<std::string, 2>>{
           {"{% if f is defined %}{{ f() }}{% endif %}a", "a"},
           {"{% set x = {} %}{% if x.f is defined %}{{ x.f() }}{% endif %}b", "b"},
           {"{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}c{% endmacro %}{{ a() }}", "c"},
           {"{% macro a(f) %}{{ f(2) | length }}{% endmacro %}{{ a(range) }}", "2"},
           {"{% set n = namespace(f=range) %}{{ n.f(3) | length }}", "3"},
           {"{% set n = namespace() %}{% set n.f = range %}{{ n.f(4) | length }}", "4"},
           {"{% set d = {'f': range} %}{{ d.f(5) | length }}", "5"},
           {"{{ [{'x': 2}] | selectattr('x', 'even') | map(attribute='x') | list }}", "[2]"},
           {"{{ [{'x': 2}] | rejectattr('x') | list }}", "[]"},
           {"{% set test = 'even' %}{{ [1, 2] | select(test) | list }}", "[2]"},
           {"{% for f in [range] %}{{ f(6) | length }}{{ loop.cycle('d') }}{% endfor %}", "6d"}}) {
    EXPECT_EQ(RenderOrError(source), text) << source;
  }
}

TEST(JinjaTest, EndsHostileTemplatesWithAnError) {
  const auto repeat = [](const std::string& part, int times) {
    std::string out;
    for (int i = 0; i < times; ++i) out += part;
    return out;
  };
  for (const std::string& source : std::vector<std::string>{
           "{{ 'a' * 999999999999 }}",
           "{{ [1] * 999999999999 }}",
           "{{ range(999999999999) }}",
           "{{ range(0, 9223372036854775807, 9223372036854775807) }}{{ range(1, 2, 0) }}",
           ("{% set n = namespace(s='aaaaaaaa') %}{% for i in range(99) %}{% set n.s = n.s + n.s "
            "%}{% endfor %}"),
           ("{% set n = namespace(s='aaaaaaaa') %}{% for i in range(99) %}{% set n.s = "
            "n.s.replace('a', 'aaaaaaaa') %}{% endfor %}"),
           ("{% set n = namespace(v=[]) %}{% for i in range(9999) %}{% set n.v = [n.v] %}{% endfor "
            "%}"),
           ("{% set n = namespace(v=[1]) %}{% for i in range(60) %}{% set n.v = [n.v, n.v] %}{% "
            "endfor %}{{ n.v }}"),
           ("{% set n = namespace(v=[1]) %}{% for i in range(60) %}{% set n.v = [n.v, n.v] %}{% "
            "endfor %}{{ n.v == n.v }}"),
           ("{% set n = namespace(v={}) %}{% for i in range(9999) %}{% set n.v = {'a': n.v.get} "
            "%}{% endfor %}"),
           "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
           "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
           "{% macro f(x) %}{{ f(x + x) }}{% endmacro %}{{ f('a') }}",
           "{{ 9223372036854775807 + 1 }}",
           "{{ -9223372036854775807 - 2 }}",
           "{{ 2 ** 64 }}",
           "{{ 9223372036854775807 * 2 }}",
           "{{ 1 // 0 }}{{ 1 % 0 }}{{ 1 / 0 }}",
           "{{ [1, 'a'] | sort }}",
           "{{ 'abc'[::0] }}",
           "{{ {[]: 1} }}",
           "{{ namespace }}{{ raise_exception('x') }}",
           "{{ loop.index }}",
           "{{ " + repeat("(", 5000) + "1" + repeat(")", 5000) + " }}",
           "{{ " + repeat("-", 5000) + "1 }}",
           "{{ " + repeat("not ", 5000) + "1 }}",
           "{{ 1" + repeat(" + 1", 5000) + " }}",
           "{{ 1" + repeat(" | abs", 5000) + " }}",
           "{{ a" + repeat(".b", 5000) + " }}",
           "{{ " + repeat("[", 5000) + repeat("]", 5000) + " }}",
           repeat("{% if 1 %}", 5000) + repeat("{% endif %}", 5000),
           repeat("{% for i in [1] %}", 5000) + repeat("{% endfor %}", 5000),
           repeat("x", (1 << 20) + 1)}) {
    const std::string message = RenderOrError(source);
    EXPECT_TRUE(message.starts_with("parse: ") || message.starts_with("render: "))
        << source.substr(0, 100) << ": " << message.substr(0, 100);
  }
}

TEST(JinjaTest, NamesTheLimitAndTheValue) {
  for (const auto& [source, message] : std::vector<std::pair<std::string, std::string>>{
           {"{{ 'a' * 99999999 }}", "a string of more bytes than the limit of 67108864: 99999999"},
           {"{{ [1, 2] * 999999 }}", "a list of more items than the limit of 1048576: 1999998"},
           {"{% set n = namespace(v=[]) %}{% for i in range(200) %}{% set n.v = [n.v] %}{% endfor "
            "%}",
            "nests values deeper than the limit of 100: 101"}}) {
    EXPECT_NE(RenderOrError(source).find(message), std::string::npos) << RenderOrError(source);
  }
}

// What reads long strings again and again without making any is charged, too: each of these took
// minutes, or tens of gigabytes.
TEST(JinjaTest, ChargesWhatItReads) {
  for (const std::string source :
       {"{% set f = '%' ~ '0' * 6000000 ~ 'd' %}{% for i in range(99999) %}{{ f % 1 }}{% endfor "
        "%}",
        "{% set s = 'x' * 6000000 %}{% for i in range(99999) %}{{ '%.0s' % s }}{% endfor %}",
        "{{ (['A' * 33554432] * 1000) | groupby(none) | length }}",
        "{{ (['A' * 33554432] * 1000) | unique | length }}"}) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_NE(RenderOrError(source).find("moves more bytes"), std::string::npos)
        << source << ": " << RenderOrError(source).substr(0, 200);
    EXPECT_LT(std::chrono::steady_clock::now() - begin,
              std::chrono::seconds(20) * testing::kSlowBuildFactor)
        << source;
  }
  EXPECT_EQ(RenderOrError("{{ (['nan'|float] | groupby(none)) | length }}"), "1");
}

// The same where the long string is a key, or an argument that nothing is made of.
TEST(JinjaTest, ChargesLongKeysAndArguments) {
  for (const std::string use : {
           "{% set m = {b: 1} %}",
           "{% set m = dict([(b, 1)]) %}",
           "{% set m = dict(one) %}",
           "{% set m = namespace(one) %}",
           "{{ {}[b] }}",
           "{{ {}.get(b) }}",
           "{{ b in {} }}",
           "{{ one == other }}",
           "{{ space[b] }}",
           "{{ [{}] | map(attribute=b) | list | length }}",
           "{{ '' | trim(b) }}",
           "{{ {} | dictsort(false, b) }}",
           "{{ [] | join(b) }}",
           "{{ 1 | tojson(indent=b) }}",
           "{{ 1 | tojson(separators=(b, '')) }}",
           "{{ '' | indent(b) }}",
           "{{ '' | truncate(99999999, end=b) }}",
           "{{ 'a' | replace('zz', b) }}",
       }) {
    const std::string message = RenderOrError(
        "{% set b = 'x' * 30000000 %}{% set space = namespace() %}{% set one = {b: 1} %}"
        "{% set other = {b: 1} %}{% for i in range(20) %}" +
        use + "{% endfor %}");
    EXPECT_NE(message.find("moves more bytes"), std::string::npos)
        << use << ": " << message.substr(0, 200);
  }
}

TEST(JinjaTest, ChargesTheNamesOfAFilterForEachItem) {
  const std::string message = RenderOrError("{{ range(200) | map('format', " +
                                            std::string(900'000, 'a') + "=1) | list | length }}");
  EXPECT_NE(message.find("moves more bytes"), std::string::npos) << message.substr(0, 200);
}

// And names that are looked for one after the other.
TEST(JinjaTest, ChargesWhatItReadsOfManyNames) {
  const auto names = [](int count, const std::string& behind) {
    std::string out;
    for (int i = 0; i < count; ++i) out += (i > 0 ? ", a" : "a") + std::to_string(i) + behind;
    return out;
  };
  for (const std::string& source : std::vector<std::string>{
           "{{ ('{zz}' * 300000).format(" + names(2000, "=''") + ", zz='') }}",
           "{% set t = [range(1000) | list] %}{% for i in range(2000) %}{% for " + names(1000, "") +
               " in t %}{% endfor %}{% endfor %}",
           "{% macro f(" + names(300, "") + ") %}{% endmacro %}{% for i in range(5000) %}{{ f(" +
               names(300, "=1") + ") }}{% endfor %}"}) {
    const std::string message = RenderOrError(source);
    EXPECT_NE(message.find("moves more bytes"), std::string::npos)
        << source.substr(0, 60) << ": " << message.substr(0, 200);
  }
}

// Charged or not, a key takes its memory once, and a map finds it however it is spelled.
TEST(JinjaTest, FindsKeysThatPythonHoldsEqual) {
  EXPECT_EQ(RenderOrError("{% set m = {1: 'a', 'k': 'b', none: 'c', 0.5: 'd'} %}{{ m[true] }}"
                          "{{ m[1.0] }}{{ m['k'] }}{{ m[none] }}{{ m[0.5] }}{{ '1' in m }}"
                          "{{ dict(m, k='e') }}{{ 0.0 in {-0.0: 1} }}"),
            "aabcdFalse{1: 'a', 'k': 'e', None: 'c', 0.5: 'd'}True");
}

// A namespace that holds itself is freed; the leak checker of the sanitizer runs sees to it.
TEST(JinjaTest, FreesCyclesOfNamespaces) {
  EXPECT_EQ(RenderOrError("{% set n = namespace() %}{% set n.n = [n, n] %}{{ n.n|length }}"), "2");
}

TEST(JinjaTest, MatchesJinja2InDetails) {
  EXPECT_EQ(RenderOrError("{{ -0.4|round(0, 'ceil') }} {{ (0 / -1)|round(1, 'floor') }}"),
            "0.0 0.0");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{{ \"it's a-b (c\"|title }}|{{ \"it's\".title() }}", "It's A-B (C|It'S"},
      {"{{ 'a  b c'.split() }}{{ ' a b '.split(' ') }}{{ 'a b  c'.split(none, 1) }}",
       "['a', 'b', 'c']['', 'a', 'b', '']['a', 'b  c']"},
      {"{{ 'a b c'.rsplit(' ', 1) }}{{ 'aXbX'.rsplit('X', 1) }}", "['a b', 'c']['aXb', '']"},
      {"{{ 1e16 }} {{ 1e-5 }} {{ 1.5e300 * 1e10 }} {{ 100.0 }} {{ 0.0001 }}",
       "1e+16 1e-05 inf 100.0 0.0001"},
      {"{{ (1,) }} {{ () }} {{ \"it's\" }} {{ [\"it's\", 'a\"b', '\\n'] }}",
       "(1,) () it's [\"it's\", 'a\"b', '\\n']"},
      {"{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ not 1 == 2 }}", "True False True"},
      {"{{ {'a': 1}.items() | list }} {{ {'b': 2, 'a': 1} | dictsort }}",
       "[('a', 1)] [('a', 1), ('b', 2)]"},
      {"{{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 7 % -3 }} {{ -7 // -2 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }}",
       "64 4 -2 3 3.0 0.5"},
      {"{% for a, b in [(1, 2), (3, 4)] %}{{ a }}{{ b }}{{ loop.cycle('x', 'y') }}{% endfor %}",
       "12x34y"},
      {"{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }}", "3False"},
      {"{% filter upper %}a{{ 'b' }}{% endfilter %}", "AB"},
      {"{% set x | trim %}  a {% endset %}[{{ x }}]", "[a]"},
      {"{% generation %}x{% endgeneration %}", "x"},
      {"{{ 'a\nb\n\nc' | indent(2) }}", "a\n  b\n\n  c"},
      {"{{ [1, 2, 3] | sum }} {{ [3, 1] | min }} {{ [3, 1] | max }} {{ [1, 1, 2] | unique | list "
       "}}",
       "6 1 3 [1, 2]"},
      {"{{ [1, 2, 3, 4] | select('even') | list }} {{ ['a', ''] | select | list }}",
       "[2, 4] ['a']"},
      {"{{ ['a'] | map('upper') | list }} {{ [{'a': {'b': 1}}] | map(attribute='a.b') | list }}",
       "['A'] [1]"},
      {"{{ undefined_name }}|{{ undefined_name | length }}|{% for x in undefined_name %}x{% endfor "
       "%}",
       "|0|"},
      {"{{ none[5:1] }}|{{ 3[1:] }}|{{ {'a': 1}[:2] is defined }}|{{ true[::2] }}", "||False|"},
      {"{{ 'x' if false }}|{{ none }}|{{ true and 'a' or 'b' }}", "|None|a"},
      {"{{ 5 is divisibleby 5 }} {{ 3 is odd }} {{ 'a' is in ['a'] }} {{ 1 is number }}",
       "True True True True"},
      {"{{ 'ÀÉ'|lower }} {{ 'straße'|upper }} {{ 'ﬁ'|upper }} {{ 'ΑΒ'|lower }} {{ 'жук'|capitalize "
       "}}",
       "àé STRASSE FI αβ Жук"},
      {"{{ '%s' | length }} {{ 'abc' | reverse }} {{ 'b' ~ 1.0 }}", "2 cba b1.0"},
      {"{{ '\\u00e9\\x41\\101' }}", "éAA"},
      {"{{ 'é' | tojson(ensure_ascii=true) }} {{ [1, 2] | tojson(separators=(',', ':')) }}",
       "\"\\u00e9\" [1,2]"},
      {"{{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }} {{ {1: none} | tojson }}",
       "{\"a\": 2, \"b\": 1} {\"1\": null}"},
      {"{{ 2.5 | round }} {{ 3.14159 | round(2) }} {{ '7' | float }} {{ 'x' | int(5) }} {{ -3 | "
       "abs }}",
       "2.0 3.14 7.0 5 3"},
      {"  {%- set x = 1 -%}  \n a", "a"},
      {"{% if true %}\n  {% if true %}\n  x\n  {% endif %}\n{% endif %}", "  x\n"},
      {"{{ 'a'.find('b') }} {{ 'hello'.find('l') }} {{ 'hello'.rfind('l') }} {{ 'aaa'.count('a') "
       "}}",
       "-1 2 3 3"},
      {"{% set ns = namespace(a=1) %}{% if true %}{% set ns.a = 2 %}{% endif %}{{ ns.a }}", "2"},
      {"{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}", "2"},
      {"{% set x = 1 %}{% macro f() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ f() }}", "2"},
      {"{{ dict(a=1).a }} {{ {'get': 5}['get'] }} {{ [1,2].index(2) }}", "1 5 1"},
      {"{{ 'a,b;c'.replace(',', ';', 1).splitlines() }}", "['a;b;c']"},
      {"{{ ['b', 'A'] | sort }} {{ ['b', 'A'] | sort(case_sensitive=true, reverse=true) }}",
       "['A', 'b'] ['b', 'A']"},
  };
  for (const auto& [source, expected] : cases) EXPECT_EQ(RenderOrError(source), expected) << source;
}

TEST(JinjaTest, RefusesDeepJson) {
  EXPECT_FALSE(jinja::ParseJsonValue(std::string(200, '[') + std::string(200, ']')).ok());
  EXPECT_FALSE(jinja::ParseJsonValue(std::string(1000000, '[')).ok());
  EXPECT_FALSE(jinja::ParseJsonValue("{").ok());
}

}  // namespace
}  // namespace refrain::engine
