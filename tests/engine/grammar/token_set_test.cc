#include "engine/grammar/token_set.h"

#include <gtest/gtest.h>

#include <vector>

namespace refrain::engine {
namespace {

using kvcache::TokenId;

std::vector<TokenId> All(const TokenSet& set) {
  std::vector<TokenId> all;
  set.ForEach([&](TokenId token) { all.push_back(token); });
  return all;
}

// On both sides of a word's border, and at the end of a vocabulary that fills no word.
TEST(TokenSetTest, HasWhatWasAdded) {
  const std::vector<TokenId> tokens = {TokenId{0}, TokenId{63}, TokenId{64}, TokenId{129}};
  TokenSet set(130);
  for (const TokenId token : tokens) set.Add(token);
  set.Add(TokenId{63});
  EXPECT_EQ(set.Count(), 4u);
  EXPECT_EQ(All(set), tokens);
  for (const TokenId token : tokens) EXPECT_TRUE(set.Has(token));
  EXPECT_FALSE(set.Has(TokenId{128}));
  EXPECT_FALSE(set.Has(TokenId{130}));
  EXPECT_FALSE(set.Has(TokenId{-1}));
}

// Two sets with one token in common.
TEST(TokenSetTest, AddsAllOfAnother) {
  TokenSet one(100), other(100);
  one.Add(TokenId{1});
  one.Add(TokenId{99});
  other.Add(TokenId{1});
  other.Add(TokenId{70});
  one.AddAll(other);
  EXPECT_EQ(All(one), (std::vector{TokenId{1}, TokenId{70}, TokenId{99}}));
  EXPECT_EQ(other.Count(), 2u);
  one.Clear();
  EXPECT_EQ(one, TokenSet(100));
}

}  // namespace
}  // namespace refrain::engine
