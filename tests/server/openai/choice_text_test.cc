#include "server/openai/choice_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/support/fake_tokenizer.h"

namespace refrain::server::openai {
namespace {

using engine::TokenId;

// A model that says line ends behind a tag, or control tokens, shows nothing for as long; its
// tokens, which nobody counts, are not all kept meanwhile.
TEST(ChoiceTextTest, TokensThatShowNothingWaitForTextInSmallNumbers) {
  const testing::FakeTokenizer tokenizer({"a", "</think>", "\n", "<s>"});
  for (const int silent : {2, 3}) {
    for (const bool wants_tokens : {true, false}) {
      ChoiceText text(&tokenizer, {.wants_tokens = wants_tokens,
                                   .shown = {.reasoning = engine::ReasoningFormat::kThink}});
      text.SetReasoningStart(engine::ReasoningStart::kInside);
      size_t most = 0, tokens = 0, pieces = 0;
      std::string reasoning, answer;
      const auto add = [&](int id) {
        text.Add({.token = TokenId{id}});
        for (const TextPiece& piece : text.ready()) {
          reasoning += piece.reasoning;
          answer += piece.text;
          most = std::max(most, piece.tokens.size());
          tokens += piece.tokens.size();
          ++pieces;
        }
        text.ClearReady();
      };
      add(0);
      add(1);
      for (int i = 0; i < 1000; ++i) add(silent);
      add(0);
      EXPECT_EQ(reasoning, "a");
      EXPECT_EQ(answer, "a");
      EXPECT_EQ(tokens, wants_tokens ? 1003u : 0u);
      EXPECT_LE(most, 64u);
      EXPECT_EQ(pieces, wants_tokens ? 1u + 15u + 1u : 2u);
    }
  }
}

// Also those that were told before it was known that a thought begins.
TEST(ChoiceTextTest, AThoughtsTokensAreTheFirstOfAll) {
  const testing::FakeTokenizer tokenizer({"a", "<think>", "</think>", " "});
  ChoiceText text(&tokenizer,
                  {.wants_tokens = true, .shown = {.reasoning = engine::ReasoningFormat::kThink}});
  text.SetReasoningStart(engine::ReasoningStart::kBefore);
  const auto add = [&](int id) { text.Add({.token = TokenId{id}}); };
  for (int i = 0; i < 100; ++i) add(3);
  for (const int id : {1, 0, 2}) add(id);
  for (int i = 0; i < 80; ++i) add(0);
  size_t thought = 0, others = 0;
  for (const TextPiece& piece : text.ready()) {
    EXPECT_TRUE(piece.text.empty() || piece.thought_tokens <= 1) << "the closing tag";
    (piece.text.empty() ? thought : others) += piece.tokens.size();
    if (!piece.text.empty()) thought += piece.thought_tokens, others -= piece.thought_tokens;
  }
  EXPECT_EQ(thought, 103u);
  EXPECT_EQ(others, 80u);
  EXPECT_EQ(text.reasoning_tokens(), 103);
}

}  // namespace
}  // namespace refrain::server::openai
