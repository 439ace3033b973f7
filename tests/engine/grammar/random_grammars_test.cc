#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/grammar/grammar_builder.h"
#include "tests/engine/grammar/naive_acceptor.h"
#include "tests/engine/grammar/random_drawing.h"
#include "tests/support/random_steps.h"

namespace refrain::engine {
namespace {

using refrain::testing::NaiveAcceptor;
using refrain::testing::RandomDrawing;
using refrain::testing::RandomSeed;
using refrain::testing::RandomSteps;
using ::testing::HasSubstr;

// All strings over the alphabet of at most so many bytes.
std::vector<std::string> MakeTexts(size_t most_bytes) {
  std::vector<std::string> texts = {""};
  for (size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].size() == most_bytes) break;
    for (const char c : RandomDrawing::kAlphabet) texts.push_back(texts[i] + c);
  }
  return texts;
}

// Those that lead from the state to an end of its rule.
std::set<std::string> TextsFrom(const Grammar& grammar, StateId state, size_t most_bytes) {
  std::vector<std::pair<std::string, NaiveAcceptor>> reached = {
      {"", NaiveAcceptor(&grammar, state)}};
  std::set<std::string> texts;
  for (size_t i = 0; i < reached.size(); ++i) {
    const auto [text, acceptor] = reached[i];
    if (acceptor.CanEnd()) texts.insert(text);
    if (text.size() == most_bytes) continue;
    for (const char& c : RandomDrawing::kAlphabet) {
      NaiveAcceptor next = acceptor;
      if (next.Accept({&c, 1})) reached.emplace_back(text + c, std::move(next));
    }
  }
  return texts;
}

std::set<std::string> TextsOf(const RandomDrawing& drawing, int node, size_t most_bytes) {
  std::set<std::string> texts;
  for (const std::string& text : MakeTexts(most_bytes)) {
    if (drawing.Takes(node, text)) texts.insert(text);
  }
  return texts;
}

// What a Grammar promises of its form.
void CheckPromises(const Grammar& grammar) {
  std::vector<bool> is_reached(grammar.num_states()), can_end(grammar.num_states());
  const auto is = [](const std::vector<bool>& set, StateId state) {
    return set[static_cast<size_t>(state)];
  };
  const auto mark = [](std::vector<bool>& set, StateId state) {
    set[static_cast<size_t>(state)] = true;
  };
  for (size_t rule = 0; rule < grammar.num_rules(); ++rule) {
    mark(is_reached, grammar.start(static_cast<RuleId>(rule)));
  }
  for (size_t round = 0; round < grammar.num_states(); ++round) {
    for (size_t i = 0; i < grammar.num_states(); ++i) {
      const auto state = static_cast<StateId>(i);
      if (grammar.accepts(state)) mark(can_end, state);
      if (is(is_reached, state)) mark(is_reached, grammar.twin(state));
      for (const Grammar::ByteEdge& edge : grammar.bytes(state)) {
        if (is(is_reached, state)) mark(is_reached, edge.to);
        if (is(can_end, edge.to)) mark(can_end, state);
      }
      for (const Grammar::CallEdge& call : grammar.calls(state)) {
        if (is(is_reached, state)) mark(is_reached, call.to);
        if (is(can_end, call.to) && is(can_end, grammar.start(call.rule))) mark(can_end, state);
      }
    }
  }
  for (size_t i = 0; i < grammar.num_states(); ++i) {
    const auto state = static_cast<StateId>(i);
    EXPECT_TRUE(is_reached[i]) << i;
    EXPECT_TRUE(can_end[i]) << i;
    int last = -1;
    for (const Grammar::ByteEdge& edge : grammar.bytes(state)) {
      EXPECT_LT(last, edge.first);
      EXPECT_LE(edge.first, edge.last);
      last = edge.last;
    }
    std::set<RuleId> called;
    for (const Grammar::CallEdge& call : grammar.calls(state)) {
      EXPECT_TRUE(called.insert(call.rule).second);
    }
  }
}

// Rules drawn at random, and what they are made into: the same texts, or a refusal with a reason.
TEST(RandomGrammarsTest, TakeTheTextsThatWereDrawn) {
  std::mt19937 random(RandomSeed(1));
  int num_made = 0, num_empty = 0, num_left_recursive = 0;
  for (int i = 0; i < RandomSteps() / 20; ++i) {
    const RandomDrawing drawing(&random, false);
    GrammarBuilder builder;
    const RuleId root = drawing.DrawIn(&builder);
    const absl::StatusOr<Grammar> grammar = std::move(builder).Finish(root);
    if (drawing.IsEmpty()) {
      ++num_empty;
      EXPECT_THAT(grammar.status().message(), HasSubstr("never be satisfied"));
    } else if (drawing.HasLeftRecursion()) {
      ++num_left_recursive;
      EXPECT_THAT(grammar.status().message(), HasSubstr("calls itself before a byte"));
    } else {
      ++num_made;
      ASSERT_TRUE(grammar.ok()) << grammar.status();
      CheckPromises(*grammar);
      constexpr size_t kMostBytes = 4;
      EXPECT_EQ(TextsFrom(*grammar, grammar->start(grammar->root()), kMostBytes),
                TextsOf(drawing, drawing.root(), kMostBytes));
    }
    if (HasFailure()) FAIL() << "drawing " << i;
  }
  EXPECT_GT(num_made, RandomSteps() / 80);
  EXPECT_GT(num_empty, RandomSteps() / 500);
  EXPECT_GT(num_left_recursive, RandomSteps() / 500);
}

// Twins of nodes, some of which no text reaches: a state that has one stands for a node alone, and
// its twin for that node's.
TEST(RandomGrammarsTest, HaveTheTwinsThatWereDrawn) {
  std::mt19937 random(RandomSeed(2));
  constexpr size_t kMostBytes = 3;
  int num_twins = 0;
  for (int i = 0; i < RandomSteps() / 20; ++i) {
    const RandomDrawing drawing(&random, true);
    GrammarBuilder builder;
    const RuleId root = drawing.DrawIn(&builder);
    const absl::StatusOr<Grammar> grammar = std::move(builder).Finish(root);
    if (!grammar.ok()) continue;
    CheckPromises(*grammar);
    std::set<std::pair<std::set<std::string>, std::set<std::string>>> drawn;
    for (const auto& [node, twin] : drawing.twins()) {
      drawn.emplace(TextsOf(drawing, node, kMostBytes), TextsOf(drawing, twin, kMostBytes));
    }
    for (size_t j = 0; j < grammar->num_states(); ++j) {
      const auto state = static_cast<StateId>(j);
      const StateId twin = grammar->twin(state);
      if (twin == state) continue;
      ++num_twins;
      EXPECT_TRUE(drawn.contains(
          {TextsFrom(*grammar, state, kMostBytes), TextsFrom(*grammar, twin, kMostBytes)}))
          << "drawing " << i << ", state " << j;
    }
    if (HasFailure()) break;
  }
  EXPECT_GT(num_twins, RandomSteps() / 500);
}

// Of states in any of the grammars, those of one digest take the same texts.
TEST(RandomGrammarsTest, HaveDigestsThatTellStatesApart) {
  std::mt19937 random(RandomSeed(3));
  constexpr size_t kMostBytes = 4;
  const std::vector<std::string> all_texts = MakeTexts(kMostBytes);
  std::map<Grammar::Digest, std::vector<bool>> takes_of;  // [all_texts]
  int num_shared = 0;
  for (int i = 0; i < RandomSteps() / 20; ++i) {
    GrammarBuilder builder;
    const RuleId root = RandomDrawing(&random, true).DrawIn(&builder);
    const absl::StatusOr<Grammar> grammar = std::move(builder).Finish(root);
    for (size_t j = 0; grammar.ok() && j < grammar->num_states(); ++j) {
      const auto state = static_cast<StateId>(j);
      const std::set<std::string> texts = TextsFrom(*grammar, state, kMostBytes);
      std::vector<bool> takes;
      for (const std::string& text : all_texts) takes.push_back(texts.contains(text));
      const auto [found, is_new] = takes_of.emplace(grammar->digest(state), takes);
      ASSERT_EQ(found->second, takes) << "drawing " << i << ", state " << j;
      if (!is_new) ++num_shared;
    }
  }
  EXPECT_GT(num_shared, RandomSteps() / 100);
  EXPECT_GT(takes_of.size(), static_cast<size_t>(RandomSteps() / 100));
}

}  // namespace
}  // namespace refrain::engine
