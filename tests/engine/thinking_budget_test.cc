#include "engine/thinking_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/text/create_tokenizer.h"
#include "tests/engine/text/text_test_data.h"
#include "tests/support/fake_tokenizer.h"

namespace refrain::engine {
namespace {

using kvcache::TokenId;

// What is written token by token once so many bytes of the tag are there.
std::vector<int> Spelled(const ThoughtCloser& closer, size_t begun) {
  std::vector<int> ids;
  while (begun < kThinkClose.size()) {
    const std::optional<TokenId> next = closer.Next(begun);
    if (!next.has_value()) return {};
    ids.push_back(static_cast<int>(*next));
    const std::string_view bytes = closer.tokenizer().TokenBytes(*next);
    EXPECT_TRUE(kThinkClose.substr(begun).starts_with(bytes)) << bytes << " behind " << begun;
    if (bytes.empty()) return {};
    begun += bytes.size();
  }
  return ids;
}

// As the model has seen the tag in training.
TEST(ThoughtCloser, SpellsTheTagAsTheTokenizerDoes) {
  const auto byte_level = SmolLm2Tokenizer();
  const ThoughtCloser closer(byte_level.get());
  ASSERT_TRUE(closer.can_close());
  EXPECT_EQ(Spelled(closer, 0), EncodeOrFail(*byte_level, "</think>", {.add_bos = false}));
  EXPECT_EQ(Spelled(closer, 0).size(), 3u);
  for (size_t begun = 1; begun < kThinkClose.size(); ++begun) {
    EXPECT_FALSE(Spelled(closer, begun).empty()) << begun;
  }
}

// Nor by the tokens of bytes that stand beside the vocabulary's characters.
TEST(ThoughtCloser, SpellsTheTagInPiecesWithoutASpaceInFront) {
  const std::string model = ReadTestData("llama2-tokenizer/tokenizer.model");
  std::vector<std::vector<int>> spelled;
  for (const auto merging :
       {SentencePieceMerging::kOwnWhereEqual, SentencePieceMerging::kLibrary}) {
    const auto tokenizer = CreateSentencePieceTokenizer(model, {}, merging);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    const ThoughtCloser closer(tokenizer->get());
    ASSERT_TRUE(closer.can_close());
    for (size_t begun = 0; begun < kThinkClose.size(); ++begun) {
      for (const int id : Spelled(closer, begun)) EXPECT_GE(id, 259) << "a token of one byte";
    }
    spelled.push_back(Spelled(closer, 0));
  }
  EXPECT_EQ(spelled[0], spelled[1]);
}

// Whatever the thought ends with: by pieces of text the model would not know that it has ended.
TEST(ThoughtCloser, TakesTheTagsOwnToken) {
  for (const TokenType type : {TokenType::kControl, TokenType::kUserDefined}) {
    TokenizerSpec spec = SmolLm2Spec();
    const int tag = static_cast<int>(spec.tokens.size());
    spec.tokens.emplace_back(kThinkClose);
    spec.token_types.push_back(type);
    const auto tokenizer = CreateTokenizer(spec);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    const ThoughtCloser closer(tokenizer->get());
    ASSERT_TRUE(closer.can_close());
    for (size_t begun = 0; begun < kThinkClose.size(); ++begun) {
      EXPECT_EQ(closer.Next(begun), TokenId{tag}) << begun;
    }
  }
}

TEST(ThoughtCloser, KnowsThatAVocabularyCannotSpellTheTag) {
  const testing::FakeTokenizer letters(testing::LetterVocabulary());
  EXPECT_FALSE(ThoughtCloser(&letters).can_close());
  const testing::FakeTokenizer begins({"</", "th", "</s>"});
  EXPECT_FALSE(ThoughtCloser(&begins).can_close());
}

class ThoughtCounterTest : public ::testing::Test {
 protected:
  ThoughtCounter Counter(ReasoningStart start, int32_t budget) const {
    auto limit = std::make_shared<ThinkingLimit>(
        ThinkingLimit{.closer = closer_, .start = start, .budget_tokens = budget});
    return ThoughtCounter(std::move(limit));
  }
  void Count(ThoughtCounter& counter, const std::vector<std::string>& pieces) const {
    for (const std::string& piece : pieces) {
      const auto found = std::ranges::find(pieces_, piece);
      ASSERT_NE(found, pieces_.end()) << piece;
      counter.Count(TokenId{static_cast<int32_t>(found - pieces_.begin())});
    }
  }
  // The piece that is due behind these; "": any may come.
  std::string Due(ThoughtCounter counter, const std::vector<std::string>& pieces) const {
    Count(counter, pieces);
    const std::optional<TokenId> due = counter.Due();
    return due.has_value() ? pieces_[static_cast<size_t>(*due)] : "";
  }

  const std::vector<std::string> pieces_ = {"<think>", "<",    "/",  "t",      "h",     "i",   "n",
                                            "k",       ">",    "a",  "b",      " ",     "\n",  "</",
                                            "think",   "nk>b", "x<", "think>", "</thi", "</s>"};
  const testing::FakeTokenizer tokenizer_{pieces_};
  const std::shared_ptr<const ThoughtCloser> closer_ = std::make_shared<ThoughtCloser>(&tokenizer_);
};

TEST_F(ThoughtCounterTest, ClosesAThoughtOfThePromptBehindItsBudget) {
  const ThoughtCounter counter = Counter(ReasoningStart::kInside, 3);
  EXPECT_EQ(Due(counter, {}), "");
  EXPECT_EQ(Due(counter, {"a", "b"}), "");
  EXPECT_EQ(Due(counter, {"a", "b", "a"}), "</thi");
  EXPECT_EQ(Due(counter, {"a", "b", "a", "</thi"}), "n");
  EXPECT_EQ(Due(counter, {"a", "b", "a", "</thi", "n"}), "k");
  EXPECT_EQ(Due(counter, {"a", "b", "a", "</thi", "n", "k"}), ">");
  // Then everything may come, and other thoughts are none.
  EXPECT_EQ(Due(counter, {"a", "b", "a", "</thi", "n", "k", ">"}), "");
  EXPECT_EQ(Due(counter, {"a", "b", "a", "</thi", "n", "k", ">", "<think>", "a", "a", "a"}), "");
}

// Tags are none of it; a tag that is repeated, as some models do behind that of the prompt, is.
TEST_F(ThoughtCounterTest, CountsBehindTheOpeningTag) {
  const ThoughtCounter before = Counter(ReasoningStart::kBefore, 1);
  EXPECT_EQ(Due(before, {"\n", " ", "<think>"}), "");
  EXPECT_EQ(Due(before, {"\n", " ", "<think>", "a"}), "</thi");
  EXPECT_EQ(Due(before, {"<", "think>"}), "");
  EXPECT_EQ(Due(before, {"<", "t", "h", "i", "n", "k", ">", "a"}), "</thi");
  const ThoughtCounter none = Counter(ReasoningStart::kBefore, 0);
  EXPECT_EQ(Due(none, {}), "");
  EXPECT_EQ(Due(none, {"<think>"}), "</thi");
  EXPECT_EQ(Due(none, {"<", "think"}), "");
  EXPECT_EQ(Due(Counter(ReasoningStart::kInside, 0), {}), "</thi");
  EXPECT_EQ(Due(Counter(ReasoningStart::kBesideTag, 0), {}), "</thi");
  EXPECT_EQ(Due(Counter(ReasoningStart::kInside, 1), {"<think>"}), "</thi");
}

TEST_F(ThoughtCounterTest, LeavesAloneWhatDoesNotThink) {
  EXPECT_EQ(Due(Counter(ReasoningStart::kBehind, 0), {"<think>", "a"}), "");
  // The output begins with the answer.
  const ThoughtCounter before = Counter(ReasoningStart::kBefore, 0);
  EXPECT_EQ(Due(before, {"a", "<think>", "a"}), "");
  EXPECT_EQ(Due(before, {"<", "<think>", "a"}), "");
  EXPECT_EQ(Due(before, {"<", "t", "\n", "<think>"}), "");
  // The model closed its thought itself, by whatever tokens.
  const ThoughtCounter inside = Counter(ReasoningStart::kInside, 9);
  EXPECT_EQ(Due(inside, {"a", "x<", "/", "think>", "a", "a", "a", "a", "a", "a", "a"}), "");
  EXPECT_EQ(Due(inside, {"a", "</thi", "nk>b", "a", "a", "a", "a", "a", "a", "a"}), "");
}

// Words that stay without an answer if the tag is begun anew in the middle of it.
TEST_F(ThoughtCounterTest, GoesOnWithATagThatTheModelHasBegun) {
  EXPECT_EQ(Due(Counter(ReasoningStart::kInside, 1), {"x<"}), "/");
  EXPECT_EQ(Due(Counter(ReasoningStart::kInside, 2), {"a", "</"}), "think>");
  EXPECT_EQ(Due(Counter(ReasoningStart::kInside, 3), {"<", "/", "think"}), ">");
  EXPECT_EQ(Due(Counter(ReasoningStart::kInside, 3), {"<", "/", "b"}), "</thi");
  EXPECT_EQ(Due(Counter(ReasoningStart::kInside, 3), {"<", "/", "<"}), "/");
  EXPECT_EQ(Due(Counter(ReasoningStart::kInside, 3), {"</", "t", "x<"}), "/");
  // Or the prompt.
  const ThoughtCounter amid = Counter({ReasoningStart::kAmid, 2}, 0);
  EXPECT_EQ(Due(amid, {}), "think>");
  EXPECT_EQ(Due(amid, {"think>"}), "");
  EXPECT_EQ(Due(Counter({ReasoningStart::kAmid, 2}, 1), {"a"}), "</thi");
}

// They are tokens that were generated, and no text.
TEST_F(ThoughtCounterTest, ControlTokensCountAndSpellNothing) {
  EXPECT_EQ(Due(Counter(ReasoningStart::kInside, 1), {"</s>"}), "</thi");
  EXPECT_EQ(Due(Counter(ReasoningStart::kInside, 9), {"</", "</s>", "think>", "a"}), "");
  EXPECT_EQ(Due(Counter(ReasoningStart::kBefore, 1), {"</s>", "<think>", "a"}), "</thi");
}

// As most models have their tags.
TEST(ThoughtCounter, KnowsTagsThatAreControlTokens) {
  TokenizerSpec spec = SmolLm2Spec();
  const TokenId open{static_cast<int>(spec.tokens.size())};
  const TokenId close{static_cast<int>(spec.tokens.size()) + 1};
  for (const std::string_view tag : {kThinkOpen, kThinkClose}) {
    spec.tokens.emplace_back(tag);
    spec.token_types.push_back(TokenType::kControl);
  }
  const auto tokenizer = CreateTokenizer(spec);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  ThoughtCounter counter(std::make_shared<ThinkingLimit>(
      ThinkingLimit{.closer = std::make_shared<ThoughtCloser>(tokenizer->get()),
                    .start = ReasoningStart::kBefore,
                    .budget_tokens = 1}));
  counter.Count(open);
  EXPECT_EQ(counter.Due(), std::nullopt);
  counter.Count(TokenId{300});
  EXPECT_EQ(counter.Due(), close);
  counter.Count(close);
  EXPECT_EQ(counter.Due(), std::nullopt);
}

}  // namespace
}  // namespace refrain::engine
