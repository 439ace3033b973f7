#include "engine/grammar/warm_masks.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/grammar/grammar_builder.h"
#include "engine/grammar/grammar_matcher.h"
#include "tests/engine/grammar/schema_grammar.h"
#include "tests/support/fake_tokenizer.h"

namespace refrain::engine {
namespace {

using ::refrain::testing::FakeTokenizer;
using ::refrain::testing::MakeSchemaGrammar;

constexpr size_t kMaskBytes = size_t{1} << 20;

// Letters, and pairs and threes of them.
std::vector<std::string> Words() {
  std::vector<std::string> pieces = {"\"", "{\"", "\": \"", "\"}", "{", "}", ":", " "};
  for (char a = 'a'; a <= 'z'; ++a) {
    pieces.emplace_back(1, a);
    for (char b = 'a'; b <= 'z'; ++b) {
      pieces.push_back({a, b});
      for (char c = 'a'; c <= 'z'; ++c) pieces.push_back({a, b, c});
    }
  }
  pieces.push_back("</s>");
  return pieces;
}

std::shared_ptr<const Grammar> GrammarOf(const char* schema) {
  absl::StatusOr<Grammar> grammar = MakeSchemaGrammar(schema);
  EXPECT_TRUE(grammar.ok()) << grammar.status();
  return std::make_shared<const Grammar>(*std::move(grammar));
}

// Of a mask that holds or ends at few tokens.
constexpr size_t kQuickBytes = 600;

// Bytes of masks that are made on the way through the text, byte by byte, but for
// those that are quickly made.
size_t BytesMadeOnTheWay(const std::string& text, const std::shared_ptr<const Grammar>& grammar,
                         const std::shared_ptr<MaskStore>& masks) {
  GrammarMatcher matcher(grammar, masks);
  size_t made = 0;
  for (const char byte : text) {
    const size_t before = masks->memory_bytes();
    TokenSet allowed(masks->trie().vocab_size());
    matcher.FindAllowed(&allowed);
    const size_t bytes = masks->memory_bytes() - before;
    if (bytes > kQuickBytes) made += bytes;
    EXPECT_TRUE(matcher.Accept(std::string(1, byte))) << byte;
  }
  return made;
}

TEST(WarmMasksTest, MakesThoseOfStringsBeforeTheyAreAskedFor) {
  const TokenTrie trie(FakeTokenizer(Words()), Words().size(), {});
  const auto grammar = GrammarOf(R"({"type": "object", "properties": {"a": {"type": "string"}},
                                     "required": ["a"], "additionalProperties": false})");
  const std::string text = R"({"a": "some words)";
  const auto cold = std::make_shared<MaskStore>(&trie, kMaskBytes);
  EXPECT_GT(BytesMadeOnTheWay(text, grammar, cold), 0u);
  const auto warm = std::make_shared<MaskStore>(&trie, kMaskBytes);
  WarmMasks(*grammar, *warm);
  EXPECT_EQ(BytesMadeOnTheWay(text, grammar, warm), 0u);
}

// A bounded string calls a rule of one character again and again: what is allowed there is for the
// caller to say.
TEST(WarmMasksTest, MakesThoseOfStatesWithTheirCallers) {
  const TokenTrie trie(FakeTokenizer(Words()), Words().size(), {});
  const auto grammar = GrammarOf(R"({"type": "string", "maxLength": 300})");
  const std::string text = "\"" + std::string(200, 'w');
  const size_t many_nodes = 100;
  const auto cold = std::make_shared<MaskStore>(&trie, kMaskBytes, many_nodes);
  EXPECT_GT(BytesMadeOnTheWay(text, grammar, cold), 0u);
  const auto warm = std::make_shared<MaskStore>(&trie, kMaskBytes, many_nodes);
  WarmMasks(*grammar, *warm);
  EXPECT_EQ(BytesMadeOnTheWay(text, grammar, warm), 0u);
}

// What a large grammar takes is bounded.
TEST(WarmMasksTest, MakesNoMoreThanTheMost) {
  const TokenTrie trie(FakeTokenizer(Words()), Words().size(), {});
  GrammarBuilder builder;
  const RuleId rule = builder.AddRule();
  NodeId node = builder.begin(rule);
  for (size_t i = 0; i < 3 * kMostWarmedAlone; ++i) {
    const NodeId next = builder.AddNode(rule);
    builder.AddBytes(node, 'a', 'z', next);
    builder.AddBytes(node, 128, 250, next);
    node = next;
  }
  builder.AddSkip(node, builder.end(rule));
  absl::StatusOr<Grammar> grammar = std::move(builder).Finish(rule);
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  MaskStore one(&trie, kMaskBytes), warm(&trie, kMaskBytes);
  one.Find(*grammar, grammar->start(grammar->root()));
  WarmMasks(*grammar, warm);
  EXPECT_GT(warm.memory_bytes(), 0u);
  EXPECT_LE(warm.memory_bytes(), kMostWarmedAlone * one.memory_bytes());
}

// As many rules as a client likes, each of which begins with nearly any byte and has its own mask.
TEST(WarmMasksTest, LooksAtNoMoreThanTheMostRulesThatAreCalled) {
  const TokenTrie trie(FakeTokenizer(Words()), Words().size(), {});
  GrammarBuilder builder;
  const RuleId root = builder.AddRule();
  NodeId node = builder.begin(root);
  for (int i = 0; i < 100; ++i) {
    const RuleId rule = builder.AddRule();
    builder.AddBytes(builder.begin(rule), 'a', 'z', builder.begin(rule));
    builder.AddBytes(builder.begin(rule), 128, static_cast<uint8_t>(250 - i % 25),
                     builder.begin(rule));
    builder.AddBytes(builder.begin(rule), static_cast<uint8_t>(1 + i / 25),
                     static_cast<uint8_t>(1 + i / 25), builder.end(rule));
    node = builder.AddCalled(node, rule);
  }
  builder.AddSkip(node, builder.end(root));
  absl::StatusOr<Grammar> grammar = std::move(builder).Finish(root);
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  const StateId first = grammar->start(grammar->calls(grammar->start(grammar->root()))[0].rule);
  MaskStore one(&trie, kMaskBytes), warm(&trie, kMaskBytes);
  one.Find(*grammar, first);
  WarmMasks(*grammar, warm);
  EXPECT_GT(warm.memory_bytes(), one.memory_bytes());
  EXPECT_LE(warm.memory_bytes(), (kMostWarmedAlone + kMostWarmedWithCallers) * one.memory_bytes());
}

TEST(WarmMasksTest, StopsWithItsPace) {
  class Stopped : public EncodePace {
   public:
    Stopped() { Stop(); }

   protected:
    void Checkpoint() override {}
  };
  const TokenTrie trie(FakeTokenizer(Words()), Words().size(), {});
  MaskStore masks(&trie, kMaskBytes);
  Stopped pace;
  WarmMasks(*GrammarOf(R"({"type": "string"})"), masks, &pace);
  EXPECT_EQ(masks.memory_bytes(), 0u);
}

}  // namespace
}  // namespace refrain::engine
