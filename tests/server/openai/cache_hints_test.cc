// What a client says of the time for which its prompt is worth keeping.

#include <gtest/gtest.h>

#include <string>

#include "server/openai/protocol.h"

namespace refrain::server::openai {
namespace {

// Whether a request with these members asks for its prompt to be kept.
bool Keeps(Endpoint endpoint, const std::string& members) {
  const auto call =
      ParseGenerationCall(endpoint, "{" + members + "}", {.max_context_tokens = 4096});
  EXPECT_TRUE(call.ok()) << call.status();
  if (!call.ok()) return false;
  EXPECT_EQ(call->first().cache_salt, "");
  EXPECT_TRUE(call->ignored_fields.empty());
  return call->first().keep_cached;
}

bool CompletionKeeps(const std::string& members) {
  return Keeps(Endpoint::kCompletions, R"("prompt":"hi")" + members);
}

// `part`: members of a part of its first message.
bool ChatKeeps(const std::string& part, const std::string& members = "") {
  return Keeps(Endpoint::kChatCompletions,
               R"("messages":[{"role":"system","content":["a",{"type":"text","text":"b")" + part +
                   R"(}]},{"role":"user","content":"hi"}])" + members);
}

// A key names no namespace; it tells that the prompt will come again.
TEST(CacheHints, AreTakenFromPromptCacheFields) {
  EXPECT_FALSE(CompletionKeeps(""));
  EXPECT_TRUE(CompletionKeeps(R"(,"prompt_cache_key":"user-7")"));
  EXPECT_TRUE(CompletionKeeps(R"(,"prompt_cache_retention":"24h")"));
  // OpenAI's description and its clients spell it differently.
  for (const std::string in_memory : {"in_memory", "in-memory"}) {
    EXPECT_FALSE(CompletionKeeps(R"(,"prompt_cache_key":"user-7","prompt_cache_retention":")" +
                                 in_memory + "\""));
  }
  EXPECT_TRUE(CompletionKeeps(R"(,"max_tokens":0)"));
  const auto report = ParseGenerationCall(
      Endpoint::kCompletions, R"({"prompt":"hi","cache_report":true})", {.max_context_tokens = 64});
  EXPECT_TRUE(report->output.cache_report);
}

// A retention is the longest time that is wanted, a lifetime the shortest.
TEST(CacheHints, ALifetimeIsOneWhateverTheRetention) {
  EXPECT_FALSE(CompletionKeeps(R"(,"prompt_cache_options":{"mode":"implicit","ttl":null})"));
  EXPECT_TRUE(CompletionKeeps(R"(,"prompt_cache_options":{"ttl":"30m"})"));
  EXPECT_TRUE(ChatKeeps("", R"(,"prompt_cache_options":{"mode":"implicit","ttl":"12h"})"));
  EXPECT_TRUE(CompletionKeeps(
      R"(,"prompt_cache_options":{"ttl":"30m"},"prompt_cache_retention":"in_memory")"));
  EXPECT_TRUE(CompletionKeeps(R"(,"prompt_cache_options":{},"prompt_cache_retention":"24h")"));
}

TEST(CacheHints, ABreakpointOfAPartIsOne) {
  EXPECT_FALSE(ChatKeeps(""));
  EXPECT_FALSE(ChatKeeps(R"(,"prompt_cache_breakpoint":null)"));
  EXPECT_TRUE(ChatKeeps(R"(,"prompt_cache_breakpoint":{"mode":"explicit"})"));
  EXPECT_TRUE(ChatKeeps(R"(,"prompt_cache_breakpoint":{"mode":"explicit","ttl":"12h"})"));
}

// Who wants breakpoints alone, and sets none, wants nothing kept.
TEST(CacheHints, ExplicitWithoutABreakpointOverrulesTheOthers) {
  const std::string explicit_mode =
      R"(,"prompt_cache_options":{"mode":"explicit","ttl":"30m"},"prompt_cache_key":"k")";
  EXPECT_FALSE(ChatKeeps("", explicit_mode));
  EXPECT_FALSE(CompletionKeeps(explicit_mode + R"(,"max_tokens":0)"));
  EXPECT_TRUE(ChatKeeps(R"(,"prompt_cache_breakpoint":{"mode":"explicit"})", explicit_mode));
}

}  // namespace
}  // namespace refrain::server::openai
