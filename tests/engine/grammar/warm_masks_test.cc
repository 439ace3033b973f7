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
  const size_t made = BytesMadeOnTheWay(text, grammar, cold);
  const auto alone = std::make_shared<MaskStore>(&trie, kMaskBytes, /*many_nodes=*/1'000'000);
  EXPECT_GT(made, BytesMadeOnTheWay(text, grammar, alone));
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

// A string of nearly any character, called from 20 places that differ in what follows.
class CalledFromManyPlaces : public ::testing::Test {
 protected:
  CalledFromManyPlaces() {
    GrammarBuilder builder;
    const RuleId root = builder.AddRule(), string = builder.AddRule();
    builder.AddBytes(builder.begin(string), 'a', 'z', builder.end(string));
    builder.AddBytes(builder.begin(string), 128, 250, builder.end(string));
    for (char place = 'a'; place < 'a' + 20; ++place) {
      const NodeId behind =
          builder.AddCalled(builder.AddLiteral(builder.begin(root), std::string(1, place)), string);
      builder.AddSkip(builder.AddLiteral(behind, std::string(1, place)), builder.end(root));
    }
    absl::StatusOr<Grammar> made = std::move(builder).Finish(root);
    EXPECT_TRUE(made.ok()) << made.status();
    grammar_ = std::make_unique<const Grammar>(*std::move(made));
  }

  // Masks with their callers that are there.
  size_t NumWithCallers(MaskStore& masks) const {
    size_t found = 0;
    for (size_t i = 0; i < grammar_->num_states(); ++i) {
      for (const Grammar::CallEdge& call : grammar_->calls(static_cast<StateId>(i))) {
        const size_t before = masks.memory_bytes();
        masks.Find(*grammar_, grammar_->start(call.rule), call.to);
        found += masks.memory_bytes() == before ? 1 : 0;
      }
    }
    return found;
  }

  const TokenTrie trie_{FakeTokenizer(Words()), Words().size(), {}};
  std::unique_ptr<const Grammar> grammar_;
};

TEST_F(CalledFromManyPlaces, MakesNoMoreThanTheMostWithTheirCallers) {
  MaskStore masks(&trie_, kMaskBytes, /*many_nodes=*/100);
  WarmMasks(*grammar_, masks);
  EXPECT_EQ(NumWithCallers(masks), kMostWarmedWithCallers);
}

// Those that steps walk each time.
TEST_F(CalledFromManyPlaces, MakesNoneWithCallersThatIsNotAskedFor) {
  MaskStore masks(&trie_, kMaskBytes, /*many_nodes=*/1'000'000);
  WarmMasks(*grammar_, masks);
  EXPECT_EQ(NumWithCallers(masks), 0u);
}

TEST_F(CalledFromManyPlaces, MayBeHeldUpBeforeEachMask) {
  class Counted : public EncodePace {
   public:
    int checkpoints = 0;

   protected:
    void Checkpoint() override { ++checkpoints; }
  };
  MaskStore masks(&trie_, kMaskBytes, /*many_nodes=*/100);
  Counted pace;
  WarmMasks(*grammar_, masks, &pace);
  EXPECT_GT(pace.checkpoints, static_cast<int>(kMostWarmedWithCallers));
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
