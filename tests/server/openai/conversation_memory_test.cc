// What conversations take in memory, many times their bytes where they hold many small values.

#include <gtest/gtest.h>

#include <string>

#include "server/openai/protocol.h"
#include "server/status_mapping.h"
#include "tests/support/allocated_bytes.h"

namespace refrain::server::openai {
namespace {

using ::refrain::testing::AllocatedBytes;

absl::StatusOr<GenerationCall> Chat(const std::string& messages, const std::string& members = "",
                                    ModelLimits limits = {}) {
  limits.max_context_tokens = 4096;
  limits.tools = engine::ToolFormat::kHermes;
  return ParseGenerationCall(Endpoint::kChatCompletions,
                             R"({"messages":[)" + messages + "]" + members + "}", limits);
}

void ExpectRefused(const absl::StatusOr<GenerationCall>& call, const char* param,
                   const char* mention) {
  ASSERT_FALSE(call.ok());
  const ApiError error = ApiErrorFromStatus(call.status());
  EXPECT_EQ(error.http_status, 400);
  EXPECT_EQ(error.param, param);
  EXPECT_NE(error.message.find(mention), std::string::npos) << error.message;
}

// As those of the body itself: empty values take many times their text, and each call has its own.
TEST(ConversationMemory, IsBoundedForAllToolArguments) {
  const auto call_with = [](int calls) {
    std::string values = "[]";
    for (int i = 1; i < 10'000; ++i) values += ",[]";  // 720 KB
    std::string list;
    for (int i = 0; i < calls; ++i) {
      list += i == 0 ? "" : ",";
      list += R"({"function":{"name":"f","arguments":"{\"x\":[)" + values + R"(]}"}})";
    }
    return Chat(R"({"role":"user","content":"hi"},{"role":"assistant","tool_calls":[)" + list +
                "]}");
  };
  EXPECT_TRUE(call_with(30).ok());
  ExpectRefused(call_with(60), "messages[1].tool_calls", "bytes of memory");
}

// What is counted of a conversation that waits.
TEST(ConversationMemory, IsToldAboutAsItIs) {
  const auto values = [](const std::string& value) {
    std::string list = value;
    for (int i = 1; i < 20'000; ++i) list += "," + value;
    return list;
  };
  const char* const kTen = R"({"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"h":8,"i":9,"j":0})";
  const std::string kMembers[] = {
      R"(,"chat_template_kwargs":{"x":[)" + values("{}") + "]}",
      R"(,"chat_template_kwargs":{"x":[)" + values(R"({"a":0})") + "]}",
      R"(,"chat_template_kwargs":{"x":[)" + values(kTen) + "]}",
      R"(,"chat_template_kwargs":{"x":[)" + values("[]") + "]}",
      R"(,"chat_template_kwargs":{"x":[)" + values("1") + "]}",
      R"(,"documents":[{"x":[)" + values(R"("two words")") + "]}]",
  };
  for (const std::string& members : kMembers) {
    const size_t before = AllocatedBytes();
    const auto call = Chat(R"({"role":"user","content":"hi"})", members);
    ASSERT_TRUE(call.ok()) << call.status();
    const auto got = static_cast<double>(AllocatedBytes() - before);
    const auto told = static_cast<double>(call->conversation_bytes);
    EXPECT_GT(told, 0.7 * got) << members.substr(0, 60);
    if (got > 0) {
      EXPECT_LT(told, 1.7 * got) << members.substr(0, 60);
    }
  }
}

TEST(ConversationMemory, IsNoMoreThanAllMayHold) {
  ModelLimits limits;
  limits.max_conversation_bytes = 100'000;
  const auto read = [&](const std::string& member, int count) {
    std::string list = "{}";
    for (int i = 1; i < count; ++i) list += ",{}";
    return Chat(
        R"({"role":"user","content":"hi"},{"role":"assistant",)" + member + list + "]}\"}}]}", "",
        limits);
  };
  const std::string arguments = R"("tool_calls":[{"function":{"name":"f","arguments":"{\"x\":[)";
  EXPECT_TRUE(read(arguments, 500).ok());
  ExpectRefused(read(arguments, 1000), "messages[1].tool_calls", "100000 bytes of memory");
  ExpectRefused(
      Chat(R"({"role":"user","content":")" + std::string(100'000, 'a') + "\"}", "", limits),
      "messages", "100000 bytes of memory");
}

}  // namespace
}  // namespace refrain::server::openai
