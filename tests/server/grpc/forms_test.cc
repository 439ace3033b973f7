// The form of the answer, and the calls, that requests of the gRPC API ask for.

#include <gtest/gtest.h>

#include <string>

#include "server/grpc/request_reader.h"
#include "server/status_mapping.h"
#include "tests/server/grpc/text_request.h"
#include "tests/server/openai/shown_form.h"

namespace refrain::server::rpc {
namespace {

using ::refrain::testing::ShownForm;

std::string FormOf(const absl::StatusOr<GenerationRequest>& read) {
  EXPECT_TRUE(read.ok()) << read.status();
  return read.ok() ? ShownForm(read->request) : "";
}

// Wrong ones are in wrong_messages_test.cc.

TEST(GrpcForms, AreThoseOfStructuredOutput) {
  v1::GenerateRequest request = TextRequest();
  EXPECT_EQ(FormOf(ReadGenerate(request, kLimits)), "none");
  v1::StructuredOutput& form = *request.mutable_params()->mutable_structured_output();
  const auto shown = [&] { return FormOf(ReadGenerate(request, kLimits)); };
  form.set_json_object(true);
  EXPECT_EQ(shown(), "object by params.structured_output.json_object");
  form.set_json_object(false);
  EXPECT_EQ(shown(), "none");
  form.set_json_schema(R"({ "z": 1, "a": 2 })");
  EXPECT_EQ(shown(), R"(schema {"z":1,"a":2} by params.structured_output.json_schema)");
  form.set_regex("a+");
  EXPECT_EQ(shown(), "regex a+ by params.structured_output.regex");
  form.set_grammar("root ::= [a]");
  EXPECT_EQ(shown(), "grammar root ::= [a] by params.structured_output.grammar");
  form.mutable_choice()->add_texts("yes");
  form.mutable_choice()->add_texts("no");
  EXPECT_EQ(shown(), "choice yes no by params.structured_output.choice.texts");
}

class ForcedCallsTest : public ::testing::Test {
 protected:
  ForcedCallsTest() {
    auto* const message = chat().add_messages();
    message->set_role("user");
    message->set_content("hi");
    chat().set_tools_json(
        R"([{"function":{"name":"f","parameters":{"type":"object"}}},{"function":{"name":"g"}}])");
  }
  v1::ChatPrompt& chat() { return *request_.mutable_chat(); }

  const std::string g_ = R"( g({"type":"object","additionalProperties":false}))";
  v1::ChatRequest request_;
};

TEST_F(ForcedCallsTest, AreLookedForInTheAnswer) {
  chat().set_tool_choice("required");
  const auto read = ReadChat(request_, kLimits);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->answer.shown.tools, engine::ToolFormat::kHermes);
  EXPECT_TRUE(std::get<engine::ChatPrompt>(read->request.prompt).may_call_tools);
}

TEST_F(ForcedCallsTest, AreOfAnyToolOrOfTheNamedOne) {
  EXPECT_EQ(FormOf(ReadChat(request_, kLimits)), "none");
  chat().set_tool_choice("required");
  EXPECT_EQ(FormOf(ReadChat(request_, kLimits)),
            R"(calls f({"type":"object"}))" + g_ + " by chat.tools_json");
  chat().set_parallel_tool_calls(false);
  EXPECT_EQ(FormOf(ReadChat(request_, kLimits)),
            R"(call f({"type":"object"}))" + g_ + " by chat.tools_json");
  chat().clear_parallel_tool_calls();
  chat().clear_tool_choice();
  chat().set_tool_function("g");
  EXPECT_EQ(FormOf(ReadChat(request_, kLimits)), "call" + g_ + " by chat.tools_json");
}

TEST_F(ForcedCallsTest, AreOfTheAllowedToolsAlone) {
  chat().set_tool_choice("required");
  chat().add_allowed_tools("g");
  EXPECT_EQ(FormOf(ReadChat(request_, kLimits)), "calls" + g_ + " by chat.tools_json");
  chat().set_parallel_tool_calls(false);
  EXPECT_EQ(FormOf(ReadChat(request_, kLimits)), "call" + g_ + " by chat.tools_json");
  chat().add_allowed_tools("f");
  chat().add_allowed_tools("f");
  EXPECT_EQ(FormOf(ReadChat(request_, kLimits)),
            R"(call f({"type":"object"}))" + g_ + " by chat.tools_json");
}

// What has been said so far is found in the cache whichever tools are allowed.
TEST_F(ForcedCallsTest, AreShownAllToolsWhicheverAreAllowed) {
  chat().set_tool_choice("required");
  chat().add_allowed_tools("g");
  const auto read = ReadChat(request_, kLimits);
  ASSERT_TRUE(read.ok()) << read.status();
  const auto& prompt = std::get<engine::ChatPrompt>(read->request.prompt);
  EXPECT_EQ(prompt.input.tools.AsList().size(), 2u);
}

TEST_F(ForcedCallsTest, AreNotForcedOfAllowedToolsThatAreAllThereAre) {
  chat().add_allowed_tools("g");
  chat().add_allowed_tools("f");
  for (const char* mode : {"", "auto"}) {
    chat().set_tool_choice(mode);
    EXPECT_EQ(FormOf(ReadChat(request_, kLimits)), "none");
  }
  request_.mutable_params()->mutable_structured_output()->set_json_object(true);
  EXPECT_EQ(FormOf(ReadChat(request_, kLimits)),
            "object or calls f() g() by params.structured_output.json_object");
}

TEST_F(ForcedCallsTest, AreOnlyPossibleWhereTheAnswerHasAForm) {
  request_.mutable_params()->mutable_structured_output()->set_json_object(true);
  EXPECT_EQ(FormOf(ReadChat(request_, kLimits)),
            "object or calls f() g() by params.structured_output.json_object");
  chat().set_tool_choice("none");
  EXPECT_EQ(FormOf(ReadChat(request_, kLimits)), "object by params.structured_output.json_object");
}

TEST_F(ForcedCallsTest, AreNotMeantWithoutTools) {
  chat().clear_tools_json();
  chat().set_tool_choice("required");
  EXPECT_EQ(FormOf(ReadChat(request_, kLimits)), "none");
}

TEST_F(ForcedCallsTest, NamesItsOwnFieldOfToolsThatAreNotThere) {
  chat().clear_tools_json();
  chat().set_tool_function("g");
  const std::string refusal = ReadChat(request_, kLimits).status().ToString();
  EXPECT_NE(refusal.find("names \"g\", which is not among 'chat.tools_json'"), std::string::npos)
      << refusal;
}

// The names are one field's matter, that a call is forced is another's.
TEST_F(ForcedCallsTest, NamesWhatForcesThemWhereTheTemplateHasNoCalls) {
  ModelLimits limits = kLimits;
  limits.tools = engine::ToolFormat::kUnknown;
  const auto param = [&] { return ApiErrorFromStatus(ReadChat(request_, limits).status()).param; };
  chat().add_allowed_tools("g");
  chat().set_tool_choice("required");
  EXPECT_EQ(param(), "chat.tool_choice");
  chat().add_allowed_tools("h");
  EXPECT_EQ(param(), "chat.allowed_tools");
  chat().clear_allowed_tools();
  chat().clear_tool_choice();
  chat().set_tool_function("g");
  EXPECT_EQ(param(), "chat.tool_function");
}

}  // namespace
}  // namespace refrain::server::rpc
