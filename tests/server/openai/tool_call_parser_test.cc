#include "server/openai/tool_call_parser.h"

#include <gtest/gtest.h>

#include <iterator>
#include <ostream>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "server/concat.h"

namespace refrain::server::openai {
namespace {

using engine::ToolFormat;

struct Parsed {
  std::string text;
  std::vector<ToolCall> calls;
  std::string order;  // all of it as it was told, see Tell; compared where a test says so
  friend bool operator==(const Parsed& a, const Parsed& b) {
    return a.text == b.text && a.calls == b.calls;
  }
};

void PrintTo(const Parsed& parsed, std::ostream* out) {
  *out << "text [" << parsed.text << "]";
  for (const ToolCall& call : parsed.calls) *out << ", " << call.name << " " << call.arguments;
}

// A line for each stretch of text and of arguments, and for each name.
void Tell(char kind, std::string_view text, std::string* order) {
  if (text.empty() && kind != 'n') return;
  const size_t line = order->rfind('\0') + 1;  // there is none in a model's output
  if (kind == 'n' || line == order->size() || order->at(line) != kind) {
    if (!order->empty()) order->push_back('\0');
    order->push_back(kind);
  }
  order->append(text);
}

void Take(const ToolCallParser::Output& output, Parsed* parsed) {
  parsed->text += output.text;
  ASSERT_EQ(output.calls_at.size(), output.calls.size());
  size_t begin = 0;
  for (size_t i = 0; i < output.calls.size(); ++i) {
    const ToolCallDelta& delta = output.calls[i];
    const size_t at = output.calls_at[i];
    Tell('t', std::string_view(output.text).substr(begin, at - begin), &parsed->order);
    if (delta.name.has_value()) Tell('n', *delta.name, &parsed->order);
    Tell('a', delta.arguments, &parsed->order);
    begin = at;
    if (delta.name.has_value()) {
      EXPECT_EQ(delta.index, parsed->calls.size());
    } else {
      EXPECT_EQ(delta.index + 1, parsed->calls.size());
    }
    AppendToCalls(delta, &parsed->calls);
  }
  Tell('t', std::string_view(output.text).substr(begin), &parsed->order);
}

Parsed ParseInPieces(ToolFormat format, const std::vector<std::string>& pieces,
                     ToolCallParser::Options options = {}) {
  ToolCallParser parser(format, options);
  Parsed parsed;
  for (const std::string& piece : pieces) Take(parser.Add(piece), &parsed);
  Take(parser.Finish(), &parsed);
  return parsed;
}

struct Case {
  const char* name;
  ToolFormat format;
  const char* output;  // of the model
  Parsed want;
};

const ToolCall kWeather = {"weather", R"({"city":"Paris","days":[1,2]})"};
const ToolCall kSpacedWeather = {"weather", R"({"city": "Paris", "days": [1, 2]})"};
const ToolCall kTime = {"time", "{}"};

const Case kCases[] = {
    {"PlainText",
     ToolFormat::kHermes,
     "It is <b>warm</b> & {nice} <tool",
     {"It is <b>warm</b> & {nice} <tool", {}}},
    {"OneCall",
     ToolFormat::kHermes,
     "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\", \"days\": "
     "[1, 2]}}\n</tool_call>",
     {"", {kSpacedWeather}}},
    {"TextAndTwoCalls",
     ToolFormat::kHermes,
     "Let me see.\n\n<tool_call>\n{\"name\":\"weather\",\"arguments\":{\"city\":\"Paris\","
     "\"days\":[1,2]}}\n</tool_call>\n<tool_call>\n{\"name\":\"time\"}\n</tool_call>\n",
     {"Let me see.", {kWeather, kTime}}},
    {"TextBehindACall",
     ToolFormat::kHermes,
     "<tool_call>{\"name\":\"time\",\"arguments\":{}}</tool_call> done",
     {" done", {kTime}}},
    {"BracesAndTagsInStrings",
     ToolFormat::kHermes,
     R"(<tool_call>{"name":"f","arguments":{"a":"}</tool_call>{\"\\"}}</tool_call>)",
     {"", {{"f", R"({"a":"}</tool_call>{\"\\"})"}}}},
    {"MissingCloseTag", ToolFormat::kHermes, "<tool_call>\n{\"name\":\"time\"}", {"", {kTime}}},
    {"BrokenOff",
     ToolFormat::kHermes,
     "<tool_call>\n{\"name\":\"time\", \"argu",
     {"<tool_call>\n{\"name\":\"time\", \"argu", {}}},
    {"NoObject",
     ToolFormat::kHermes,
     "<tool_call> time()</tool_call>",
     {"<tool_call> time()</tool_call>", {}}},
    {"SpaceBeforeNoObject", ToolFormat::kHermes, "Hi \n<tool_call> x", {"Hi \n<tool_call> x", {}}},
    {"SpaceBeforeNoCall",
     ToolFormat::kHermes,
     "Hi\n\n<tool_call>{\"nom\":1}</tool_call>",
     {"Hi\n\n<tool_call>{\"nom\":1}</tool_call>", {}}},
    {"SpaceBeforeABrokenCall",
     ToolFormat::kHermes,
     "Hi <tool_call>\n{\"nom\":",
     {"Hi <tool_call>\n{\"nom\":", {}}},
    {"NoName",
     ToolFormat::kHermes,
     "<tool_call>{\"nom\":\"time\"}</tool_call>",
     {"<tool_call>{\"nom\":\"time\"}</tool_call>", {}}},
    {"BadJson",
     ToolFormat::kHermes,
     "<tool_call>{name: time}</tool_call>x",
     {"<tool_call>{name: time}</tool_call>x", {}}},
    {"NoLastBrace",
     ToolFormat::kHermes,
     "<tool_call>{\"name\":\"time\",\"arguments\":{}\n</tool_call>\n"
     "<tool_call>{\"name\":\"weather\",\"arguments\":{\"city\":\"Paris\",\"days\":[1,2]}}"
     "</tool_call>",
     {"", {kTime, kWeather}}},
    {"NoCallBeforeACall",
     ToolFormat::kHermes,
     "<tool_call>{\"nom\":1</tool_call>\n<tool_call>{\"name\":\"time\",\"arguments\":{}}"
     "</tool_call>",
     {"<tool_call>{\"nom\":1</tool_call>", {kTime}}},
    {"AnotherTagOutsideOfStrings",
     ToolFormat::kHermes,
     "<tool_call>{\"name\":\"f\", </tool}</tool_call>",
     {"<tool_call>{\"name\":\"f\", </tool}</tool_call>", {}}},
    {"ArgumentsThatAreNoObject",
     ToolFormat::kHermes,
     "<tool_call>{\"name\":\"f\",\"arguments\":5}</tool_call>",
     {"<tool_call>{\"name\":\"f\",\"arguments\":5}</tool_call>", {}}},
    {"ArgumentsInAString",
     ToolFormat::kHermes,
     R"(<tool_call>{"name":"f","arguments":"{\"city\": \"P\\u0041\"}"}</tool_call>)"
     R"(<tool_call>{"arguments":"{}","name":"time"</tool_call>)",
     {"", {{"f", R"({"city": "P\u0041"})"}, kTime}}},
    {"ArgumentsInAStringThatAreNoObject",
     ToolFormat::kHermes,
     R"(<tool_call>{"name":"f","arguments":"[{}]"}</tool_call>)",
     {R"(<tool_call>{"name":"f","arguments":"[{}]"}</tool_call>)", {}}},
    {"ArgumentsInAStringThatAreNoJson",
     ToolFormat::kHermes,
     R"(<tool_call>{"name":"f","arguments":"{city}"}</tool_call>)",
     {R"(<tool_call>{"name":"f","arguments":"{city}"}</tool_call>)", {}}},
    {"ArgumentsBeforeTheName",
     ToolFormat::kHermes,
     "<tool_call>{\"arguments\": {\"a\": {}}, \"name\": \"f\"}</tool_call>",
     {"", {{"f", R"({"a": {}})"}}}},
    {"MembersAroundTheCall",
     ToolFormat::kHermes,
     R"(<tool_call>{"id":[{"name":"no"},{}],"x":{"name":"no"},"name":"f\u0041","n":-1e3,)"
     R"("arguments":{"name":"b"},"z":[{"arguments":{}}]}</tool_call>)",
     {"", {{"fA", R"({"name":"b"})"}}}},
    {"NullArguments",
     ToolFormat::kHermes,
     "<tool_call>{\"name\":\"time\",\"arguments\":null}</tool_call>",
     {"", {kTime}}},
    {"NameThatIsNoString",
     ToolFormat::kHermes,
     R"(<tool_call>{"name":5,"arguments":{}}</tool_call>)",
     {R"(<tool_call>{"name":5,"arguments":{}}</tool_call>)", {}}},
    {"EmptyName",
     ToolFormat::kHermes,
     R"(<tool_call>{"name":"","arguments":{}}</tool_call>)",
     {R"(<tool_call>{"name":"","arguments":{}}</tool_call>)", {}}},
    {"NoCommaBehindTheName",
     ToolFormat::kHermes,
     R"(<tool_call>{"name":"f" "arguments":{}}</tool_call>)",
     {R"(<tool_call>{"name":"f" "arguments":{}}</tool_call>)", {}}},
    {"AKeyTwice",
     ToolFormat::kHermes,
     R"(<tool_call>{"name":"f","arguments":{"a":1,"a":2}}</tool_call>)",
     {"", {{"f", R"({"a":1,"a":2})"}}}},
    {"NumbersBeyondADouble",
     ToolFormat::kHermes,
     R"(<tool_call>{"name":"f","arguments":{"a":1e999,"b":-Infinity}}</tool_call>)",
     {"", {{"f", R"({"a":1e999,"b":-Infinity})"}}}},
    {"TwoNames",
     ToolFormat::kHermes,
     R"(<tool_call>{"name":"f","arguments":{},"name":"g"}</tool_call>)",
     {"", {{"f", "{}"}}}},
    {"ArgumentsAgainThatAreNoObject",
     ToolFormat::kHermes,
     R"(<tool_call>{"name":"f","arguments":{"a":1},"arguments":"x","name":5}</tool_call>)",
     {"", {{"f", R"({"a":1})"}}}},
    // As where a call is forced.
    {"ForcedCalls",
     ToolFormat::kHermes,
     "<tool_call>\n{\"name\": \"f\\\"\", \"arguments\": {\"a\": \"</tool_call>\"}}\n</tool_call>\n"
     "<tool_call>\n{\"name\": \"time\", \"arguments\": {}}\n</tool_call>",
     {"", {{"f\"", R"({"a": "</tool_call>"})"}, kTime}}},
    {"LlamaForcedCalls",
     ToolFormat::kLlama3,
     "{\"name\": \"weather\", \"parameters\": {\"city\": \"Paris\", \"days\": [1, 2]}}; "
     "{\"name\": \"time\", \"parameters\": {}}",
     {"", {kSpacedWeather, kTime}}},
    {"LlamaAKeyTwice",
     ToolFormat::kLlama3,
     R"({"name":"f","parameters":{"a":1,"a":2}})",
     {"", {{"f", R"({"a":1,"a":2})"}}}},
    {"LlamaText",
     ToolFormat::kLlama3,
     "  Hello {\"name\":\"f\"}",
     {"  Hello {\"name\":\"f\"}", {}}},
    {"LlamaCall",
     ToolFormat::kLlama3,
     R"({"name": "weather", "parameters": {"city": "Paris", "days": [1, 2]}})",
     {"", {kSpacedWeather}}},
    {"LlamaTaggedCall",
     ToolFormat::kLlama3,
     "<|python_tag|>{\"name\": \"time\", \"parameters\": {}}",
     {"", {kTime}}},
    {"LlamaTwoCalls",
     ToolFormat::kLlama3,
     "{\"name\":\"time\",\"parameters\":{}}; {\"name\":\"weather\",\"parameters\":{\"city\":"
     "\"Paris\",\"days\":[1,2]}}\n",
     {"", {kTime, kWeather}}},
    {"LlamaJsonThatIsNoCall",
     ToolFormat::kLlama3,
     R"({"answer": {"a": 1}} and more)",
     {R"({"answer": {"a": 1}} and more)", {}}},
    {"LlamaAnswerWithAName",
     ToolFormat::kLlama3,
     R"({"name": "Alice", "age": 30})",
     {R"({"name": "Alice", "age": 30})", {}}},
    {"LlamaNullParameters",
     ToolFormat::kLlama3,
     R"({"name": "time", "parameters": null})",
     {"", {kTime}}},
    {"LlamaParametersInAString",
     ToolFormat::kLlama3,
     R"({"name": "f", "parameters": "{\"a\":1}"})",
     {"", {{"f", R"({"a":1})"}}}},
    {"LlamaBrokenOff", ToolFormat::kLlama3, "{\"name\": \"ti", {"{\"name\": \"ti", {}}},
    {"LlamaBuiltInTool",
     ToolFormat::kLlama3,
     "<|python_tag|>print(1)",
     {"<|python_tag|>print(1)", {}}},
    {"Empty", ToolFormat::kLlama3, "", {"", {}}},
};

class ToolCallParserTest : public ::testing::TestWithParam<Case> {};

TEST_P(ToolCallParserTest, ReadsTheWhole) {
  const Parsed parsed = ParseInPieces(GetParam().format, {GetParam().output});
  EXPECT_EQ(parsed.text, GetParam().want.text);
  EXPECT_EQ(parsed.calls, GetParam().want.calls);
}

std::vector<std::string> Bytes(const std::string& text) {
  std::vector<std::string> bytes;
  for (const char c : text) bytes.push_back(std::string(1, c));
  return bytes;
}

std::vector<std::string> RandomPieces(const std::string& text, std::mt19937* random) {
  std::vector<std::string> pieces;
  for (size_t at = 0; at < text.size(); at += pieces.back().size()) {
    pieces.push_back(text.substr(at, 1 + (*random)() % 9));
  }
  return pieces;
}

// However the output is cut into tokens, streamed or not, the result is the same.
TEST_P(ToolCallParserTest, DoesNotDependOnTheCuts) {
  const std::string output = GetParam().output;
  const std::vector<std::string> bytes = Bytes(output);
  std::mt19937 random(3);
  for (const bool streams : {false, true}) {
    const auto parse = [&](const std::vector<std::string>& pieces) {
      return ParseInPieces(GetParam().format, pieces, {.streams = streams});
    };
    EXPECT_EQ(parse(bytes), GetParam().want);
    for (size_t cut = 0; cut <= output.size(); ++cut) {
      EXPECT_EQ(parse({output.substr(0, cut), output.substr(cut)}), GetParam().want) << cut;
    }
    for (int round = 0; round < 200; ++round) {
      EXPECT_EQ(parse(RandomPieces(output, &random)), GetParam().want);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, ToolCallParserTest, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

constexpr std::string_view kBegunCall = R"({"name":"f","parameters":{"a": "x)";

std::string_view TagOf(ToolFormat format) {
  return format == ToolFormat::kHermes ? "<tool_call>" : "";
}

struct BrokenCase {
  std::string end;   // behind kBegunCall
  std::string text;  // that is told
};

// Once its arguments are closed a call ends where it breaks, behind its last whole member, and the
// rest is text; wherever a piece ends that holds these places.
TEST(ToolCallParser, TextBehindAStreamedCallThatBreaksIsTextHoweverItIsCut) {
  const BrokenCase cases[] = {
      {"\"})", ")"},
      {"\"}]", "]"},
      {R"("}]})", "]}"},
      {R"("}:)", ":"},
      {"\"}\n\nThe answer is 42.", "\n\nThe answer is 42."},
      {R"("}, "answer" is 42)", R"(, "answer" is 42)"},
      {R"("}, "id": 5 "z")", R"(, "id": 5 "z")"},
      {R"("}, "id": 5 , Text)", ", Text"},
      {R"("}, "id": [1]])", "]"},
      {R"("}, "b\q": 1})", R"(, "b\q": 1})"},
      {R"("} <tool_call>)", " <tool_call>"},
      // Not broken: what stands where JSON has a member, and what may become one.
      {R"("}, "name": "g", "parameters": null, "arguments": [{}], "name": 5})", ""},
      {R"("},)", ""},
      {R"("}, "id": [1)", ""},
      {"\"}\n", ""},
  };
  for (const ToolFormat format : {ToolFormat::kHermes, ToolFormat::kLlama3}) {
    for (const BrokenCase& broken : cases) {
      const std::string output = Concat(TagOf(format), kBegunCall, broken.end);
      SCOPED_TRACE(output);
      const Parsed want = {broken.text, {{"f", R"({"a": "x"})"}}};
      const auto parse = [&](const std::vector<std::string>& pieces) {
        return ParseInPieces(format, pieces, {.streams = true});
      };
      EXPECT_EQ(parse(Bytes(output)), want);
      for (size_t cut = 0; cut <= output.size(); ++cut) {
        for (size_t next = cut; next <= output.size(); ++next) {
          EXPECT_EQ(
              parse({output.substr(0, cut), output.substr(cut, next - cut), output.substr(next)}),
              want)
              << cut << " " << next;
        }
      }
    }
  }
}

// The text behind a call that breaks is looked through as that behind any other.
TEST(ToolCallParser, StreamsTheCallBehindOneThatBreaks) {
  const std::string call = R"({"name":"time","parameters":{}})";
  const Parsed want = {"", {{"f", R"({"a": "x"})"}, kTime}};
  for (const std::string between : {"", "\n", ";", " ; "}) {
    const std::string llama = Concat(kBegunCall, "\"}", between, call);
    EXPECT_EQ(ParseInPieces(ToolFormat::kLlama3, {llama}, {.streams = true}), want) << llama;
  }
  const std::string hermes = Concat("<tool_call>", kBegunCall, "\"}\n<tool_call>", call);
  EXPECT_EQ(ParseInPieces(ToolFormat::kHermes, {hermes}, {.streams = true}), want);
}

// It is told at once: a client would wait for its end otherwise.
TEST(ToolCallParser, StreamsTheTextBehindACallThatBreaks) {
  ToolCallParser parser(ToolFormat::kLlama3, {.streams = true});
  parser.Add(std::string(kBegunCall));
  EXPECT_EQ(parser.Add("\"}\n\n").text, "");
  EXPECT_EQ(parser.Add("The").text, "\n\nThe");
  EXPECT_EQ(parser.Add(" answer").text, " answer");
}

// A call in `format`, in which some places were changed, and text behind it.
std::string RandomCall(ToolFormat format, std::mt19937* random) {
  static constexpr std::string_view kParts[] = {"{",
                                                "}",
                                                "[",
                                                "]",
                                                "\"",
                                                "\\",
                                                ",",
                                                ":",
                                                ";",
                                                ")",
                                                "<",
                                                " ",
                                                "\n\n",
                                                "Text",
                                                "null",
                                                "1",
                                                R"("name":"g")",
                                                R"("parameters":{})",
                                                R"("id":"x",)",
                                                R"({"name":"g","parameters":{}})",
                                                "<tool_call>",
                                                "</tool_call>",
                                                "<|python_tag|>"};
  const auto below = [random](size_t limit) { return (*random)() % limit; };
  const auto part = [&] { return kParts[below(std::size(kParts))]; };
  std::string text = Concat(TagOf(format), kBegunCall, R"("}})");
  if (below(4) == 0) text = Concat(TagOf(format), R"({"arguments":{"a":[1]}, "name":"f"})");
  for (size_t changes = below(3); changes > 0; --changes) {
    text.replace(below(text.size()), below(3), part());
  }
  // The last braces, which models forget.
  text.resize(text.size() - below(4));
  for (size_t parts = below(8); parts > 0; --parts) text += part();
  return text;
}

TEST(ToolCallParser, RandomCallsDoNotDependOnTheCuts) {
  std::mt19937 random(5);
  for (const ToolFormat format : {ToolFormat::kHermes, ToolFormat::kLlama3}) {
    int calls = 0;
    for (int round = 0; round < 4000; ++round) {
      const std::string output = RandomCall(format, &random);
      SCOPED_TRACE(output);
      for (const bool streams : {false, true}) {
        const auto parse = [&](const std::vector<std::string>& pieces) {
          return ParseInPieces(format, pieces, {.streams = streams});
        };
        const Parsed want = parse(Bytes(output));
        calls += want.calls.empty() ? 0 : 1;
        const auto check = [&](const std::vector<std::string>& pieces) {
          const Parsed parsed = parse(pieces);
          ASSERT_EQ(parsed, want) << streams;
          ASSERT_EQ(parsed.order, want.order) << streams;
        };
        check({output});
        for (int i = 0; i < 8; ++i) check(RandomPieces(output, &random));
        if (HasFatalFailure()) return;
      }
    }
    EXPECT_GT(calls, 2000);  // of 8,000
  }
}

TEST(ToolCallParser, TellsACallWithItsLastBrace) {
  ToolCallParser parser(ToolFormat::kLlama3, {});
  EXPECT_TRUE(parser.Add(R"({"name":"time","parameters":{})").calls.empty());
  const std::vector<ToolCallDelta> whole = {{0, "time", ""}, {0, std::nullopt, "{}"}};
  EXPECT_EQ(parser.Add("}").calls, whole);
}

TEST(ToolCallParser, StreamsTheNameThenTheArguments) {
  for (const ToolFormat format : {ToolFormat::kHermes, ToolFormat::kLlama3}) {
    ToolCallParser parser(format, {.streams = true});
    const std::string open = format == ToolFormat::kHermes ? "<tool_call>" : "";
    EXPECT_TRUE(parser.Add(open + R"({"name": "f", "param)").calls.empty());
    const std::vector<ToolCallDelta> begin = {{0, "f", ""}, {0, std::nullopt, "{"}};
    EXPECT_EQ(parser.Add(R"(eters": {)").calls, begin);
    const std::vector<ToolCallDelta> next = {{0, std::nullopt, R"("a": "}\")"}};
    EXPECT_EQ(parser.Add(R"("a": "}\")").calls, next);
    const std::vector<ToolCallDelta> last = {{0, std::nullopt, R"("})"}};
    EXPECT_EQ(parser.Add(R"("} )").calls, last);
    EXPECT_TRUE(parser.Add("}").calls.empty());
    EXPECT_EQ(parser.Finish().text, "");
  }
}

// A client that knows of the call cannot be told that it was none.
TEST(ToolCallParser, KeepsAStreamedCallThatBreaksOff) {
  for (const std::string broken :
       {R"({"name":"f","arguments":{"a":}})",  // no JSON
        R"({"name":"f","arguments":{"a":1)", R"({"name":"f","arguments":{}})"}) {
    const std::string output = "<tool_call>" + broken;
    const Parsed parsed = ParseInPieces(ToolFormat::kHermes, {output}, {.streams = true});
    EXPECT_EQ(parsed.text, "");
    ASSERT_EQ(parsed.calls.size(), 1u);
    EXPECT_EQ(output.find(parsed.calls[0].arguments), output.find("{", 15));
  }
}

TEST(ToolCallParser, StreamsTheCallBehindOneThatLacksItsBraces) {
  const std::string calls = R"(<tool_call>{"name":"f","arguments":{"a":[1]</tool_call>)"
                            R"(<tool_call>{"name":"time","arguments":{}}</tool_call>)";
  EXPECT_EQ(ParseInPieces(ToolFormat::kHermes, {calls}, {.streams = true}),
            (Parsed{"", {{"f", R"({"a":[1])"}, kTime}}));
}

TEST(ToolCallParser, HoldsBackNoMoreTextThanMayBelongToACall) {
  ToolCallParser parser(ToolFormat::kHermes, {});
  EXPECT_EQ(parser.Add("a <b ").text, "a <b");
  EXPECT_EQ(parser.Add("c <tool_").text, " c");
  EXPECT_EQ(parser.Add("box>").text, " <tool_box>");
}

// Held space is looked through with each piece: a model that writes nothing else would make the
// server look through all of it each time, and the client would see none.
TEST(ToolCallParser, HoldsBackOneKibibyteOfSpace) {
  const std::string space(5000, ' ');
  const std::string call = R"({"name":"time","parameters":{}})";
  const std::string tagged = "<tool_call>" + call + "</tool_call>";
  const auto check = [](ToolFormat format, const std::string& text, const Parsed& expected) {
    SCOPED_TRACE(text.find('{'));
    EXPECT_EQ(ParseInPieces(format, {text}, {}), expected);
    std::vector<std::string> pieces;
    for (size_t i = 0; i < text.size(); i += 7) pieces.push_back(text.substr(i, 7));
    EXPECT_EQ(ParseInPieces(format, pieces, {}), expected);
  };
  const std::string most = space.substr(1024);
  check(ToolFormat::kHermes, "a" + space + tagged, {"a" + most, {kTime}});
  check(ToolFormat::kHermes, "<tool_call>" + space + call, {"<tool_call>" + space + call, {}});
  check(ToolFormat::kHermes, tagged + space + "b", {space + "b", {kTime}});
  check(ToolFormat::kHermes, "<tool_call>" + call + space + "</tool_call>",
        {space + "</tool_call>", {kTime}});
  check(ToolFormat::kLlama3, space + call, {space + call, {}});
  check(ToolFormat::kLlama3, "<|python_tag|>" + space + call,
        {"<|python_tag|>" + space + call, {}});
  check(ToolFormat::kLlama3, call + space, {space, {kTime}});

  ToolCallParser parser(ToolFormat::kHermes, {});
  EXPECT_EQ(parser.Add(space).text, most);
  EXPECT_EQ(parser.Add(space).text, space);
}

TEST(ToolCallParser, DropsCallsBeyondTheLimit) {
  const std::string one = "<tool_call>{\"name\":\"time\"}</tool_call>";
  EXPECT_EQ(ParseInPieces(ToolFormat::kHermes, {one + one}, {.max_calls = 1}),
            (Parsed{"", {kTime}}));
  const std::string llama = R"({"name":"time","parameters":{}})";
  EXPECT_EQ(ParseInPieces(ToolFormat::kLlama3, {llama + ";" + llama}, {.max_calls = 1}),
            (Parsed{"", {kTime}}));
  const std::string streamed = R"(<tool_call>{"name":"time","arguments":{}}</tool_call>)";
  EXPECT_EQ(
      ParseInPieces(ToolFormat::kHermes, {streamed + streamed}, {.max_calls = 1, .streams = true}),
      (Parsed{"", {kTime}}));
}

TEST(ToolFormat, IsRecognisedByTheTemplate) {
  EXPECT_EQ(engine::DetectToolFormat("{{ messages }}"), ToolFormat::kNone);
  EXPECT_EQ(engine::DetectToolFormat("{% if tools %}<tool_call>"), ToolFormat::kHermes);
  EXPECT_EQ(engine::DetectToolFormat("{% if tools %}<|python_tag|>"), ToolFormat::kLlama3);
  EXPECT_EQ(engine::DetectToolFormat("{{ tools }} dictionary of argument name and its value"),
            ToolFormat::kLlama3);
  EXPECT_EQ(engine::DetectToolFormat("{{ tools }}[TOOL_CALLS]"), ToolFormat::kUnknown);
  EXPECT_EQ(engine::DetectToolFormat(
                "{{ tools }}<tool_call>\n<function={{ c.name }}>\n<parameter=a>\n1\n</parameter>"),
            ToolFormat::kUnknown);
  EXPECT_EQ(engine::DetectToolFormat("{{ tools }}<tool_call>{{ c.name }}\n<arg_key>a</arg_key>"),
            ToolFormat::kUnknown);
}

}  // namespace
}  // namespace refrain::server::openai
