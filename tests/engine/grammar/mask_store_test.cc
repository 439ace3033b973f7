#include "engine/grammar/mask_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/grammar/grammar_builder.h"
#include "tests/support/fake_tokenizer.h"
#include "tests/support/refused_memory.h"

namespace refrain::engine {
namespace {

using kvcache::TokenId;
using ::refrain::testing::FakeTokenizer;
using ::refrain::testing::RefuseEachAllocation;

Grammar Finish(GrammarBuilder builder, RuleId root) {
  absl::StatusOr<Grammar> grammar = std::move(builder).Finish(root);
  EXPECT_TRUE(grammar.ok()) << grammar.status();
  return *std::move(grammar);
}

// `bytes` and nothing else.
Grammar Literal(const std::string& bytes) {
  GrammarBuilder builder;
  const RuleId rule = builder.AddRule();
  builder.AddSkip(builder.AddLiteral(builder.begin(rule), bytes), builder.end(rule));
  return Finish(std::move(builder), rule);
}

struct Found {
  std::vector<std::string> tokens, ends;
  friend bool operator==(const Found&, const Found&) = default;
};

Found Read(const StateMask& mask, const TokenTrie& trie) {
  TokenSet allowed(trie.vocab_size());
  mask.AddTo(&allowed);
  Found found;
  allowed.ForEach([&](TokenId token) { found.tokens.emplace_back(trie.BytesOf(token)); });
  for (const uint32_t node : mask.ends) {
    const TokenId below = trie.TokensBelow(node)[0];
    found.ends.emplace_back(trie.BytesOf(below).substr(0, trie.nodes()[node].depth));
  }
  return found;
}

Found FindStart(const Grammar& grammar, MaskStore* masks) {
  return Read(*masks->Find(grammar, grammar.start(grammar.root())), masks->trie());
}

// Whichever allocation is refused, also where another mask has to go.
TEST(MaskStoreTest, WhatFindsNoMemoryIsNotKeptAndTakesNoRoom) {
  constexpr size_t kMostBytes = 6000;  // some twenty
  const FakeTokenizer tokenizer({"a", "ab", "b"});
  const TokenTrie trie(tokenizer, tokenizer.vocab_size(), {});
  MaskStore masks(&trie, kMostBytes);
  size_t most_bytes = 0;
  for (size_t bytes = 1; bytes < 40; ++bytes) {
    const Grammar grammar = Literal(std::string(bytes, 'a'));
    const auto find = [&] { return masks.Find(grammar, grammar.start(grammar.root())); };
    EXPECT_GE(RefuseEachAllocation(find), 3);
    EXPECT_EQ(Read(*find(), trie), FindStart(grammar, &masks));
    EXPECT_EQ(find(), find()) << "kept";
    most_bytes = std::max(most_bytes, masks.memory_bytes());
    ASSERT_LE(most_bytes, kMostBytes);
  }
  EXPECT_GT(most_bytes, kMostBytes * 3 / 4);
}

// word = "ab" "b"*: tokens that stay in it are allowed, and the caller is asked behind "ab" and
// "abb", where tokens go on.
TEST(MaskStoreTest, TellsTheTokensOfARuleAndWhereItMayHaveEnded) {
  GrammarBuilder builder;
  const RuleId word = builder.AddRule();
  const NodeId behind = builder.AddLiteral(builder.begin(word), "ab");
  builder.AddBytes(behind, 'b', 'b', behind);
  builder.AddSkip(behind, builder.end(word));
  const Grammar grammar = Finish(std::move(builder), word);
  const TokenTrie trie(FakeTokenizer({"a", "ab", "abb", "abc", "abbcd", "b", "ac", "</s>"}), 8, {});
  MaskStore masks(&trie, 10'000);
  EXPECT_EQ(FindStart(grammar, &masks), (Found{{"a", "ab", "abb"}, {"ab", "abb"}}));
}

// Each of its tokens is an end, and those behind a short one stand behind the longer ones, too.
TEST(MaskStoreTest, CountsNodesBelowSeveralEndsOnce) {
  GrammarBuilder builder;
  const RuleId word = builder.AddRule();
  builder.AddBytes(builder.begin(word), 'a', 'a', builder.begin(word));
  builder.AddSkip(builder.begin(word), builder.end(word));
  const Grammar grammar = Finish(std::move(builder), word);
  const TokenTrie trie(FakeTokenizer({"a", "aa", "aaa", "aaab", "</s>"}), 5, {});
  MaskStore masks(&trie, 10'000);
  const auto mask = masks.Find(grammar, grammar.start(grammar.root()));
  ASSERT_EQ(mask->ends.size(), 3u);
  EXPECT_LE(mask->nodes_below_ends, trie.nodes().size());
}

// outer = "(" inner ")" | inner: the mask of a state goes through the calls behind its bytes; what
// is called at once has its own.
TEST(MaskStoreTest, GoesThroughCallsButForThoseAtOnce) {
  GrammarBuilder builder;
  const RuleId outer = builder.AddRule(), inner = builder.AddRule();
  builder.AddSkip(builder.AddLiteral(builder.begin(inner), "x"), builder.end(inner));
  builder.AddSkip(builder.AddLiteral(
                      builder.AddCalled(builder.AddLiteral(builder.begin(outer), "("), inner), ")"),
                  builder.end(outer));
  builder.AddCall(builder.begin(outer), inner, builder.end(outer));
  const Grammar grammar = Finish(std::move(builder), outer);
  const TokenTrie trie(FakeTokenizer({"(", "(x", "(x)", "(x)y", "x", "x)", "</s>"}), 7, {});
  MaskStore masks(&trie, 10'000);
  EXPECT_EQ(FindStart(grammar, &masks), (Found{{"(", "(x", "(x)"}, {"(x)"}}));
  const Grammar::CallEdge call = grammar.calls(grammar.start(grammar.root()))[0];
  EXPECT_EQ(Read(*masks.Find(grammar, grammar.start(call.rule)), trie), (Found{{"x"}, {"x"}}));
}

// A state that takes anything, and one that takes a single token of very many.
TEST(MaskStoreTest, KeepsFewTokensAsTheirIds) {
  std::vector<std::string> pieces;
  for (int i = 0; i < 10'000; ++i) pieces.push_back("a" + std::to_string(i));
  pieces.push_back("</s>");
  const TokenTrie trie(FakeTokenizer(pieces), pieces.size(), {});
  MaskStore masks(&trie, 1'000'000);
  const Grammar one = Literal("a42");
  const auto few = masks.Find(one, one.start(one.root()));
  EXPECT_EQ(Read(*few, trie).tokens, (std::vector<std::string>{"a4", "a42"}));
  EXPECT_LT(few->memory_bytes(), 400u);

  GrammarBuilder builder;
  const RuleId rule = builder.AddRule();
  builder.AddBytes(builder.begin(rule), 0, 255, builder.begin(rule));
  builder.AddSkip(builder.begin(rule), builder.end(rule));
  const Grammar any = Finish(std::move(builder), rule);
  const auto many = masks.Find(any, any.start(any.root()));
  EXPECT_EQ(Read(*many, trie).tokens.size(), 10'000u);
  EXPECT_EQ(masks.memory_bytes(), few->memory_bytes() + many->memory_bytes());
}

// The same words in another grammar, with others before them.
TEST(MaskStoreTest, IsSharedByGrammars) {
  const TokenTrie trie(FakeTokenizer({"a", "b", "ab", "</s>"}), 4, {});
  MaskStore masks(&trie, 10'000);
  const Grammar short_one = Literal("ab"), long_one = Literal("bab");
  const auto mask = masks.Find(short_one, short_one.start(short_one.root()));
  const StateId behind = long_one.bytes(long_one.start(long_one.root()))[0].to;
  EXPECT_EQ(masks.Find(long_one, behind), mask);
  EXPECT_NE(masks.Find(long_one, long_one.start(long_one.root())), mask);
}

// Room for two masks: the one that is used again and again stays.
TEST(MaskStoreTest, LetsGoWhatWasNotUsedForLongest) {
  const TokenTrie trie(FakeTokenizer({"a", "b", "c", "d", "</s>"}), 5, {});
  const Grammar used = Literal("a");
  const StateId start = used.start(used.root());
  const size_t one = MaskStore(&trie, 10'000).Find(used, start)->memory_bytes();
  MaskStore masks(&trie, 2 * one);
  const auto kept = masks.Find(used, start);
  const Grammar first = Literal("b");
  const auto gone = masks.Find(first, first.start(first.root()));
  EXPECT_EQ(masks.Find(used, start), kept);
  const Grammar second = Literal("c");
  masks.Find(second, second.start(second.root()));
  EXPECT_EQ(masks.memory_bytes(), 2 * one);
  EXPECT_EQ(masks.Find(used, start), kept);
  EXPECT_NE(masks.Find(first, first.start(first.root())), gone);
  EXPECT_EQ(Read(*gone, trie).tokens, std::vector<std::string>{"b"});  // whoever holds it has it
}

// Of two that make the same at once only one is kept, and counted.
TEST(MaskStoreTest, KeepsOneOfThoseThatTwoThreadsMake) {
  std::vector<std::string> pieces;
  for (int i = 0; i < 20'000; ++i) pieces.push_back("a" + std::to_string(i));
  pieces.push_back("</s>");
  const TokenTrie trie(FakeTokenizer(pieces), pieces.size(), {});
  GrammarBuilder builder;
  const RuleId rule = builder.AddRule();
  builder.AddBytes(builder.begin(rule), 0, 255, builder.begin(rule));
  builder.AddSkip(builder.begin(rule), builder.end(rule));
  const Grammar any = Finish(std::move(builder), rule);
  const StateId start = any.start(any.root());
  for (int round = 0; round < 20; ++round) {
    MaskStore masks(&trie, 1'000'000);
    std::barrier together(2);
    const auto find = [&] {
      together.arrive_and_wait();
      masks.Find(any, start);
    };
    std::thread other(find);
    find();
    other.join();
    EXPECT_EQ(masks.memory_bytes(), masks.Find(any, start)->memory_bytes());
  }
}

// No room at all: each is made anew, and right.
TEST(MaskStoreTest, WorksWithoutRoom) {
  const TokenTrie trie(FakeTokenizer({"a", "b", "</s>"}), 3, {});
  MaskStore masks(&trie, 0);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(FindStart(Literal("b"), &masks), (Found{{"b"}, {}}));
    EXPECT_EQ(masks.memory_bytes(), 0u);
  }
}

}  // namespace
}  // namespace refrain::engine
