// Which calls `tool_choice` forces, and where it cannot.

#include "server/openai/tool_choice.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <variant>

#include "server/concat.h"
#include "server/openai/protocol.h"
#include "server/status_mapping.h"
#include "tests/server/openai/shown_form.h"

namespace refrain::server::openai {
namespace {

using ::refrain::testing::ShownForm;

// Wrong values are in tests/data/http-bad-requests (bad_requests_test.cc).

ModelLimits Limits(engine::ToolFormat tools) {
  return {.served_name = "m", .vocab_size = 258, .max_context_tokens = 4096, .tools = tools};
}

absl::StatusOr<GenerationCall> Chat(const std::string& members,
                                    engine::ToolFormat tools = engine::ToolFormat::kHermes) {
  return ParseGenerationCall(Endpoint::kChatCompletions,
                             R"({"messages":[{"role":"user","content":"hi"}],)" + members + "}",
                             Limits(tools));
}

absl::StatusOr<GenerationCall> Response(const std::string& members) {
  return ParseGenerationCall(Endpoint::kResponses, R"({"input":"hi",)" + members + "}",
                             Limits(engine::ToolFormat::kHermes));
}

std::string FormOf(const absl::StatusOr<GenerationCall>& call) {
  return call.ok() ? ShownForm(call->first()) : Concat("error: ", call.status().message());
}

void ExpectRefused(const absl::StatusOr<GenerationCall>& call, const std::string& param,
                   const std::string& mention) {
  ASSERT_FALSE(call.ok()) << param;
  const ApiError error = ApiErrorFromStatus(call.status());
  EXPECT_EQ(error.http_status, 400);
  EXPECT_EQ(error.param.value_or("(none)"), param) << error.message;
  EXPECT_NE(error.message.find(mention), std::string::npos) << error.message;
}

constexpr char kTools[] = R"("tools":[
    {"type":"function","function":{"name":"f","parameters":{"type":"object","z":1,"a":2}}},
    {"type":"function","function":{"name":"g","parameters":{"type":"object"}}}])";
constexpr char kFunctionTools[] = R"("tools":[
    {"type":"function","name":"f","parameters":{"type":"object","z":1,"a":2},"strict":true},
    {"type":"function","name":"g","parameters":{"type":"object"}}])";
constexpr char kBoth[] = R"(f({"type":"object","z":1,"a":2}) g({"type":"object"}))";

std::string WithTools(const std::string& choice) {
  return Concat(kTools, R"(,"tool_choice":)", choice);
}

TEST(ToolChoice, RequiredForcesACallOfAnyTool) {
  for (const auto format : {engine::ToolFormat::kHermes, engine::ToolFormat::kLlama3}) {
    const auto call = Chat(WithTools(R"("required")"), format);
    ASSERT_TRUE(call.ok()) << call.status();
    EXPECT_EQ(FormOf(call), Concat("calls ", kBoth, " by tools"));
    EXPECT_TRUE(std::get<engine::ChatPrompt>(call->first().prompt).may_call_tools);
    EXPECT_EQ(call->output.tools, format);
    EXPECT_TRUE(call->output.parallel_tool_calls);
  }
  const auto one = Chat(WithTools(R"("required")") + R"(,"parallel_tool_calls":false)");
  EXPECT_EQ(FormOf(one), Concat("call ", kBoth, " by tools"));
  EXPECT_FALSE(one->output.parallel_tool_calls);
}

TEST(ToolChoice, ANamedFunctionIsCalledOnce) {
  const auto call = Chat(WithTools(R"({"type":"function","function":{"name":"g"}})") +
                         R"(,"parallel_tool_calls":true)");
  EXPECT_EQ(FormOf(call), R"(call g({"type":"object"}) by tools)");
  EXPECT_EQ(call->output.tools, engine::ToolFormat::kHermes);
}

TEST(ToolChoice, AutoAndNoneForceNothing) {
  for (const char* choice : {"null", R"("auto")", R"("none")"}) {
    EXPECT_EQ(FormOf(Chat(WithTools(choice))), "none") << choice;
    EXPECT_EQ(FormOf(Response(Concat(kFunctionTools, R"(,"tool_choice":)", choice))), "none");
  }
  EXPECT_EQ(FormOf(Chat(kTools)), "none");
}

TEST(ToolChoice, OfResponsesIsTheSame) {
  const auto form = [](const std::string& choice) {
    return FormOf(Response(Concat(kFunctionTools, R"(,"tool_choice":)", choice)));
  };
  EXPECT_EQ(form(R"("required")"), Concat("calls ", kBoth, " by tools"));
  EXPECT_EQ(form(R"({"type":"function","name":"g"})"), R"(call g({"type":"object"}) by tools)");
  EXPECT_EQ(form(R"({"type":"allowed_tools","mode":"required",
                     "tools":[{"type":"function","name":"g"}]})"),
            R"(calls g({"type":"object"}) by tools)");
}

TEST(ToolChoice, AllowsSomeOfTheTools) {
  const auto chosen = [](const std::string& mode, const std::string& names) {
    return Chat(WithTools(R"({"type":"allowed_tools","allowed_tools":{"mode":")" + mode +
                          R"(","tools":[)" + names + "]}}"));
  };
  const std::string f = R"({"type":"function","function":{"name":"f"}})";
  const std::string g = R"({"type":"function","function":{"name":"g"}})";
  EXPECT_EQ(FormOf(chosen("required", g)), R"(calls g({"type":"object"}) by tools)");
  EXPECT_EQ(FormOf(chosen("required", g + "," + f)), Concat("calls ", kBoth, " by tools"));
  EXPECT_EQ(FormOf(chosen("auto", g + "," + f)), "none");
  // Nothing holds the model to them.
  ExpectRefused(chosen("auto", g), "tool_choice", "allows 1 of 2 tools with mode \"auto\"");
  const std::string other = R"({"type":"function","function":{"name":"other"}})";
  for (const char* mode : {"auto", "required"}) {
    ExpectRefused(chosen(mode, f + "," + other), "tool_choice",
                  "names \"other\", which is not among 'tools'");
  }
}

TEST(ToolChoice, NamesOneOfTheTools) {
  ExpectRefused(Chat(WithTools(R"({"type":"function","function":{"name":"other"}})")),
                "tool_choice", "names \"other\", which is not among 'tools'");
  ExpectRefused(
      Response(Concat(kFunctionTools, R"(,"tool_choice":{"type":"function","name":"F"})")),
      "tool_choice", "names \"F\", which is not among 'tools'");
}

// The model would not know how a call is written.
TEST(ToolChoice, ForcesOnlyWhatTheTemplateTeaches) {
  for (const char* choice : {R"("required")", R"({"type":"function","function":{"name":"g"}})"}) {
    ExpectRefused(Chat(WithTools(choice), engine::ToolFormat::kUnknown), "tool_choice",
                  "no way of calling tools that is understood");
    ExpectRefused(Chat(WithTools(choice), engine::ToolFormat::kNone), "tools",
                  "has no place for them");
  }
}

// As LlamaIndex sends it, which wants an answer by the schema that its prompt shows.
TEST(ToolChoice, RequiredMeansNothingWithoutTools) {
  EXPECT_EQ(FormOf(Chat(R"("tools":[],"response_format":{"type":"json_object"},)"
                        R"("tool_choice":"required")")),
            "object by response_format");
  EXPECT_EQ(FormOf(Chat(R"("tool_choice":"required")", engine::ToolFormat::kNone)), "none");
}

// As LlamaIndex sends it where it only wants the answer that its prompt describes.
TEST(ToolChoice, ANamedFunctionMeansNothingWithoutTools) {
  for (const char* tools : {"", R"("tools":[],)", R"("tools":null,)"}) {
    EXPECT_EQ(
        FormOf(Chat(Concat(tools, R"("tool_choice":{"type":"function","function":{"name":"g"}})"))),
        "none");
    EXPECT_EQ(FormOf(Response(Concat(tools, R"("tool_choice":{"type":"function","name":"g"})"))),
              "none");
  }
}

// As agents send both on every turn: the format is about content, and a call has none.
TEST(ToolChoice, ForcedCallsComeInPlaceOfAFormattedAnswer) {
  const std::string calls = Concat("calls ", kBoth, " by tools");
  EXPECT_EQ(FormOf(Chat(WithTools(R"("required")") +
                        R"(,"response_format":{"type":"json_schema","json_schema":{"name":"x",)"
                        R"("schema":{"type":"array"}}})")),
            calls);
  EXPECT_EQ(FormOf(Response(Concat(kFunctionTools, R"(,"tool_choice":"required",)",
                                   R"("text":{"format":{"type":"json_object"}})"))),
            calls);
  EXPECT_EQ(FormOf(Chat(WithTools(R"({"type":"function","function":{"name":"g"}})") +
                        R"(,"response_format":{"type":"json_object"})")),
            R"(call g({"type":"object"}) by tools)");
}

TEST(ToolChoice, ExcludesAFormOfTheWholeOutput) {
  const std::string forced = WithTools(R"("required")");
  ExpectRefused(Chat(forced + R"(,"guided_regex":"a")"), "tool_choice",
                "'tool_choice' forces a call, and 'guided_regex' asks for a form");
  ExpectRefused(Chat(forced + R"(,"structured_outputs":{"json":{}})"), "tool_choice",
                "'structured_outputs.json'");
  ExpectRefused(Chat(forced + R"(,"allowed_token_ids":[1])"), "allowed_token_ids",
                "'tool_choice' asks for a form");
  ExpectRefused(Chat(forced + R"(,"use_beam_search":true)"), "use_beam_search",
                "'tool_choice' asks for a form");
}

// Arguments are an object whatever the schema leaves open; without `parameters` there are none, as
// with OpenAI.
TEST(ToolChoice, ArgumentsAreAnObject) {
  const auto form = [](const std::string& members) {
    const auto call = Chat(R"("tool_choice":"required","parallel_tool_calls":false,"tools":[
        {"type":"function","function":{"name":"f")" +
                           members + "}}]");
    return FormOf(call);
  };
  const std::string none = R"(call f({"type":"object","additionalProperties":false}) by tools)";
  EXPECT_EQ(form(""), none);
  EXPECT_EQ(form(R"(,"parameters":null)"), none);
  EXPECT_EQ(form(R"(,"parameters":{})"), "call f() by tools");
  EXPECT_EQ(form(R"(,"parameters":{"properties":{"z":{},"a":{}}})"),
            R"(call f({"type":"object","properties":{"z":{},"a":{}}}) by tools)");
  EXPECT_EQ(form(R"(,"parameters":{"$ref":"#/$defs/A"})"),
            R"(call f({"$ref":"#/$defs/A"}) by tools)");
}

// A scan of all keys for each of them would take a minute.
// As OpenAI has it, a schema has to hold as a whole where its tool is strict.
TEST(ToolChoice, SchemasHoldAsAWholeWhereTheToolSaysSo) {
  const auto strictness = [](const absl::StatusOr<GenerationCall>& call) {
    EXPECT_TRUE(call.ok()) << call.status();
    const auto& calls = std::get<engine::OutputFormat::ToolCalls>(call->first().format->form);
    std::string shown;
    for (const auto& tool : calls.tools) shown += tool.is_strict ? "s" : "-";
    return shown;
  };
  EXPECT_EQ(strictness(Chat(R"("tool_choice":"required","tools":[
                {"type":"function","function":{"name":"a"}},
                {"type":"function","function":{"name":"b","strict":null}},
                {"type":"function","function":{"name":"c","strict":false}},
                {"type":"function","function":{"name":"d","strict":true}}])")),
            "---s");
  EXPECT_EQ(strictness(Response(Concat(kFunctionTools, R"(,"tool_choice":"required")"))), "s-");
}

// The model would be held to a call that nobody can read.
TEST(ToolChoice, ParametersOfForcedToolsAreObjects) {
  const auto tool = [](const std::string& parameters) {
    return Concat(R"("tools":[{"type":"function","function":{"name":"g"}},)",
                  R"({"type":"function","function":{"name":"f","parameters":)", parameters, "}}]");
  };
  for (const char* const parameters : {R"({"type":"string"})", R"({"type":["array","null"]})"}) {
    ExpectRefused(Chat(Concat(tool(parameters), R"(,"tool_choice":"required")")), "tools",
                  "has at 1 parameters of another type than \"object\"");
    EXPECT_TRUE(Chat(tool(parameters)).ok());
    EXPECT_TRUE(Chat(Concat(tool(parameters), R"(,"tool_choice":{"type":"function","function":)",
                            R"({"name":"g"}})"))
                    .ok());
  }
  EXPECT_TRUE(
      Chat(Concat(tool(R"({"type":["object","null"]})"), R"(,"tool_choice":"required")")).ok());
}

TEST(ToolChoice, ManyKeysOfParametersAreReadInLinearTime) {
  std::string keys = R"("a":0)";
  for (int i = 0; i < 200'000; ++i) ConcatTo(&keys, ",\"a", i, "\":0");
  const auto begin = std::chrono::steady_clock::now();
  ExpectRefused(Chat(R"("tool_choice":"required","tools":[{"type":"function","function":)"
                     R"({"name":"f","parameters":{)" +
                     keys + "}}}]"),
                "tools", " bytes; at most ");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST(ToolChoice, ForcedToolsAreBounded) {
  const auto chat = [](size_t bytes, const char* choice) {
    return Chat(Concat(R"("tools":[{"type":"function","function":{"name":"f","parameters":)",
                       R"({"type":"object","description":")", std::string(bytes, 'x'),
                       R"("}}}],"tool_choice":")", choice, "\""));
  };
  constexpr size_t kMost = engine::OutputFormat::kMostBytes;
  EXPECT_TRUE(chat(kMost / 2, "required").ok());
  EXPECT_TRUE(chat(kMost, "auto").ok());
  ExpectRefused(chat(kMost, "required"), "tools",
                Concat(" bytes; at most ", kMost, " are accepted"));
  ExpectRefused(Chat(R"("tools":[{"type":"function","function":{"name":""}}],)"
                     R"("tool_choice":"required")"),
                "tools", "an empty name");
  ExpectRefused(Chat(R"("tools":[{"type":"function","function":{"name":"f"}},)"
                     R"({"type":"function","function":{"name":""}}],"tool_choice":"required")"),
                "tools", "an empty name");
}

}  // namespace
}  // namespace refrain::server::openai
