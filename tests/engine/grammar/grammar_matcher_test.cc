#include "engine/grammar/grammar_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/grammar/grammar_builder.h"
#include "tests/engine/grammar/naive_acceptor.h"
#include "tests/support/fake_tokenizer.h"

namespace refrain::engine {
namespace {

using kvcache::TokenId;
using ::refrain::testing::FakeTokenizer;
using ::refrain::testing::NaiveAcceptor;

std::shared_ptr<const Grammar> Finish(GrammarBuilder builder, RuleId root) {
  absl::StatusOr<Grammar> grammar = std::move(builder).Finish(root);
  EXPECT_TRUE(grammar.ok()) << grammar.status();
  return std::make_shared<const Grammar>(*std::move(grammar));
}

struct Vocabulary {
  explicit Vocabulary(std::vector<std::string> pieces, size_t vocab_size = 64)
      : trie(FakeTokenizer(WithEnd(std::move(pieces))), vocab_size, {}),
        masks(std::make_shared<MaskStore>(&trie, 1'000'000)) {}

  static std::vector<std::string> WithEnd(std::vector<std::string> pieces) {
    pieces.push_back("</s>");
    return pieces;
  }
  std::vector<std::string> Allowed(GrammarMatcher& matcher) const {
    TokenSet allowed(trie.vocab_size());
    matcher.FindAllowed(&allowed);
    std::vector<std::string> texts;
    allowed.ForEach([&](TokenId token) { texts.emplace_back(trie.BytesOf(token)); });
    return texts;
  }

  TokenTrie trie;
  std::shared_ptr<MaskStore> masks;
};

using Texts = std::vector<std::string>;

// value = "[" (value ("," value)*)? "]" | "{" (value ("," value)*)? "}" | "1"+
std::shared_ptr<const Grammar> Nested() {
  GrammarBuilder builder;
  const RuleId value = builder.AddRule();
  const NodeId digit = builder.AddLiteral(builder.begin(value), "1");
  builder.AddBytes(digit, '1', '1', digit);
  builder.AddSkip(digit, builder.end(value));
  for (const std::string_view brackets : {"[]", "{}"}) {
    const NodeId begin = builder.AddLiteral(builder.begin(value), brackets.substr(0, 1));
    const NodeId behind = builder.AddCalled(begin, value);
    builder.AddCall(builder.AddLiteral(behind, ","), value, behind);
    for (const NodeId last : {begin, behind}) {
      builder.AddSkip(builder.AddLiteral(last, brackets.substr(1)), builder.end(value));
    }
  }
  return Finish(std::move(builder), value);
}

// Tokens that end inside of a value, exactly with it, and behind it where a caller waits.
TEST(GrammarMatcherTest, AsksCallersBehindTheEndOfARule) {
  const Vocabulary words({"[", "]", "1", "1]", "1]]", "1}", ",1", "]]]", "1,{1"});
  GrammarMatcher matcher(Nested(), words.masks);
  EXPECT_EQ(words.Allowed(matcher), (Texts{"[", "1"}));
  EXPECT_FALSE(matcher.CanEnd());
  ASSERT_TRUE(matcher.Accept("["));
  EXPECT_EQ(words.Allowed(matcher), (Texts{"[", "]", "1", "1]", "1,{1"}));
  ASSERT_TRUE(matcher.Accept("[1"));
  EXPECT_EQ(words.Allowed(matcher), (Texts{"]", "1", "1]", "1]]", ",1", "1,{1"}));
  ASSERT_TRUE(matcher.AcceptToken(TokenId{4}));
  EXPECT_TRUE(matcher.MustEnd());
  EXPECT_EQ(words.Allowed(matcher), Texts{});
}

// Bytes of which the last one is wrong, and tokens that the trie does not have.
TEST(GrammarMatcherTest, StaysWhereItIsWhenItRefuses) {
  const Vocabulary words({"1", ",", "]"});
  GrammarMatcher matcher(Nested(), words.masks);
  ASSERT_TRUE(matcher.Accept("[1"));
  EXPECT_FALSE(matcher.Accept(",1}"));
  EXPECT_FALSE(matcher.AcceptToken(TokenId{3}));  // the end of the generation
  EXPECT_FALSE(matcher.AcceptToken(TokenId{63}));
  EXPECT_FALSE(matcher.AcceptToken(TokenId{-1}));
  EXPECT_EQ(words.Allowed(matcher), (Texts{"1", ",", "]"}));
  EXPECT_TRUE(matcher.Accept(""));
  EXPECT_TRUE(matcher.Accept("]"));
}

// number = "1"+ may end at each digit, and go on.
TEST(GrammarMatcherTest, MayEndWhereMoreMayFollow) {
  const Vocabulary words({"1"});
  GrammarMatcher matcher(Nested(), words.masks);
  ASSERT_TRUE(matcher.Accept("1"));
  EXPECT_TRUE(matcher.CanEnd());
  EXPECT_FALSE(matcher.MustEnd());
  EXPECT_EQ(words.Allowed(matcher), Texts{"1"});
}

// The choices of one request go their own ways.
TEST(GrammarMatcherTest, CopiesGoTheirOwnWay) {
  const Vocabulary words({"1", "]", "}"});
  GrammarMatcher one(Nested(), words.masks);
  ASSERT_TRUE(one.Accept("[{1"));
  GrammarMatcher other = one;
  ASSERT_TRUE(one.Accept("}"));
  EXPECT_EQ(words.Allowed(one), Texts{"]"});
  EXPECT_EQ(words.Allowed(other), (Texts{"1", "}"}));
  ASSERT_TRUE(other.Accept(",[[[[[1"));
  ASSERT_TRUE(one.Accept(",[{1"));
  EXPECT_EQ(words.Allowed(one), (Texts{"1", "}"}));
  EXPECT_EQ(words.Allowed(other), (Texts{"1", "]"}));
  other = one;
  ASSERT_TRUE(one.Accept("}]]"));
  EXPECT_TRUE(one.MustEnd());
  EXPECT_TRUE(other.Accept("}]]"));
}

// An array of a million numbers in two others.
TEST(GrammarMatcherTest, HoldsNoMoreForALongOutput) {
  const Vocabulary words({"1"});
  GrammarMatcher matcher(Nested(), words.masks);
  ASSERT_TRUE(matcher.Accept("[[[1"));
  const size_t frames = matcher.num_frames();
  for (int i = 0; i < 1'000'000; ++i) ASSERT_TRUE(matcher.Accept(",1"));
  EXPECT_EQ(matcher.num_frames(), frames);
  EXPECT_EQ(matcher.num_places(), 2u);  // another digit, or what follows a value
  EXPECT_TRUE(matcher.Accept("]]]"));
}

// Brackets that open and close in ever new patterns: each pattern has other frames.
TEST(GrammarMatcherTest, ForgetsFramesThatNobodyWaitsFor) {
  const Vocabulary words({"1"});
  GrammarMatcher matcher(Nested(), words.masks);
  ASSERT_TRUE(matcher.Accept("[1"));
  size_t most = 0;
  for (uint32_t pattern = 0; pattern < 100'000; ++pattern) {
    std::string open = ",", close;
    for (int bit = 0; bit < 17; ++bit) {
      const bool is_array = (pattern >> bit & 1) != 0;
      open.push_back(is_array ? '[' : '{');
      close.push_back(is_array ? ']' : '}');
    }
    std::reverse(close.begin(), close.end());
    ASSERT_TRUE(matcher.Accept(open + "1" + close));
    most = std::max(most, matcher.num_frames());
  }
  EXPECT_LT(most, 200u);
  EXPECT_TRUE(matcher.Accept("]"));
  EXPECT_TRUE(matcher.MustEnd());
}

// Deeper than any stack of a thread.
TEST(GrammarMatcherTest, FollowsADeepNesting) {
  const Vocabulary words({"[", "]", "]]]", "1}", "1]"});
  GrammarMatcher matcher(Nested(), words.masks);
  constexpr int kDepth = 100'000;
  for (int i = 0; i < kDepth; ++i) ASSERT_TRUE(matcher.AcceptToken(TokenId{0})) << i;
  EXPECT_EQ(words.Allowed(matcher), (Texts{"[", "]", "]]]", "1]"}));
  EXPECT_EQ(matcher.num_frames(), size_t{kDepth});
  for (int i = 0; i < kDepth - 1; ++i) ASSERT_TRUE(matcher.AcceptToken(TokenId{1})) << i;
  EXPECT_EQ(words.Allowed(matcher), (Texts{"]"}));
  EXPECT_TRUE(matcher.Accept("]"));
  EXPECT_TRUE(matcher.MustEnd());
}

// either = ("(" first ")" | "(" second ")"), each of which is either again: with every bracket
// there are twice as many ways to go on.
std::shared_ptr<const Grammar> Doubling() {
  GrammarBuilder builder;
  const RuleId either = builder.AddRule(), first = builder.AddRule(), second = builder.AddRule();
  for (const RuleId rule : {first, second}) {
    const NodeId inside = builder.AddCalled(builder.AddLiteral(builder.begin(rule), "("), either);
    builder.AddSkip(builder.AddLiteral(inside, rule == first ? ")" : "]"), builder.end(rule));
    builder.AddCall(builder.begin(either), rule, builder.end(either));
  }
  builder.AddSkip(builder.AddLiteral(builder.begin(either), "x"), builder.end(either));
  return Finish(std::move(builder), either);
}

// Beyond kMostPlaces it neither goes on nor ends, and says so.
TEST(GrammarMatcherTest, IsOverrunByAmbiguity) {
  const Vocabulary words({"(", "x", "((((((((((((((((((((((((((((((", "((("});
  GrammarMatcher matcher(Doubling(), words.masks);
  int depth = 0;
  while (matcher.Accept("(") && depth < 100) ++depth;
  EXPECT_GE(depth, 6);
  EXPECT_LE(depth, 9);
  EXPECT_TRUE(matcher.is_overrun());
  EXPECT_FALSE(matcher.Accept("x"));
  EXPECT_FALSE(matcher.Accept(""));
  EXPECT_FALSE(matcher.CanEnd());
  EXPECT_FALSE(matcher.MustEnd());
  EXPECT_EQ(words.Allowed(matcher), Texts{});
}

// Tokens that would overrun it at once are not offered.
TEST(GrammarMatcherTest, DoesNotOfferWhatOverrunsIt) {
  const Vocabulary words({"(", "x", std::string(64, '('), "((("});
  GrammarMatcher matcher(Doubling(), words.masks);
  EXPECT_EQ(words.Allowed(matcher), (Texts{"(", "x", "((("}));
}

// A choice of more rules than there may be places, at the very start.
TEST(GrammarMatcherTest, MayBeOverrunFromTheStart) {
  const Vocabulary words({"a"});
  GrammarBuilder builder;
  const RuleId root = builder.AddRule();
  for (size_t i = 0; i <= GrammarMatcher::kMostPlaces; ++i) {
    const RuleId rule = builder.AddRule();
    builder.AddSkip(builder.AddLiteral(builder.begin(rule), "a" + std::to_string(i)),
                    builder.end(rule));
    builder.AddCall(builder.begin(root), rule, builder.end(root));
  }
  GrammarMatcher matcher(Finish(std::move(builder), root), words.masks);
  EXPECT_TRUE(matcher.is_overrun());
  EXPECT_EQ(words.Allowed(matcher), Texts{});
}

// A choice of so many rules, each of any bytes of which every so many-th may be the last: no two
// states are alike.
std::shared_ptr<const Grammar> ManyWide(int num_rules) {
  GrammarBuilder builder;
  const RuleId root = builder.AddRule();
  for (int i = 0; i < num_rules; ++i) {
    const RuleId rule = builder.AddRule();
    NodeId at = builder.begin(rule);
    for (int k = 0; k <= i; ++k) {
      const NodeId next = k < i ? builder.AddNode(rule) : builder.begin(rule);
      builder.AddBytes(at, 0, 255, next);
      at = next;
    }
    builder.AddSkip(at, builder.end(rule));
    builder.AddCall(builder.begin(root), rule, builder.end(root));
  }
  return Finish(std::move(builder), root);
}

// Masks that take long are bounded together, whether they are known already or not.
TEST(GrammarMatcherTest, IsOverrunByTooMuchWork) {
  std::vector<std::string> pieces;
  for (int i = 0; i < 30'000; ++i) pieces.push_back(std::to_string(i * 7919));
  const Vocabulary words(pieces, 30'001);
  const auto grammar = ManyWide(300);
  for (int round = 0; round < 2; ++round) {
    GrammarMatcher matcher(grammar, words.masks);
    EXPECT_FALSE(matcher.is_overrun());
    EXPECT_EQ(words.Allowed(matcher), Texts{});
    EXPECT_TRUE(matcher.is_overrun());
    EXPECT_FALSE(matcher.Accept("7"));
  }
  GrammarMatcher matcher(ManyWide(10), words.masks);
  EXPECT_EQ(words.Allowed(matcher).size(), 30'000u);
  EXPECT_TRUE(matcher.Accept("7"));
}

// One byte, and behind it as many bytes as in one of so many loops, no two of which are alike.
TEST(GrammarMatcherTest, IsOverrunByTooMuchWorkForItsCallers) {
  std::vector<std::string> pieces;
  for (int i = 0; i < 30'000; ++i) pieces.push_back(std::to_string(i * 7919));
  const Vocabulary words(pieces, 30'001);
  const auto loops = [](int count) {
    GrammarBuilder builder;
    const RuleId root = builder.AddRule(), one = builder.AddRule();
    builder.AddBytes(builder.begin(one), 0, 255, builder.end(one));
    for (int i = 0; i < count; ++i) {
      const RuleId rule = builder.AddRule();
      builder.AddCall(builder.begin(root), rule, builder.end(root));
      const NodeId begin = builder.AddCalled(builder.begin(rule), one);
      NodeId at = begin;
      for (int k = 0; k <= i; ++k) {
        const NodeId next = k < i ? builder.AddNode(rule) : begin;
        builder.AddBytes(at, 0, 255, next);
        at = next;
      }
      builder.AddSkip(at, builder.end(rule));
    }
    return Finish(std::move(builder), root);
  };
  GrammarMatcher matcher(loops(240), words.masks);  // two places each
  EXPECT_FALSE(matcher.is_overrun());
  EXPECT_EQ(words.Allowed(matcher), Texts{});
  EXPECT_TRUE(matcher.is_overrun());
  GrammarMatcher few(loops(10), words.masks);
  EXPECT_EQ(words.Allowed(few).size(), 30'000u);
}

// "a" 200 times, of which the first states look alike for as far as tokens reach, then "b".
TEST(GrammarMatcherTest, KnowsStatesOfARepetitionByTheirTwin) {
  constexpr int kTimes = 200;
  GrammarBuilder builder;
  const RuleId rule = builder.AddRule();
  std::vector<NodeId> nodes = {builder.begin(rule)};
  while (nodes.size() <= kTimes) nodes.push_back(builder.AddLiteral(nodes.back(), "a"));
  builder.AddSkip(builder.AddLiteral(nodes.back(), "b"), builder.end(rule));
  for (int i = 0; i + Grammar::kTwinBytes <= kTimes; ++i) builder.SetTwin(nodes[i], nodes[0]);
  const auto grammar = Finish(std::move(builder), rule);
  const Vocabulary words({"a", "aaa", "b", "ab", std::string(64, 'a'), std::string(63, 'a') + "b"});
  GrammarMatcher matcher(grammar, words.masks);
  NaiveAcceptor naive(grammar.get());
  std::vector<size_t> bytes;
  for (int i = 0; i < kTimes; ++i) {
    Texts expected;
    for (int32_t token = 0; token < 6; ++token) {
      NaiveAcceptor trial = naive;
      const std::string_view text = words.trie.BytesOf(TokenId{token});
      if (trial.Accept(text)) expected.emplace_back(text);
    }
    EXPECT_EQ(words.Allowed(matcher), expected) << i;
    bytes.push_back(words.masks->memory_bytes());
    ASSERT_TRUE(matcher.Accept("a"));
    ASSERT_TRUE(naive.Accept("a"));
  }
  EXPECT_EQ(bytes[kTimes - Grammar::kTwinBytes], bytes[0]);
  EXPECT_GT(bytes.back(), bytes[0]);
}

}  // namespace
}  // namespace refrain::engine
