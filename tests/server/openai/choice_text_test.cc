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

}  // namespace
}  // namespace refrain::server::openai
