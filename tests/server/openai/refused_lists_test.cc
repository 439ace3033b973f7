// A list of more elements than are accepted is refused for its size: nothing of it is copied.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "server/concat.h"
#include "server/json.h"
#include "server/openai/protocol.h"
#include "server/status_mapping.h"
#include "tests/support/heap_counts.h"

namespace refrain::server::openai {
namespace {

using ::refrain::testing::HeapCountsOfThread;

constexpr int kElements = 20'000;
// What a refused request takes for its other fields, its message and so on.
constexpr int64_t kFewAllocations = 1000;

std::string ListOf(const std::string& element) {
  std::string list = "[" + element;
  for (int i = 1; i < kElements; ++i) list += "," + element;
  return list + "]";
}

void ExpectRefusedAsItIs(Endpoint endpoint, const std::string& field, const std::string& element,
                         const std::string& problem) {
  const std::string prompt = endpoint == Endpoint::kChatCompletions
                                 ? R"("messages":[{"role":"user","content":"hi"}])"
                                 : Concat("\"", InputField(endpoint), "\":\"a\"");
  const Json body = *ParseJson(
      Concat("{", field == "input" ? "" : prompt + ",", "\"", field, "\":", ListOf(element), "}"));
  const ModelLimits limits = {.vocab_size = 258, .tools = engine::ToolFormat::kHermes};
  const int64_t before = HeapCountsOfThread().allocations;
  const auto call = ReadGenerationCall(endpoint, body, limits);
  EXPECT_LT(HeapCountsOfThread().allocations - before, kFewAllocations) << field;
  ASSERT_FALSE(call.ok()) << field;
  const ApiError error = ApiErrorFromStatus(call.status());
  EXPECT_EQ(error.param.value_or("(none)"), field);
  EXPECT_NE(error.message.find(problem), std::string::npos) << error.message;
}

TEST(RefusedLists, AreNotCopied) {
  const std::string long_text = "\"a text that does not fit into a string's own bytes\"";
  for (const Endpoint endpoint :
       {Endpoint::kCompletions, Endpoint::kChatCompletions, Endpoint::kResponses}) {
    ExpectRefusedAsItIs(endpoint, "stop", long_text, "has 20000 strings; at most 16 are");
    ExpectRefusedAsItIs(endpoint, "stop", "1", "has 20000 strings; at most 16 are");
    ExpectRefusedAsItIs(endpoint, "bad_words", long_text, "has 20000 words; at most 256 are");
    ExpectRefusedAsItIs(endpoint, "stop_token_ids", "1", "has 20000 ids; at most ");
    ExpectRefusedAsItIs(endpoint, "allowed_token_ids", "1", "has 20000 ids; at most 258 are");
  }
}

// What a chat template would see is not made of them, either.
TEST(RefusedLists, OfAChatBecomeNoTemplateValues) {
  const std::string tool = R"({"type":"function","name":"f","function":{"name":"f"}})";
  for (const Endpoint endpoint : {Endpoint::kChatCompletions, Endpoint::kResponses}) {
    ExpectRefusedAsItIs(endpoint, "tools", tool, "has 20000 tools; at most 1024 are accepted");
    ExpectRefusedAsItIs(endpoint, "documents", "[1]",
                        "must be an array of objects, not of an array");
  }
  ExpectRefusedAsItIs(Endpoint::kResponses, "input", R"({"role":"user","content":"hi"})",
                      "an array of 1 to 16384 items");
  ExpectRefusedAsItIs(Endpoint::kResponses, "include", "5", "must be an array of strings");
}

}  // namespace
}  // namespace refrain::server::openai
