#include "engine/grammar/grammar_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <string>
#include <utility>

#include "engine/text/utf8.h"
#include "tests/engine/grammar/naive_acceptor.h"
#include "tests/support/random_steps.h"

namespace refrain::engine {
namespace {

using refrain::testing::Accepts;
using refrain::testing::NaiveAcceptor;
using refrain::testing::RandomSeed;
using refrain::testing::RandomSteps;
using ::testing::HasSubstr;

// The example of the header: one digit or more, and nothing else.
TEST(GrammarBuilderTest, DrawsLoops) {
  GrammarBuilder builder;
  const RuleId digits = builder.AddRule();
  const NodeId seen = builder.AddNode(digits);
  builder.AddBytes(builder.begin(digits), '0', '9', seen);
  builder.AddBytes(seen, '0', '9', seen);
  builder.AddSkip(seen, builder.end(digits));
  const absl::StatusOr<Grammar> grammar = std::move(builder).Finish(digits);
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  EXPECT_EQ(grammar->num_states(), 2u);
  EXPECT_TRUE(Accepts(*grammar, "7"));
  EXPECT_TRUE(Accepts(*grammar, "0123456789"));
  EXPECT_FALSE(Accepts(*grammar, ""));
  EXPECT_FALSE(Accepts(*grammar, "12x"));
}

// Brackets in brackets: a rule that calls itself behind a byte.
TEST(GrammarBuilderTest, DrawsRulesThatCallThemselves) {
  GrammarBuilder builder;
  const RuleId brackets = builder.AddRule();
  const NodeId open = builder.AddLiteral(builder.begin(brackets), "[");
  const NodeId inside = builder.AddCalled(open, brackets);
  builder.AddSkip(open, inside);
  builder.AddSkip(builder.AddLiteral(inside, "]"), builder.end(brackets));
  const absl::StatusOr<Grammar> grammar = std::move(builder).Finish(brackets);
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  EXPECT_EQ(grammar->num_rules(), 1u);
  EXPECT_TRUE(Accepts(*grammar, "[[[]]]"));
  EXPECT_FALSE(Accepts(*grammar, "[[[]]"));
  EXPECT_FALSE(Accepts(*grammar, "[[]]]"));
  EXPECT_FALSE(Accepts(*grammar, "[][]"));
}

std::string MessageOf(const absl::StatusOr<Grammar>& grammar) {
  EXPECT_EQ(grammar.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(grammar.status().message());
}

// A rule of one text.
RuleId AddText(GrammarBuilder* builder, std::string_view text) {
  const RuleId rule = builder->AddRule();
  builder->AddSkip(builder->AddLiteral(builder->begin(rule), text), builder->end(rule));
  return rule;
}

// Of "[", "]" and a rule that nothing satisfies: what calls it is left out, and so is a rule that
// nobody calls.
TEST(GrammarBuilderTest, LeavesOutWhatLeadsNowhere) {
  GrammarBuilder builder;
  const RuleId nothing = builder.AddRule(), root = builder.AddRule();
  builder.AddCall(builder.AddLiteral(builder.begin(nothing), "x"), nothing, builder.end(nothing));
  AddText(&builder, "unused");
  const NodeId open = builder.AddLiteral(builder.begin(root), "[");
  builder.AddLiteral(open, "into the dark");
  builder.AddSkip(builder.AddLiteral(builder.AddCalled(open, nothing), "]"), builder.end(root));
  builder.AddSkip(builder.AddLiteral(open, "]"), builder.end(root));
  const absl::StatusOr<Grammar> grammar = std::move(builder).Finish(root);
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  EXPECT_EQ(grammar->num_rules(), 1u);
  EXPECT_EQ(grammar->num_states(), 3u);
  EXPECT_TRUE(Accepts(*grammar, "[]"));
}

TEST(GrammarBuilderTest, RefusesARootThatNothingSatisfies) {
  GrammarBuilder builder;
  const RuleId root = builder.AddRule();
  builder.AddCall(builder.AddLiteral(builder.begin(root), "x"), root, builder.end(root));
  EXPECT_THAT(MessageOf(std::move(builder).Finish(root)), HasSubstr("never be satisfied"));
}

// first = third? second; second = first "x" | "y"; third may be empty.
TEST(GrammarBuilderTest, RefusesARuleThatCallsItselfBeforeAByte) {
  for (const bool third_may_be_empty : {false, true}) {
    GrammarBuilder builder;
    const RuleId first = builder.AddRule(), second = builder.AddRule();
    const RuleId third = AddText(&builder, "z");
    if (third_may_be_empty) builder.AddSkip(builder.begin(third), builder.end(third));
    builder.AddCall(builder.AddCalled(builder.begin(first), third), second, builder.end(first));
    const NodeId behind = builder.AddCalled(builder.begin(second), first);
    builder.AddSkip(builder.AddLiteral(behind, "x"), builder.end(second));
    builder.AddSkip(builder.AddLiteral(builder.begin(second), "y"), builder.end(second));
    const absl::StatusOr<Grammar> grammar = std::move(builder).Finish(first);
    if (third_may_be_empty) {
      EXPECT_THAT(MessageOf(grammar), HasSubstr("calls itself before a byte"));
    } else {
      ASSERT_TRUE(grammar.ok()) << grammar.status();
      EXPECT_TRUE(Accepts(*grammar, "zzyx"));
      EXPECT_FALSE(Accepts(*grammar, "zzy"));
    }
  }
}

// list = space list | "x": only whoever knows that a space may be nothing sees the recursion.
TEST(GrammarBuilderTest, FindsRecursionBehindWhatMayBeEmpty) {
  for (const bool space_may_be_empty : {false, true}) {
    GrammarBuilder builder;
    const RuleId root = builder.AddRule(), space = AddText(&builder, " ");
    const RuleId list = AddText(&builder, "x");
    if (space_may_be_empty) builder.AddSkip(builder.begin(space), builder.end(space));
    builder.AddCall(builder.AddCalled(builder.begin(root), space), list, builder.end(root));
    builder.AddCall(builder.AddCalled(builder.begin(list), space), list, builder.end(list));
    EXPECT_EQ(std::move(builder).Finish(root).ok(), !space_may_be_empty);
  }
}

// Beyond its limits a builder can be drawn on all the same; nothing is added.
TEST(GrammarBuilderTest, RefusesMoreNodesAndEdgesThanItsLimit) {
  const auto draw = [](size_t nodes, GrammarBuilder* builder) {
    const RuleId root = builder->AddRule();  // takes 2, each letter takes 2, the skip 1
    builder->AddSkip(builder->AddLiteral(builder->begin(root), std::string((nodes - 3) / 2, 'a')),
                     builder->end(root));
    return root;
  };
  GrammarBuilder fitting({.nodes = 101});
  const RuleId root = draw(101, &fitting);
  EXPECT_FALSE(fitting.is_full());
  EXPECT_TRUE(std::move(fitting).Finish(root).ok());
  GrammarBuilder full({.nodes = 101});
  draw(103, &full);
  EXPECT_TRUE(full.is_full());
  const RuleId other = full.AddRule();
  const NodeId node = full.AddNode(other);
  full.AddBytes(node, 'a', 'b', full.end(other));
  full.AddCall(full.begin(other), other, node);
  full.AddCharacters(node, 0x80, 0x10FFFF, node);
  full.SetTwin(node, full.AddLiteral(node, "text"));
  EXPECT_THAT(MessageOf(std::move(full).Finish(other)), HasSubstr("more than 101 nodes and edges"));
  GrammarBuilder tiny({.nodes = 0});
  const RuleId first = tiny.AddRule();
  EXPECT_THAT(MessageOf(std::move(tiny).Finish(first)), HasSubstr("more than 0 nodes"));
}

TEST(GrammarBuilderTest, RefusesMoreStatesThanItsLimit) {
  GrammarBuilder fitting({.states = 11}), large({.states = 10});
  const RuleId root = AddText(&fitting, "0123456789");
  EXPECT_TRUE(std::move(fitting).Finish(root).ok());
  AddText(&large, "0123456789");
  EXPECT_THAT(MessageOf(std::move(large).Finish(root)), HasSubstr("more than 10 states"));
}

// An "a" so and so many letters before the end: each state is the set of the places at which one
// was, and a few dozen nodes would make millions of them.
TEST(GrammarBuilderTest, RefusesWhatTakesTooManySteps) {
  GrammarBuilder builder({.states = size_t{1} << 30, .visits = 1000000});
  const RuleId root = builder.AddRule();
  const NodeId begin = builder.AddNode(root);
  builder.AddSkip(builder.begin(root), begin);
  builder.AddBytes(begin, 'a', 'b', begin);
  NodeId node = builder.AddLiteral(begin, "a");
  for (int i = 0; i < 30; ++i) {
    const NodeId next = builder.AddNode(root);
    builder.AddBytes(node, 'a', 'b', next);
    node = next;
  }
  builder.AddSkip(node, builder.end(root));
  EXPECT_THAT(MessageOf(std::move(builder).Finish(root)), HasSubstr("more than 1000000 steps"));
}

// Ranges of code points against a decoder: well-formed characters of the range, and nothing else.
TEST(GrammarBuilderTest, DrawsCharactersOfARange) {
  std::mt19937 random(RandomSeed(7));
  constexpr uint32_t kBorders[] = {0,      0x7F,   0x80,   0x7FF,   0x800,   0xFFF,    0x1000,
                                   0xD7FF, 0xE000, 0xFFFF, 0x10000, 0xFFFFF, 0x100000, 0x10FFFF};
  const auto any_code = [&random, &kBorders]() -> uint32_t {
    if (random() % 2 == 0) return random() % 0x110000;
    return std::clamp<int>(
        static_cast<int>(kBorders[random() % std::size(kBorders)] + random() % 5) - 2, 0, 0x10FFFF);
  };
  for (int i = 0; i < RandomSteps() / 50; ++i) {
    const uint32_t one = any_code(), other = any_code();
    const uint32_t first = std::min(one, other), last = std::max(one, other);
    GrammarBuilder builder;
    const RuleId root = builder.AddRule();
    builder.AddSkip(builder.begin(root), builder.end(root));
    builder.AddCharacters(builder.begin(root), first, last, builder.end(root));
    const absl::StatusOr<Grammar> grammar = std::move(builder).Finish(root);
    ASSERT_TRUE(grammar.ok()) << grammar.status();
    for (int j = 0; j < 50; ++j) {
      const uint32_t code =
          j < 8 ? std::min((j % 2 == 0 ? first : last) + static_cast<uint32_t>(j / 2), 0x10FFFFu)
                : any_code();
      if (code >= 0xD800 && code <= 0xDFFF) continue;
      std::string text;
      AppendUtf8(code, &text);
      EXPECT_EQ(Accepts(*grammar, text), first <= code && code <= last)
          << std::hex << first << ' ' << last << ' ' << code;
      text[random() % text.size()] = static_cast<char>(random());
      const Utf8Unit unit = FirstUtf8Unit(text);
      const bool is_inside = unit.kind == Utf8Unit::Kind::kCharacter &&
                             unit.size_bytes == text.size() && first <= unit.code_point &&
                             unit.code_point <= last;
      EXPECT_EQ(Accepts(*grammar, text), is_inside) << std::hex << first << ' ' << last;
    }
    if (HasFailure()) break;
  }
}

StateId StateBehind(const Grammar& grammar, std::string_view text) {
  NaiveAcceptor acceptor(&grammar);
  EXPECT_TRUE(acceptor.Accept(text));
  EXPECT_EQ(acceptor.StatesOutsideOfCalls().size(), 1u);
  return acceptor.StatesOutsideOfCalls().at(0);
}

// "a" leads to a node with a skip behind it, which has a twin that no text reaches; "b" leads there
// and to another node, so that its state is not that node alone.
TEST(GrammarBuilderTest, GivesTwinsToStatesOfANodeAlone) {
  GrammarBuilder builder;
  const RuleId root = builder.AddRule();
  const NodeId node = builder.AddNode(root), skipped = builder.AddNode(root);
  const NodeId other = builder.AddNode(root), twin = builder.AddNode(root);
  builder.AddBytes(builder.begin(root), 'a', 'b', node);
  builder.AddBytes(builder.begin(root), 'b', 'b', other);
  builder.AddSkip(node, skipped);
  builder.AddSkip(builder.AddLiteral(skipped, "x"), builder.end(root));
  builder.AddSkip(builder.AddLiteral(other, "y"), builder.end(root));
  builder.AddSkip(builder.AddLiteral(twin, "z"), builder.end(root));
  builder.SetTwin(node, twin);
  builder.SetTwin(node, builder.AddNode(root));  // says nothing: the second, and it leads nowhere
  builder.SetTwin(builder.AddNode(root), twin);
  const absl::StatusOr<Grammar> grammar = std::move(builder).Finish(root);
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  const StateId state = StateBehind(*grammar, "a");
  ASSERT_NE(grammar->twin(state), state);
  NaiveAcceptor from_twin(&*grammar, grammar->twin(state));
  EXPECT_TRUE(from_twin.Accept("z"));
  EXPECT_TRUE(from_twin.CanEnd());
  const StateId both = StateBehind(*grammar, "b");
  EXPECT_EQ(grammar->twin(both), both);
}

// The same ending behind different beginnings, in two grammars.
TEST(GrammarBuilderTest, DigestsSayHowAStateGoesOn) {
  GrammarBuilder one_builder, other_builder;
  const RuleId one_root = AddText(&one_builder, "abcd"),
               other_root = AddText(&other_builder, "xycd");
  const absl::StatusOr<Grammar> one = std::move(one_builder).Finish(one_root);
  const absl::StatusOr<Grammar> other = std::move(other_builder).Finish(other_root);
  ASSERT_TRUE(one.ok() && other.ok());
  EXPECT_EQ(one->digest(StateBehind(*one, "ab")), other->digest(StateBehind(*other, "xy")));
  EXPECT_NE(one->digest(StateBehind(*one, "a")), other->digest(StateBehind(*other, "x")));
  EXPECT_NE(one->digest(StateBehind(*one, "ab")), one->digest(StateBehind(*one, "abc")));
}

}  // namespace
}  // namespace refrain::engine
