#include "engine/grammar/token_trie.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/grammar/grammar.h"
#include "tests/engine/text/text_test_data.h"
#include "tests/support/fake_tokenizer.h"

namespace refrain::engine {
namespace {

using kvcache::TokenId;
using ::refrain::testing::FakeTokenizer;

// Tokens 0 and 1 are control tokens; the last one ends the generation, and is none.
class TokenizerWithControls : public FakeTokenizer {
 public:
  using FakeTokenizer::FakeTokenizer;
  bool IsControl(TokenId id) const override { return id < TokenId{2}; }
};

std::vector<TokenId> Ids(std::span<const TokenId> ids) { return {ids.begin(), ids.end()}; }

std::vector<TokenId> AllOf(const TokenTrie& trie) {
  std::vector<TokenId> ids = Ids(trie.TokensBelow(0));
  std::sort(ids.begin(), ids.end());
  return ids;
}

// That each node's range, depth and tokens are those that the bytes of all tokens say.
void ExpectRight(const TokenTrie& trie) {
  const std::span<const TokenTrie::Node> nodes = trie.nodes();
  std::vector<std::string> prefixes(nodes.size());
  for (uint32_t i = 0; i < nodes.size(); ++i) {
    if (i > 0) {
      prefixes[i] = prefixes[i - 1].substr(0, nodes[i].depth - 1u);
      prefixes[i].push_back(static_cast<char>(nodes[i].byte));
      EXPECT_LT(prefixes[i - 1], prefixes[i]) << i;
    }
    ASSERT_EQ(prefixes[i].size(), nodes[i].depth) << i;
    std::vector<TokenId> here, below;
    for (int32_t id = 0; static_cast<size_t>(id) < trie.vocab_size(); ++id) {
      const std::string_view bytes = trie.BytesOf(TokenId{id});
      if (bytes.empty()) continue;
      if (bytes == prefixes[i]) here.push_back(TokenId{id});
      if (bytes.substr(0, prefixes[i].size()) == prefixes[i]) below.push_back(TokenId{id});
    }
    EXPECT_EQ(Ids(trie.TokensAt(i)), here) << i;
    std::vector<TokenId> told = Ids(trie.TokensBelow(i));
    EXPECT_TRUE(std::equal(here.begin(), here.end(), told.begin())) << i;
    std::sort(told.begin(), told.end());
    EXPECT_EQ(told, below) << i;
    EXPECT_FALSE(below.empty() && i > 0) << i;
  }
  for (uint32_t i = 0; i < nodes.size(); ++i) {
    uint32_t end = i + 1;
    while (end < nodes.size() && nodes[end].depth > nodes[i].depth) ++end;
    EXPECT_EQ(nodes[i].end, end) << i;
  }
}

// Random vocabularies of few letters, so that tokens begin with each other and some are twice.
TEST(TokenTrieTest, HoldsEachTokenBelowItsPrefixes) {
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::string> pieces;
    for (size_t i = random() % 40; i > 0; --i) {
      std::string piece;
      for (size_t n = 1 + random() % 5; n > 0; --n) piece.push_back("a\x80\xFEz"[random() % 4]);
      pieces.push_back(std::move(piece));
    }
    pieces.push_back("</s>");
    const FakeTokenizer tokenizer(pieces);
    const TokenTrie trie(tokenizer, pieces.size(), {});
    EXPECT_EQ(AllOf(trie).size(), pieces.size() - 1);
    ExpectRight(trie);
  }
}

// A vocabulary of nothing but the end.
TEST(TokenTrieTest, MayBeEmpty) {
  const TokenTrie trie(FakeTokenizer({"</s>"}), 1, {});
  EXPECT_EQ(trie.nodes().size(), 1u);
  EXPECT_EQ(trie.nodes()[0].end, 1u);
  EXPECT_TRUE(trie.TokensBelow(0).empty());
}

// A tag of thoughts is a control token, and may be spelled.
TEST(TokenTrieTest, HasOfControlTokensThoseThatAreSpelled) {
  const TokenizerWithControls tokenizer({"<think>", "</think>", "a", "</s>"});
  const TokenTrie plain(tokenizer, 4, {});
  EXPECT_EQ(AllOf(plain), std::vector{TokenId{2}});
  EXPECT_EQ(plain.BytesOf(TokenId{1}), "");
  const std::vector<TokenId> spelled = {TokenId{1}, TokenId{3}};
  const TokenTrie trie(tokenizer, 4, spelled);
  EXPECT_EQ(AllOf(trie), (std::vector{TokenId{1}, TokenId{2}, TokenId{3}}));
  EXPECT_EQ(trie.BytesOf(TokenId{1}), "\xFF</think>");
}

// Vocabularies have tokens of every byte: that of the mark would stand for the beginning of a
// control token.
TEST(TokenTrieTest, LeavesOutTextWithTheMarkOfControlTokens) {
  const TokenTrie trie(FakeTokenizer({"\xFF", "a\xFF", "\xFE", "</s>"}), 4, {});
  EXPECT_EQ(AllOf(trie), std::vector{TokenId{2}});
}

// Nothing is told of continuations longer than kTwinBytes; a token of no bytes would be allowed
// for ever.
TEST(TokenTrieTest, LeavesOutTokensOfNoBytesAndOverlongOnes) {
  const size_t most = Grammar::kTwinBytes;
  const TokenTrie trie(
      FakeTokenizer({"", std::string(most, ' '), std::string(most + 1, ' '), "</s>"}), 4, {});
  EXPECT_EQ(AllOf(trie), std::vector{TokenId{1}});
  EXPECT_EQ(trie.nodes().size(), most + 1);
  ExpectRight(trie);
}

// A model's last layer may have more rows than the tokenizer has tokens, or fewer.
TEST(TokenTrieTest, EndsWhereVocabularyOrTokenizerEnds) {
  const FakeTokenizer tokenizer({"a", "b", "c", "</s>"});
  const TokenTrie padded(tokenizer, 64, {});
  EXPECT_EQ(AllOf(padded).size(), 3u);
  EXPECT_EQ(padded.vocab_size(), 64u);
  EXPECT_EQ(padded.BytesOf(TokenId{63}), "");
  EXPECT_EQ(padded.BytesOf(TokenId{64}), "");
  EXPECT_EQ(padded.BytesOf(TokenId{-1}), "");
  EXPECT_EQ(AllOf(TokenTrie(tokenizer, 2, {})), (std::vector{TokenId{0}, TokenId{1}}));
}

// A real vocabulary: its text tokens, byte for byte.
TEST(TokenTrieTest, HasTheTextTokensOfAModel) {
  const auto tokenizer = SmolLm2Tokenizer();
  ASSERT_NE(tokenizer, nullptr);
  const TokenTrie trie(*tokenizer, tokenizer->vocab_size(), {});
  size_t found = 0;
  for (int32_t i = 0; static_cast<size_t>(i) < tokenizer->vocab_size(); ++i) {
    const TokenId id{i};
    if (tokenizer->IsControl(id) || tokenizer->TokenBytes(id).size() > Grammar::kTwinBytes) {
      EXPECT_EQ(trie.BytesOf(id), "") << i;
      continue;
    }
    EXPECT_EQ(trie.BytesOf(id), tokenizer->TokenBytes(id)) << i;
    ++found;
  }
  EXPECT_EQ(trie.TokensBelow(0).size(), found);
  EXPECT_GT(found, 49'000u);
}

}  // namespace
}  // namespace refrain::engine
