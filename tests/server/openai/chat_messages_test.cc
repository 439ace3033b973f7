// What a chat's `messages` and `tools` become for the template, and how the answer is read.

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>

#include "server/json.h"
#include "server/openai/protocol.h"
#include "server/status_mapping.h"

namespace refrain::server::openai {
namespace {

ModelLimits Limits() {
  return {.served_name = "m", .max_context_tokens = 4096, .tools = engine::ToolFormat::kHermes};
}

absl::StatusOr<GenerationCall> Chat(const std::string& members) {
  return ParseGenerationCall(Endpoint::kChatCompletions,
                             R"({"messages":[{"role":"user","content":"hi"}])" + members + "}",
                             Limits());
}

const engine::jinja::Map& Message(const GenerationCall& call, size_t index) {
  const auto& chat = std::get<engine::ChatPrompt>(call.first().prompt);
  return chat.input.messages.AsList()[index].AsMap();
}

TEST(ChatMessages, GivesTemplatesStringsForEveryKindOfContent) {
  const auto call = ParseGenerationCall(Endpoint::kChatCompletions,
                                        R"({"messages":[{"role":"system","content":"s","name":"n"},
          {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
          {"role":"assistant","content":null},{"role":"assistant"},
          {"role":"assistant","content":[{"type":"refusal","refusal":"No."}]}]})",
                                        Limits());
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_EQ(Message(*call, 4).FindOrNull("content")->AsString(), "No.");
  EXPECT_EQ(Message(*call, 0).FindOrNull("content")->AsString(), "s");
  EXPECT_EQ(Message(*call, 0).FindOrNull("name")->AsString(), "n");
  EXPECT_EQ(Message(*call, 1).FindOrNull("content")->AsString(), "a\nb");
  EXPECT_EQ(Message(*call, 2).FindOrNull("content")->AsString(), "");
  EXPECT_EQ(Message(*call, 3).FindOrNull("content")->AsString(), "");
}

// As vLLM: what others' answers and OpenAI's other API call text is text, and parts that say
// nothing are left out.
TEST(ChatMessages, TakesTextByEveryName) {
  const auto content = [](const std::string& parts) {
    const auto call = ParseGenerationCall(
        Endpoint::kChatCompletions, R"({"messages":[{"role":"user","content":[)" + parts + "]}]}",
        Limits());
    EXPECT_TRUE(call.ok()) << call.status();
    return call.ok() ? std::string(Message(*call, 0).FindOrNull("content")->AsString()) : "(none)";
  };
  EXPECT_EQ(content(R"("a",{"type":"text","text":"b"},{"type":"input_text","text":"c"},
                        {"type":"output_text","text":"d"},{"type":"refusal","refusal":"e"},
                        {"type":"thinking","thinking":"f","closed":true})"),
            "a\nb\nc\nd\ne\nf");
  EXPECT_EQ(content(R"({"type":"text","text":null},{"type":"text","text":""},
                        {"type":"refusal"},{"type":"text","text":"a"},
                        {"type":"thinking","thinking":null,"text":"b"})"),
            "\na");
  EXPECT_EQ(content(R"({"type":"text","text":null})"), "");
}

TEST(ChatMessages, TurnsToolArgumentsIntoObjects) {
  const auto call = ParseGenerationCall(
      Endpoint::kChatCompletions,
      R"({"messages":[{"role":"assistant","tool_calls":[{"id":"1","type":"function",
          "function":{"name":"f","arguments":"{\"z\":1,\"a\":[true]}"}}]}]})",
      Limits());
  ASSERT_TRUE(call.ok()) << call.status();
  const auto& tool_call = Message(*call, 0).FindOrNull("tool_calls")->AsList()[0].AsMap();
  const auto& function = tool_call.FindOrNull("function")->AsMap();
  const auto* arguments = function.FindOrNull("arguments");
  ASSERT_TRUE(arguments->is_map());
  EXPECT_EQ(arguments->AsMap().entries()[0].key.AsString(), "z");
}

// What others send than OpenAI's own clients, old ones among them.
TEST(ChatMessages, TakesCallsWithLessThanTheirMembers) {
  for (const char* call :
       {R"({"function":{"name":"f"}})", R"({"name":"f","arguments":{"a":1}})",
        R"({"id":null,"type":null,"name":null,"function":{"name":"f","arguments":null}})",
        R"({"name":"f","function":null})", R"({"id":"","type":"function","index":0,
            "function":{"name":"","arguments":{"a":1},"description":null},"x":[]})"}) {
    const auto parsed = ParseGenerationCall(
        Endpoint::kChatCompletions,
        R"({"messages":[{"role":"assistant","name":null,"tool_calls":[)" + std::string(call) +
            R"(]},{"role":"tool","tool_call_id":null,"content":""},
               {"role":"user","content":"","tool_calls":null}]})",
        Limits());
    ASSERT_TRUE(parsed.ok()) << call << parsed.status();
    const auto& shown = Message(*parsed, 0).FindOrNull("tool_calls")->AsList()[0].AsMap();
    for (const auto& [name, value] : shown.entries()) {
      EXPECT_FALSE(value.is_none()) << call << " has " << name.AsString();
    }
    const auto* function = shown.FindOrNull("function");
    const auto& named = function == nullptr ? shown : function->AsMap();
    ASSERT_NE(named.FindOrNull("arguments"), nullptr) << call;
    EXPECT_TRUE(named.FindOrNull("arguments")->is_map()) << call;
  }
  for (const char* function :
       {R"({"name":"f"})", R"({"name":"f","description":null,"parameters":null,"strict":null})"}) {
    const auto parsed = Chat(R"(,"tools":[{"function":)" + std::string(function) + "}]");
    EXPECT_TRUE(parsed.ok()) << function << parsed.status();
  }
}

// What a model wrote, and a client sends back with the next turn.
TEST(ChatMessages, TakesToolArgumentsAsPythonDoes) {
  const auto call = ParseGenerationCall(
      Endpoint::kChatCompletions,
      R"({"messages":[{"role":"assistant","tool_calls":[{"id":"1","type":"function",
          "function":{"name":"f","arguments":"{\"a\":1,\"b\":1e999,\"a\":2}"}}]}]})",
      Limits());
  ASSERT_TRUE(call.ok()) << call.status();
  const auto& tool_call = Message(*call, 0).FindOrNull("tool_calls")->AsList()[0].AsMap();
  const auto* arguments = tool_call.FindOrNull("function")->AsMap().FindOrNull("arguments");
  ASSERT_TRUE(arguments->is_map());
  ASSERT_EQ(arguments->AsMap().entries().size(), 2u);
  EXPECT_EQ(arguments->AsMap().FindOrNull("a")->AsInt(), 2);
  EXPECT_TRUE(std::isinf(arguments->AsMap().FindOrNull("b")->AsFloat()));
}

// A call without arguments comes in many forms.
TEST(ChatMessages, TurnsMissingToolArgumentsIntoAnEmptyObject) {
  for (const char* member : {"", R"(,"arguments":"")", R"(,"arguments":" \n\t")",
                             R"(,"arguments":null)", R"(,"arguments":{})"}) {
    const std::string body =
        std::string(R"({"messages":[{"role":"assistant","tool_calls":[{"id":"1",)"
                    R"("type":"function","function":{"name":"f")") +
        member + "}}]}]}";
    const auto arguments = [&](const ModelLimits& limits) {
      const auto call = ParseGenerationCall(Endpoint::kChatCompletions, body, limits);
      EXPECT_TRUE(call.ok()) << call.status();
      const auto& calls = Message(*call, 0).FindOrNull("tool_calls")->AsList();
      EXPECT_EQ(calls[0].AsMap().FindOrNull("arguments"), nullptr) << "beside the function";
      const auto* found = calls[0].AsMap().FindOrNull("function")->AsMap().FindOrNull("arguments");
      return found == nullptr ? engine::jinja::Value() : *found;
    };
    const engine::jinja::Value object = arguments(Limits());
    ASSERT_TRUE(object.is_map()) << member;
    EXPECT_TRUE(object.AsMap().entries().empty()) << member;
    ModelLimits limits = Limits();
    limits.message_forms.without_tools.argument_strings = true;
    const engine::jinja::Value text = arguments(limits);
    ASSERT_TRUE(text.is_string()) << member;
    EXPECT_EQ(text.AsString(), "{}") << member;
  }
}

// What templates get of a call's arguments, given as JSON.
engine::jinja::Value ArgumentsOf(const std::string& json, const ModelLimits& limits) {
  const auto call = ParseGenerationCall(
      Endpoint::kChatCompletions,
      R"({"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":)" +
          json + "}}]}]}",
      limits);
  EXPECT_TRUE(call.ok()) << call.status();
  if (!call.ok()) return {};
  const auto& calls = Message(*call, 0).FindOrNull("tool_calls")->AsList();
  return *calls[0].AsMap().FindOrNull("function")->AsMap().FindOrNull("arguments");
}

// A call that was cut, or that the model broke, comes back with every later turn: as it was where
// the template shows that, or as what no template fails of.
TEST(ChatMessages, TakesArgumentsThatAreNoObject) {
  const auto nested = [](int depth) {
    std::string text = "1";
    for (int i = 0; i < depth; ++i) text = R"({\"a\":)" + text + "}";
    return "\"" + text + "\"";
  };
  ModelLimits shown = Limits();
  shown.message_forms.without_tools.broken_arguments = true;
  for (const std::string& text :
       {std::string(R"("{\"city\":\"Par")"), std::string(R"("{'city':1}")"),
        std::string(R"("[1]")"), std::string(R"("\"x\"")"), std::string(R"("{} {}")"),
        nested(65)}) {
    const engine::jinja::Value object = ArgumentsOf(text, Limits());
    ASSERT_TRUE(object.is_map()) << text;
    EXPECT_TRUE(object.AsMap().entries().empty()) << text;
    const engine::jinja::Value same = ArgumentsOf(text, shown);
    ASSERT_TRUE(same.is_string()) << text;
    EXPECT_EQ(ParseJson(text)->get<std::string>(), same.AsString());
  }
  for (const char* other : {"[]", "[1]", "5", "true"}) {
    for (const ModelLimits& limits : {Limits(), shown}) {
      const engine::jinja::Value object = ArgumentsOf(other, limits);
      ASSERT_TRUE(object.is_map()) << other;
      EXPECT_TRUE(object.AsMap().entries().empty()) << other;
    }
    ModelLimits strings = Limits();
    strings.message_forms.without_tools.argument_strings = true;
    EXPECT_EQ(ArgumentsOf(other, strings).AsString(), other);
  }
  EXPECT_EQ(ArgumentsOf(nested(40), Limits()).AsMap().entries().size(), 1u);
  EXPECT_TRUE(ArgumentsOf(R"("{\"a\":1}")", shown).is_map());
}

// Templates raise an error for a list that is there and has not one call.
TEST(ChatMessages, LeavesOutAnEmptyListOfToolCalls) {
  const auto call = ParseGenerationCall(
      Endpoint::kChatCompletions,
      R"({"messages":[{"role":"assistant","content":"hi","tool_calls":[]}]})", Limits());
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_EQ(Message(*call, 0).FindOrNull("tool_calls"), nullptr);
}

// With another prompt an agent's last answer would find nothing of its history in the cache.
TEST(ChatMessages, ShowsToolsWhateverTheChoice) {
  const std::string tools =
      R"(,"tools":[{"type":"function","function":{"name":"f","parameters":{}}}])";
  const auto prompt = [](const absl::StatusOr<GenerationCall>& call) {
    return std::get<engine::ChatPrompt>(call->first().prompt);
  };
  for (const char* choice : {"", R"(,"tool_choice":null)", R"(,"tool_choice":"auto")"}) {
    EXPECT_TRUE(prompt(Chat(tools + choice)).input.tools.is_list());
    EXPECT_TRUE(prompt(Chat(tools + choice)).may_call_tools);
  }
  EXPECT_TRUE(prompt(Chat(tools + R"(,"tool_choice":"none")")).input.tools.is_list());
  EXPECT_FALSE(prompt(Chat(tools + R"(,"tool_choice":"none")")).may_call_tools);
  EXPECT_TRUE(prompt(Chat("")).input.tools.is_undefined());
  EXPECT_FALSE(prompt(Chat("")).may_call_tools);
}

// As LlamaIndex sends it where it only wants the answer that its prompt describes.
TEST(ChatMessages, AnyChoiceIsTakenWhereThereAreNoTools) {
  const std::string named = R"({"type":"function","function":{"name":"f"}})";
  for (const std::string& choice : {std::string(R"("required")"), named}) {
    const std::string chosen = R"(,"tool_choice":)" + choice;
    for (const char* none : {"", R"(,"tools":null)", R"(,"tools":[])"}) {
      const absl::StatusOr<GenerationCall> call = Chat(chosen + none);
      ASSERT_TRUE(call.ok()) << call.status();
      EXPECT_FALSE(std::get<engine::ChatPrompt>(call->first().prompt).may_call_tools);
    }
  }
}

// A tool may return nothing.
TEST(ChatMessages, TakesTheAnswerOfAToolWithoutContent) {
  for (const char* content : {"", R"(,"content":null)"}) {
    const std::string tool = R"({"role":"tool","tool_call_id":"a")" + std::string(content) + "}";
    const auto call =
        ParseGenerationCall(Endpoint::kChatCompletions, R"({"messages":[)" + tool + "]}", Limits());
    ASSERT_TRUE(call.ok()) << call.status();
    EXPECT_EQ(Message(*call, 0).FindOrNull("content")->AsString(), "");
  }
}

// A model's two templates may take calls otherwise.
TEST(ChatMessages, HaveTheFormOfTheTemplateThatShowsTheTools) {
  ModelLimits limits = Limits();
  limits.message_forms.with_tools.argument_strings = true;
  const auto takes_strings = [&](const std::string& members) {
    const auto call = ParseGenerationCall(
        Endpoint::kChatCompletions,
        R"({"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f",)"
        R"("arguments":"{}"}}]}])" +
            members + "}",
        limits);
    EXPECT_TRUE(call.ok()) << call.status();
    const auto& calls = Message(*call, 0).FindOrNull("tool_calls")->AsList();
    const auto& function = calls[0].AsMap().FindOrNull("function")->AsMap();
    return function.FindOrNull("arguments")->is_string();
  };
  const std::string tools = R"(,"tools":[{"type":"function","function":{"name":"f"}}])";
  EXPECT_FALSE(takes_strings(""));
  EXPECT_TRUE(takes_strings(tools));
  EXPECT_TRUE(takes_strings(tools + R"(,"tool_choice":"none")"));
  limits.tools = engine::ToolFormat::kNone;
  EXPECT_FALSE(takes_strings(tools + R"(,"tool_choice":"none")"));
}

// The default of a request without functions, which some clients write out.
TEST(ChatMessages, TakesTheOldNameOfChoosingNoTool) {
  const auto call = Chat(R"(,"function_call":"none")");
  EXPECT_TRUE(call.ok()) << call.status();
}

TEST(ChatMessages, LooksForCallsOnlyWhereToolsMayBeCalled) {
  const std::string tools = R"(,"tools":[{"type":"function","function":{"name":"f"}}])";
  EXPECT_EQ(Chat(tools)->output.tools, engine::ToolFormat::kHermes);
  EXPECT_TRUE(Chat(tools)->output.parallel_tool_calls);
  EXPECT_FALSE(Chat(tools + R"(,"parallel_tool_calls":false)")->output.parallel_tool_calls);
  EXPECT_EQ(Chat(tools + R"(,"tool_choice":"none")")->output.tools, engine::ToolFormat::kNone);
  EXPECT_EQ(Chat("")->output.tools, engine::ToolFormat::kNone);
}

// Dropped tools would be worse than refused ones.
TEST(ChatMessages, RefusesToolsThatTheTemplateCannotShow) {
  const std::string body = R"({"messages":[{"role":"user","content":"hi"}],
      "tools":[{"type":"function","function":{"name":"f"}}])";
  ModelLimits limits = Limits();
  limits.tools = engine::ToolFormat::kNone;
  const auto parse = [&](const std::string& rest) {
    return ParseGenerationCall(Endpoint::kChatCompletions, body + rest, limits);
  };
  EXPECT_EQ(ApiErrorFromStatus(parse("}").status()).param, "tools");
  const auto unused = parse(R"(,"tool_choice":"none"})");
  ASSERT_TRUE(unused.ok()) << unused.status();
  EXPECT_TRUE(std::get<engine::ChatPrompt>(unused->first().prompt).input.tools.is_undefined());
  limits.tools = engine::ToolFormat::kUnknown;
  EXPECT_TRUE(parse("}").ok());
}

TEST(ChatMessages, PrefersTheNewNameOfTheTokenLimit) {
  EXPECT_EQ(Chat(R"(,"max_tokens":5)")->first().stop.max_tokens, 5);
  EXPECT_EQ(Chat(R"(,"max_tokens":5,"max_completion_tokens":7)")->first().stop.max_tokens, 7);
}

TEST(ChatMessages, ContinuesTheLastMessageOnRequest) {
  const auto call = Chat(R"(,"continue_final_message":true)");
  ASSERT_TRUE(call.ok()) << call.status();
  const auto& chat = std::get<engine::ChatPrompt>(call->first().prompt);
  EXPECT_TRUE(chat.continue_final_message);
  EXPECT_FALSE(chat.input.add_generation_prompt);
}

}  // namespace
}  // namespace refrain::server::openai
