#include "engine/grammar/output_grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/engine/grammar/naive_acceptor.h"

namespace refrain::engine {
namespace {

using ::refrain::testing::Accepts;
using ::testing::HasSubstr;

OutputFormat FormatOf(decltype(OutputFormat::form) form) {
  OutputFormat format;
  format.form = std::move(form);
  format.field = "the_form";
  return format;
}

const OutputFormat& Yes() {
  static const auto* const format = new OutputFormat(FormatOf(OutputFormat::Choice{{"yes", "no"}}));
  return *format;
}

// Whether it is an output of the format.
bool Takes(const OutputFormat& format, const OutputPlace& place, const std::string& text) {
  const absl::StatusOr<Grammar> grammar = MakeOutputGrammar(format, place);
  EXPECT_TRUE(grammar.ok()) << grammar.status();
  return grammar.ok() && Accepts(*grammar, text);
}

const std::string kOpen = std::string(1, kControlMark) + "<think>";
const std::string kClose = std::string(1, kControlMark) + "</think>";

TEST(OutputGrammar, HoldsTheAnswerToItsForm) {
  EXPECT_TRUE(Takes(Yes(), {}, "yes"));
  EXPECT_FALSE(Takes(Yes(), {}, "yesno"));
  EXPECT_FALSE(Takes(Yes(), {}, ""));
  EXPECT_FALSE(Takes(Yes(), {}, "<think></think>yes"));
  const OutputFormat object = FormatOf(OutputFormat::JsonObject{});
  EXPECT_TRUE(Takes(object, {}, R"({"a": [1, {"b": null}]})"));
  EXPECT_FALSE(Takes(object, {}, "[1]"));
  const OutputFormat schema =
      FormatOf(OutputFormat::JsonSchema{R"({"type": "array", "items": {"type": "boolean"}})"});
  EXPECT_TRUE(Takes(schema, {}, "[true,false]"));
  EXPECT_FALSE(Takes(schema, {}, "[1]"));
  EXPECT_TRUE(Takes(FormatOf(OutputFormat::Regex{"a+b"}), {}, "aab"));
  EXPECT_FALSE(Takes(FormatOf(OutputFormat::Regex{"a+b"}), {}, "xaab"));
  const OutputFormat ebnf = FormatOf(OutputFormat::Ebnf{"root ::= \"(\" root \")\" | [ab]"});
  EXPECT_TRUE(Takes(ebnf, {}, "((a))"));
  EXPECT_FALSE(Takes(ebnf, {}, "((a)"));
}

// The prompt has opened a thought: whatever is thought, the answer stands behind it.
TEST(OutputGrammar, LetsAnOpenedThoughtComeToItsEnd) {
  const OutputPlace inside{.reasoning = ReasoningStart::kInside};
  EXPECT_TRUE(Takes(Yes(), inside, "hm, {\"no\"}</think>\n\nyes"));
  EXPECT_TRUE(Takes(Yes(), inside, "</think>no"));
  EXPECT_TRUE(Takes(Yes(), inside, "<</</thi</think>no"));
  EXPECT_TRUE(Takes(Yes(), inside, "hm" + kClose + "no"));
  EXPECT_FALSE(Takes(Yes(), inside, "yes"));
  EXPECT_TRUE(Takes(FormatOf(OutputFormat::Ebnf{"root ::= [ab]*"}), inside, "hm</think>\nab"));
  EXPECT_FALSE(Takes(Yes(), inside, "hm</think>maybe"));
  EXPECT_FALSE(Takes(Yes(), inside, "hm</think>" + std::string(9, '\n') + "yes"));
  // A space is the answer's, which has none.
  EXPECT_FALSE(Takes(Yes(), inside, "hm</think>\n yes"));
  // Control tokens but for the closing tag are none of a thought.
  EXPECT_FALSE(Takes(Yes(), inside, kOpen + "hm</think>yes"));
  // The prompt ends with the tag's beginning.
  const OutputPlace amid{.reasoning = {ReasoningStart::kAmid, 3}};
  EXPECT_TRUE(Takes(Yes(), amid, "hink>yes"));
  EXPECT_FALSE(Takes(Yes(), amid, "think>yes"));
  EXPECT_TRUE(Takes(Yes(), amid, "think></think>yes"));
}

TEST(OutputGrammar, LetsAModelThinkThatOpensItsThoughts) {
  const OutputPlace before{.reasoning = ReasoningStart::kBefore};
  EXPECT_TRUE(Takes(Yes(), before, "yes"));
  EXPECT_TRUE(Takes(Yes(), before, "<think>\nhm</think>\n\nyes"));
  EXPECT_TRUE(Takes(Yes(), before, kOpen + "hm" + kClose + "\nyes"));
  EXPECT_FALSE(Takes(Yes(), before, "<think>yes"));
  EXPECT_FALSE(Takes(Yes(), before, "<thi"));
}

TEST(OutputGrammar, CallsToolsInTheModelsWay) {
  using Tool = OutputFormat::ToolCalls::Tool;
  const std::vector<Tool> tools = {
      Tool{"now", ""},
      Tool{"add", R"({"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]})"}};
  const OutputPlace hermes{.tools = ToolFormat::kHermes}, llama{.tools = ToolFormat::kLlama3};
  const std::string now = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  const std::string add =
      "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"n\": 4}}\n</tool_call>";
  const OutputFormat several = FormatOf(OutputFormat::ToolCalls{tools, true});
  const OutputFormat one = FormatOf(OutputFormat::ToolCalls{tools, false});
  EXPECT_TRUE(Takes(one, hermes, now));
  EXPECT_TRUE(Takes(one, hermes, add));
  EXPECT_FALSE(Takes(one, hermes, now + "\n" + add));
  EXPECT_TRUE(Takes(several, hermes, now + "\n" + add + "\n" + now));
  EXPECT_FALSE(Takes(several, hermes, now + "\n"));
  EXPECT_FALSE(
      Takes(several, hermes, "<tool_call>\n{\"name\": \"add\", \"arguments\": {}}\n</tool_call>"));
  EXPECT_FALSE(
      Takes(several, hermes, "<tool_call>\n{\"name\": \"sub\", \"arguments\": {}}\n</tool_call>"));
  EXPECT_FALSE(Takes(several, hermes, ""));
  const std::string mark(1, kControlMark);
  EXPECT_TRUE(Takes(
      one, hermes,
      mark + "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n" + mark + "</tool_call>"));
  EXPECT_TRUE(Takes(several, llama, R"({"name": "add", "parameters": {"n": -2}})"));
  EXPECT_FALSE(Takes(several, llama, R"({"name": "add", "parameters": {"n": "2"}})"));
  // A name is a JSON string.
  const OutputFormat quoted = FormatOf(OutputFormat::ToolCalls{{Tool{"a\"b", ""}}, false});
  EXPECT_TRUE(Takes(quoted, llama, R"({"name": "a\"b", "parameters": {}})"));
}

// An answer of the form, or calls before there is one.
TEST(OutputGrammar, MayLeaveCallsPossible) {
  using Tool = OutputFormat::ToolCalls::Tool;
  OutputFormat format = Yes();
  format.or_calls = OutputFormat::ToolCalls{{Tool{"now", ""}}, true};
  const OutputPlace hermes{.tools = ToolFormat::kHermes};
  const std::string call = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  EXPECT_TRUE(Takes(format, hermes, "no"));
  EXPECT_TRUE(Takes(format, hermes, call));
  EXPECT_TRUE(Takes(format, hermes, call + "\n" + call));
  EXPECT_FALSE(Takes(format, hermes, "no" + call));
  EXPECT_FALSE(Takes(Yes(), hermes, call));
}

TEST(OutputGrammar, NamesWhatItRefuses) {
  const auto refusal = [](decltype(OutputFormat::form) form, const OutputPlace& place) {
    const absl::StatusOr<Grammar> grammar = MakeOutputGrammar(FormatOf(std::move(form)), place);
    EXPECT_EQ(grammar.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(grammar.status().message());
  };
  EXPECT_THAT(refusal(OutputFormat::JsonSchema{"{"}, {}), HasSubstr("the_form: "));
  EXPECT_THAT(refusal(OutputFormat::Regex{"(?<=a)b"}, {}), HasSubstr("the_form: "));
  EXPECT_THAT(refusal(OutputFormat::Ebnf{"root ::= [ab"}, {}),
              HasSubstr("the_form: line 1, column 10: "));
  EXPECT_THAT(refusal(OutputFormat::Ebnf{"root ::= x\nx ::= y\ny ::= x | \"a\""}, {}),
              HasSubstr("the_form: grammar recurses without end: the rule 'x' of line 2"));
  using Tool = OutputFormat::ToolCalls::Tool;
  EXPECT_THAT(refusal(OutputFormat::ToolCalls{{Tool{"f", ""}}, true}, {}),
              HasSubstr("the_form: calls cannot be asked for"));
  EXPECT_THAT(refusal(OutputFormat::ToolCalls{{Tool{"f", R"({"type": "objekt"})"}}, true},
                      {.tools = ToolFormat::kHermes}),
              HasSubstr("the_form: the parameters of f: "));
}

}  // namespace
}  // namespace refrain::engine
