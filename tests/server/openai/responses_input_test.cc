// What the items of /v1/responses become for the chat template.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "server/json.h"
#include "server/openai/responses_input.h"
#include "server/status_mapping.h"

namespace refrain::server::openai {
namespace {

struct Read {
  ResponsesInput input;
  absl::Status status;
};

Read ReadMembers(const std::string& members) {
  const auto body = ParseJson("{" + members + "}");
  EXPECT_TRUE(body.ok()) << body.status() << members;
  FieldReader fields(*body, "");
  Read read;
  read.input = ReadResponsesInput(fields);
  read.status = fields.status();
  return read;
}

// The messages that `items` become.
std::string Messages(const std::string& items, const std::string& members = "") {
  const Read read = ReadMembers(R"("input":[)" + items + "]" + members);
  EXPECT_TRUE(read.status.ok()) << read.status;
  EXPECT_EQ(read.input.items.size(), read.input.messages.size());
  return read.input.messages.dump();
}

constexpr char kUser[] = R"({"role":"user","content":"u"})";
constexpr char kCallF[] =
    R"({"type":"function_call","call_id":"1","name":"f","arguments":"{\"a\":1}","id":"fc_1"})";
constexpr char kCallG[] = R"({"type":"function_call","call_id":"2","name":"g"})";
constexpr char kShownF[] =
    R"({"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}})";
constexpr char kShownG[] = R"({"id":"2","type":"function","function":{"name":"g"}})";

std::string Assistant(const std::string& content, const std::string& calls = "",
                      const std::string& reasoning = "") {
  std::string text = R"({"role":"assistant","content":)" + content;
  if (!reasoning.empty()) text += R"(,"reasoning_content":")" + reasoning + "\"";
  if (!calls.empty()) text += R"(,"tool_calls":[)" + calls + "]";
  return text + "}";
}

std::string Text(const std::string& text) {
  return R"({"type":"message","role":"assistant","status":"completed","id":"msg_1","content":)"
         R"([{"type":"output_text","text":")" +
         text + R"(","annotations":[],"logprobs":[]}]})";
}

std::string Reasoning(const std::string& text) {
  return R"({"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAAAA",)"
         R"("content":[{"type":"reasoning_text","text":")" +
         text + R"("}]})";
}

std::string Joined(std::initializer_list<std::string> parts) {
  std::string all;
  for (const std::string& part : parts) all += (all.empty() ? "" : ",") + part;
  return all;
}

TEST(ResponsesInput, AStringIsWhatTheUserSays) {
  const Read read = ReadMembers(R"("input":"hi","instructions":"")");
  ASSERT_TRUE(read.status.ok()) << read.status;
  EXPECT_EQ(read.input.messages.dump(), R"([{"role":"user","content":"hi"}])");
}

TEST(ResponsesInput, MessagesHaveTheirRoleAndOneText) {
  EXPECT_EQ(
      Messages(R"({"role":"system","content":"s"},{"type":null,"role":"developer","content":"d"},
                        {"type":"message","id":"m","role":"user","content":[
                          {"type":"input_text","text":"a"},{"type":"text","text":"b"},"c"]},
                        {"role":"assistant","content":[{"type":"refusal","refusal":"No."},
                          {"type":"output_text","text":"z"}]})"),
      R"([{"role":"system","content":"s"},{"role":"developer","content":"d"},)"
      R"({"role":"user","content":"a\nb\nc"},{"role":"assistant","content":"No.\nz"}])");
  // As in chats, only the assistant may have said nothing.
  EXPECT_EQ(Messages(R"({"role":"assistant"},{"role":"user","content":""})"),
            R"([{"role":"assistant","content":""},{"role":"user","content":""}])");
}

// Many templates take one system message, and as the first one: agents send theirs in both places.
TEST(ResponsesInput, InstructionsTakeTheSystemMessagesThatFollow) {
  const std::string members = R"(,"instructions":"Be brief.")";
  const std::string first = R"([{"role":"system","content":"Be brief.)";
  EXPECT_EQ(Messages(kUser, members), first + R"("},)" + kUser + "]");
  EXPECT_EQ(Messages(Joined({R"({"role":"developer","content":"a"})",
                             R"({"role":"system","content":[{"type":"input_text","text":"b"}]})",
                             kUser, R"({"role":"developer","content":"c"})"}),
                     members),
            first + R"(\n\na\n\nb"},)" + kUser + R"(,{"role":"developer","content":"c"}])");
  // Behind what anybody else said they stay where they are.
  EXPECT_EQ(Messages(Joined({Text("x"), R"({"role":"system","content":"b"})"}), members),
            first + R"("},)" + Assistant("\"x\"") + R"(,{"role":"system","content":"b"}])");
}

TEST(ResponsesInput, WhatTheAssistantSaidInATurnIsOneMessage) {
  const std::string output = R"({"type":"function_call_output","call_id":"1","output":"5"})";
  const std::string tool = R"({"role":"tool","tool_call_id":"1","content":"5"})";
  EXPECT_EQ(
      Messages(Joined({kUser, Reasoning("hm"), Text("x"), kCallF, kCallG, output, Text("y")})),
      "[" +
          Joined({kUser, Assistant("\"x\"", Joined({kShownF, kShownG}), "hm"), tool,
                  Assistant("\"y\"")}) +
          "]");
  EXPECT_EQ(Messages(Joined({kCallF, output, kCallG})),
            "[" + Joined({Assistant("null", kShownF), tool, Assistant("null", kShownG)}) + "]");
  // Text behind a call, which nothing answered yet, is of the same turn.
  EXPECT_EQ(Messages(Joined({Text("x"), kCallF, Text("y"), kCallG})),
            "[" + Assistant(R"("x\ny")", Joined({kShownF, kShownG})) + "]");
  EXPECT_EQ(Messages(Joined({kCallF, Text("y")})), "[" + Assistant("\"y\"", kShownF) + "]");
}

TEST(ResponsesInput, ASecondTextIsAMessageOfItsOwn) {
  EXPECT_EQ(Messages(Joined({Text("x"), Text("y"), kCallF})),
            "[" + Joined({Assistant("\"x\""), Assistant("\"y\"", kShownF)}) + "]");
  EXPECT_EQ(Messages(Joined({Reasoning("a"), Text("x"), Reasoning("b"), Text("y")})),
            "[" + Joined({Assistant("\"x\"", "", "a"), Assistant("\"y\"", "", "b")}) + "]");
}

TEST(ResponsesInput, ReasoningIsShownWithItsTurn) {
  EXPECT_EQ(Messages(Joined({Reasoning("a"), kCallF, Reasoning("b"), kCallG})),
            "[" + Assistant("null", Joined({kShownF, kShownG}), R"(a\nb)") + "]");
  EXPECT_EQ(Messages(Joined({Text("x"), Reasoning("late"), kUser})),
            "[" + Joined({Assistant("\"x\"", "", "late"), kUser}) + "]");
  // A summary where there is nothing else.
  EXPECT_EQ(Messages(Joined({R"({"type":"reasoning","id":"r","summary":[
                                  {"type":"summary_text","text":"s"},
                                  {"type":"summary_text","text":"t"}]})",
                             Text("x")})),
            "[" + Assistant("\"x\"", "", R"(s\nt)") + "]");
  EXPECT_EQ(Messages(Joined({R"({"type":"reasoning","summary":[{"type":"summary_text","text":"s"}],
                                  "content":[{"type":"reasoning_text","text":"c"}]})",
                             Text("x")})),
            "[" + Assistant("\"x\"", "", "c") + "]");
}

TEST(ResponsesInput, ReasoningWithoutATurnIsLeftOut) {
  EXPECT_EQ(Messages(Joined({Reasoning("a"), kUser, Reasoning("b")})),
            "[" + std::string(kUser) + "]");
  EXPECT_EQ(Messages(Joined({kUser, Reasoning("a"), kUser, Text("x")})),
            "[" + Joined({kUser, kUser, Assistant("\"x\"")}) + "]");
  // Encrypted, it says nothing.
  EXPECT_EQ(Messages(Joined({R"({"type":"reasoning","id":"r","summary":[],"content":null,
                                  "encrypted_content":"gAAAA"})",
                             Text("x")})),
            "[" + Assistant("\"x\"") + "]");
}

TEST(ResponsesInput, OutputsOfCallsAreToolMessages) {
  EXPECT_EQ(Messages(R"({"type":"function_call_output","id":"o","call_id":"1","status":"completed",
                         "output":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]})"),
            R"([{"role":"tool","tool_call_id":"1","content":"a\nb"}])");
}

TEST(ResponsesInput, KnowsWhichItemAMessageBeginsWith) {
  const Read read = ReadMembers(
      R"("instructions":"i","input":[)" +
      Joined({R"({"role":"system","content":"s"})", kUser, Reasoning("a"), Text("x"), kCallF,
              R"({"type":"function_call_output","call_id":"1","output":""})", kUser}) +
      "]");
  ASSERT_TRUE(read.status.ok()) << read.status;
  EXPECT_EQ(read.input.items, (std::vector<size_t>{0, 1, 3, 5, 6}));
}

// Not quadratic: each item is looked at once, and a turn of many does not move what is there.
TEST(ResponsesInput, TakesAsManyItemsAsAChatHasMessages) {
  std::string items = kCallF;
  for (int i = 1; i < 16384; ++i) items += std::string(",") + (i % 2 == 0 ? kCallF : kCallG);
  const Read all = ReadMembers(R"("input":[)" + items + "]");
  ASSERT_TRUE(all.status.ok()) << all.status;
  ASSERT_EQ(all.input.messages.size(), 1u);
  EXPECT_EQ(all.input.messages[0]["tool_calls"].size(), 16384u);
  const Read more = ReadMembers(R"("input":[)" + items + "," + kCallF + "]");
  ASSERT_FALSE(more.status.ok());
  EXPECT_EQ(more.input.messages.size(), 0u);
}

TEST(ResponsesInput, WrongItemsAreNamedByTheirPlace) {
  struct {
    const char* item;
    const char* param;
    const char* mention;
  } const kCases[] = {
      {R"("hi")", "input[1]", "must be an object, not a string"},
      {R"({})", "input[1]", "has no type; only message, function_call, function_call_output and"},
      {R"({"id":"msg_1"})", "input[1]", "has no type"},
      {R"({"type":"item_reference","id":"m"})", "input[1]", "is of type \"item_reference\"; only"},
      {R"({"type":"web_search_call"})", "input[1]", "is of type \"web_search_call\"; only"},
      {R"({"type":"custom_tool_call","role":"user"})", "input[1]", "\"custom_tool_call\"; only"},
      {R"({"type":5})", "input[1]", "is of type 5; only"},
      {R"({"type":"message","content":"a"})", "input[1].role", "is required"},
      {R"({"role":"tool","content":"a"})", "input[1].role", "must be \"user\", \"assistant\","},
      {R"({"role":7,"content":"a"})", "input[1].role", "must be a string, not an integer"},
      {R"({"role":"user"})", "input[1].content", "is required"},
      {R"({"role":"user","content":5})", "input[1].content",
       "must be a string or an array of text"},
      {R"({"role":"user","content":["a",{"type":"input_image","image_url":"x"}]})",
       "input[1].content[1]", "is of type \"input_image\"; only text parts are supported"},
      {R"({"role":"assistant","content":[{"type":"input_audio"}]})", "input[1].content[0]",
       "is of type \"input_audio\"; only text"},
      {R"({"role":"user","content":[{"type":"input_file"}]})", "input[1].content[0]",
       "is of type \"input_file\"; only text"},
      {R"({"role":"user","content":[{"text":"a"}]})", "input[1].content[0]", "has no type"},
      {R"({"role":"user","content":[{"type":"input_text","text":5}]})", "input[1].content[0].text",
       "must be a string, not an integer"},
      {R"({"role":"user","content":[5]})", "input[1].content[0]", "must be an object, not"},
      {R"({"type":"function_call","name":"f"})", "input[1].call_id", "is required"},
      {R"({"type":"function_call","call_id":"1"})", "input[1].name", "is required"},
      {R"({"type":"function_call","call_id":1,"name":"f"})", "input[1].call_id", "a string, not"},
      {R"({"type":"function_call","call_id":"1","name":[]})", "input[1].name", "a string, not"},
      {R"({"type":"function_call_output","output":"x"})", "input[1].call_id", "is required"},
      {R"({"type":"function_call_output","call_id":"1"})", "input[1].output", "is required"},
      {R"({"type":"function_call_output","call_id":"1","output":{}})", "input[1].output",
       "must be a string or an array of text parts, not an object"},
      {R"({"type":"function_call_output","call_id":"1","output":[{"type":"input_image"}]})",
       "input[1].output[0]", "is of type \"input_image\"; only text"},
      {R"({"type":"reasoning","content":"x"})", "input[1].content", "must be an array, not"},
      {R"({"type":"reasoning","summary":[{"type":"summary_text"}]})", "input[1].summary[0]",
       "must be an object with a string 'text'"},
      {R"({"type":"reasoning","summary":["x"]})", "input[1].summary[0]", "must be an object with"},
  };
  for (const auto& one : kCases) {
    const Read read = ReadMembers(R"("input":[)" + Joined({kUser, one.item, kUser}) + "]");
    ASSERT_FALSE(read.status.ok()) << one.item;
    const ApiError error = ApiErrorFromStatus(read.status);
    EXPECT_EQ(error.http_status, 400);
    EXPECT_EQ(error.param.value_or("(none)"), one.param) << one.item;
    EXPECT_NE(error.message.find(one.mention), std::string::npos) << error.message;
  }
}

TEST(ResponsesInput, HasToHaveSomething) {
  for (const std::string& members :
       {std::string(), std::string(R"("input":null)"), std::string(R"("input":[])"),
        std::string(R"("input":5)"), std::string(R"("input":{})"),
        R"("input":[)" + Reasoning("a") + "]"}) {
    const Read read = ReadMembers(members);
    ASSERT_FALSE(read.status.ok()) << members;
    EXPECT_EQ(ApiErrorFromStatus(read.status).param, "input");
  }
}

}  // namespace
}  // namespace refrain::server::openai
