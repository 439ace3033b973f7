#include "engine/grammar/place_walk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
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

// item = "(" item* ")" | "[" item* "]" | "{" item* "}" | "x"
Grammar Brackets() {
  GrammarBuilder builder;
  const RuleId item = builder.AddRule();
  for (const std::string_view brackets : {"()", "[]", "{}"}) {
    const NodeId inside = builder.AddLiteral(builder.begin(item), brackets.substr(0, 1));
    builder.AddCall(inside, item, inside);
    builder.AddSkip(builder.AddLiteral(inside, brackets.substr(1)), builder.end(item));
  }
  builder.AddSkip(builder.AddLiteral(builder.begin(item), "x"), builder.end(item));
  absl::StatusOr<Grammar> grammar = std::move(builder).Finish(item);
  EXPECT_TRUE(grammar.ok()) << grammar.status();
  return *std::move(grammar);
}

// Brackets that are opened, and closed as they were opened, but for one in ten.
std::vector<std::string> BracketPieces(int count, std::mt19937* random) {
  std::vector<std::string> pieces;
  while (static_cast<int>(pieces.size()) < count) {
    std::string piece, open;
    for (size_t n = 1 + (*random)() % 16; n > 0; --n) {
      const size_t kind = (*random)() % 3;
      if ((*random)() % 10 == 0) {
        piece.push_back("x)]"[kind]);
      } else if (open.empty() || (*random)() % 3 > 0) {
        piece.push_back("([{"[kind]);
        open.push_back(")]}"[kind]);
      } else {
        piece.push_back(open.back());
        open.pop_back();
      }
    }
    pieces.push_back(std::move(piece));
  }
  pieces.push_back("</s>");
  return pieces;
}

// The bytes that lead to a node.
std::string BytesTo(const TokenTrie& trie, uint32_t node) {
  return std::string(trie.BytesOf(trie.TokensBelow(node)[0]).substr(0, trie.nodes()[node].depth));
}

// Tens of thousands of nestings, each with frames of its own: more than a walk remembers at once.
TEST(PlaceWalkTest, FindsTheSameWhenItForgets) {
  std::mt19937 random(1);
  const std::vector<std::string> pieces = BracketPieces(20'000, &random);
  const TokenTrie trie(FakeTokenizer(pieces), pieces.size(), {});
  const Grammar grammar = Brackets();
  const StateId start = grammar.start(grammar.root());
  PlaceWalk walk(&grammar, &trie, nullptr);
  for (int round = 0; round < 2; ++round) {
    walk.StartFromState(start);
    TokenSet allowed(trie.vocab_size());
    std::vector<uint32_t> ends;
    walk.AddAllowed(0, &allowed, &ends);
    for (const TokenId token : trie.TokensBelow(0)) {
      const bool is_taken = NaiveAcceptor(&grammar).Accept(trie.BytesOf(token));
      ASSERT_EQ(allowed.Has(token), is_taken) << trie.BytesOf(token);
    }
    for (uint32_t node = 1; node < trie.nodes().size(); ++node) {
      NaiveAcceptor naive(&grammar);
      const bool is_end =
          trie.nodes()[node].end > node + 1 && naive.Accept(BytesTo(trie, node)) && naive.CanEnd();
      ASSERT_EQ(std::binary_search(ends.begin(), ends.end(), node), is_end) << node;
    }
  }
}

// Two frames wait; what they take is found below each node that has children, as a matcher asks for
// it.
TEST(PlaceWalkTest, StartsFromPlacesOfABase) {
  std::mt19937 random(2);
  const std::vector<std::string> pieces = BracketPieces(3'000, &random);
  const TokenTrie trie(FakeTokenizer(pieces), pieces.size(), {});
  const Grammar grammar = Brackets();
  FrameArena frames;
  PlaceSet set{.places = {{grammar.start(grammar.root()), kNobody}}};
  NaiveAcceptor naive(&grammar);
  PlaceMover mover;
  for (const char byte : std::string_view("([(")) {
    PlaceSet next;
    mover.Step(grammar, &frames, set.places, static_cast<uint8_t>(byte), &next);
    set = next;
    ASSERT_TRUE(naive.Accept(std::string_view(&byte, 1)));
  }
  PlaceWalk walk(&grammar, &trie, &frames);
  walk.StartFrom(set.places);
  EXPECT_TRUE(walk.has_places());
  const size_t num_frames = frames.size();
  for (uint32_t node = 0; node < trie.nodes().size(); ++node) {
    TokenSet allowed(trie.vocab_size());
    walk.AddAllowed(node, &allowed, nullptr);
    const size_t skipped = trie.nodes()[node].depth;
    size_t count = 0;
    for (const TokenId token : trie.TokensBelow(node)) {
      const std::string_view rest = trie.BytesOf(token).substr(skipped);
      NaiveAcceptor trial = naive;
      const bool is_taken = !rest.empty() && trial.Accept(rest);
      ASSERT_EQ(allowed.Has(token), is_taken) << node << " " << rest;
      count += is_taken ? 1 : 0;
    }
    ASSERT_EQ(allowed.Count(), count) << node;
  }
  EXPECT_EQ(frames.size(), num_frames);
}

}  // namespace
}  // namespace refrain::engine
