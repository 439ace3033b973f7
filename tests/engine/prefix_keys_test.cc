#include "engine/prefix_keys.h"

#include <gtest/gtest.h>

#include <set>

namespace refrain::engine {
namespace {

constexpr int32_t kChunkTokens = 16;
const kvcache::Namespace kNone;

std::vector<kvcache::TokenId> Tokens(int32_t count) {
  std::vector<kvcache::TokenId> tokens;
  for (int32_t i = 0; i < count; ++i) tokens.push_back(kvcache::TokenId{i});
  return tokens;
}

TEST(PrefixKeysTest, NameWholeChunksAndAllBeforeThem) {
  const PrefixKeyMaker maker(kChunkTokens);
  const PrefixKeys keys = maker.OfPrompt(kNone, Tokens(40));
  ASSERT_EQ(keys.size(), 2u);
  EXPECT_NE(keys[0], keys[1]);
  EXPECT_EQ(maker.OfPrompt(kNone, Tokens(32)), keys);
  // Another first token changes the second chunk's key as well.
  std::vector<kvcache::TokenId> other = Tokens(32);
  other[0] = kvcache::TokenId{99};
  EXPECT_NE(maker.OfPrompt(kNone, other)[1], keys[1]);
}

// Behind whole chunks one key more, where more than the last token is left: of all but that.
TEST(PrefixKeysTest, ARequestsKeysNameAllThatCanBeShared) {
  const PrefixKeyMaker maker(kChunkTokens);
  for (const size_t tokens : {1, 2, 3, 15, 16, 17, 18, 31, 32, 33, 40}) {
    const std::vector<kvcache::TokenId> prompt = Tokens(static_cast<int32_t>(tokens));
    const PromptKeys keys = maker.OfRequest(kNone, prompt);
    const auto whole = keys.whole();
    EXPECT_EQ(PrefixKeys(whole.begin(), whole.end()), maker.OfPrompt(kNone, prompt)) << tokens;
    EXPECT_EQ(keys.has_tail(), tokens % 16 > 1) << tokens;
    EXPECT_EQ(keys.all.size(), tokens / 16 + (keys.has_tail() ? 1 : 0)) << tokens;
  }
  const std::vector<kvcache::TokenId> prompt = Tokens(40);
  const uint64_t tail = maker.OfRequest(kNone, prompt).all.back();
  const auto with = [&](size_t place) {
    std::vector<kvcache::TokenId> other = prompt;
    other[place] = kvcache::TokenId{99};
    return maker.OfRequest(kNone, other).all.back();
  };
  EXPECT_EQ(with(39), tail);
  for (const size_t place : {0, 16, 32, 38}) EXPECT_NE(with(place), tail) << place;
  EXPECT_NE(maker.OfRequest(kNone, Tokens(39)).all.back(), tail);
  EXPECT_NE(maker.OfRequest({.tenant = "a"}, prompt).all.back(), tail);
}

// Also those whose names run together, or are each other's.
TEST(PrefixKeysTest, NamespacesHaveNoKeyInCommon) {
  const PrefixKeyMaker maker(kChunkTokens);
  const kvcache::Namespace namespaces[] = {{},          {"ab", "c"}, {"a", "bc"}, {"abc", ""},
                                           {"", "abc"}, {"a", "b"},  {"b", "a"}};
  std::set<uint64_t> keys;
  size_t made = 0;
  for (const auto& name_space : namespaces) {
    for (const uint64_t key : maker.OfPrompt(name_space, Tokens(64))) {
      keys.insert(key);
      ++made;
    }
  }
  EXPECT_EQ(keys.size(), made);
}

// Nobody can work them out outside of the process.
TEST(PrefixKeysTest, AreAnotherMakersOwn) {
  EXPECT_NE(PrefixKeyMaker(kChunkTokens).OfPrompt(kNone, Tokens(32)),
            PrefixKeyMaker(kChunkTokens).OfPrompt(kNone, Tokens(32)));
}

// Behind the prompt's own, as if both had been named in one piece.
TEST(PrefixKeysTest, KeysOfAnAnswerGoOnWhereThePromptsEnd) {
  const PrefixKeyMaker maker(kChunkTokens);
  const kvcache::Namespace name_space{"tenant", "salt"};
  const std::vector<kvcache::TokenId> tokens = Tokens(200);
  for (const size_t prompt_tokens : {1, 15, 16, 17, 160}) {
    const auto prompt = std::span(tokens).first(prompt_tokens);
    for (const size_t answer_tokens : {0, 1, 15, 16, 40}) {
      const auto answer = std::span(tokens).subspan(prompt_tokens, answer_tokens);
      const PrefixKeys of_prompt = maker.OfPrompt(name_space, prompt);
      PrefixKeys keys = of_prompt;
      for (const uint64_t key : maker.OfAnswer(name_space, of_prompt, prompt, answer)) {
        keys.push_back(key);
      }
      EXPECT_EQ(keys,
                maker.OfPrompt(name_space, std::span(tokens).first(prompt_tokens + answer_tokens)))
          << prompt_tokens << " and " << answer_tokens;
    }
  }
}

}  // namespace
}  // namespace refrain::engine
