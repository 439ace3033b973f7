#include "server/openai/shown_text.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/text/create_tokenizer.h"

namespace refrain::server::openai {
namespace {

using engine::TokenId;

// Of a vocabulary whose texts begin with a space that nobody wrote, also behind control tokens:
// Llama 2's.
class ShownTextTest : public ::testing::Test {
 protected:
  void SetUp() override {
    engine::TokenizerSpec spec;
    spec.kind = engine::TokenizerKind::kSentencePiece;
    spec.tokens = {"<s>", "\u2581Once", "\u2581upon", "<tool>"};
    spec.token_types = {engine::TokenType::kControl, engine::TokenType::kNormal,
                        engine::TokenType::kNormal, engine::TokenType::kUserDefined};
    spec.scores = {0, 0, 0, 0};
    spec.bos = TokenId{0};
    auto tokenizer = CreateTokenizer(spec);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *std::move(tokenizer);
  }

  std::string Shown(const std::vector<engine::TokenEvent>& events, bool skip_special = true) const {
    ShownText text(tokenizer_.get(), {.skip_special = skip_special});
    std::string shown;
    for (const engine::TokenEvent& event : events) shown += text.Add(event).text;
    return shown + text.End().text;
  }

  static engine::TokenEvent Generated(int id) { return {.token = TokenId{id}}; }
  static engine::TokenEvent Sent(int id) { return {.token = TokenId{id}, .from_prompt = true}; }
  static engine::TokenEvent Bos() {
    return {.token = TokenId{0}, .from_prompt = true, .added_bos = true};
  }

  std::unique_ptr<engine::Tokenizer> tokenizer_;
};

TEST_F(ShownTextTest, AnEchoedPromptIsTheTextThatWasSent) {
  EXPECT_EQ(Shown({Bos(), Sent(1), Sent(2), Generated(1)}), "Once upon Once");
  EXPECT_EQ(Shown({Sent(1), Sent(2)}), "Once upon");
}

// Whether control tokens of the answer are shown or not.
TEST_F(ShownTextTest, AnEchoedPromptShowsTheControlTokensThatWereSent) {
  for (const bool skip_special : {true, false}) {
    const std::vector<engine::TokenEvent> prompt = {Bos(),   Sent(0), Sent(1), Sent(0),
                                                    Sent(2), Sent(3), Sent(1), Sent(2)};
    EXPECT_EQ(Shown(prompt, skip_special), "<s>Once<s>upon<tool>Once upon");
  }
  EXPECT_EQ(Shown({Sent(0), Generated(1), Generated(0)}, true), "<s> Once");
  EXPECT_EQ(Shown({Sent(0), Generated(1), Generated(0)}, false), "<s> Once<s>");
}

// The tokenizer's own stays hidden where control tokens are shown, too.
TEST_F(ShownTextTest, AnEchoedPromptHasNoBosThatWasNotSent) {
  EXPECT_EQ(Shown({Bos(), Sent(1)}, false), "Once");
  EXPECT_EQ(Shown({Bos(), Generated(1)}, false), " Once");
}

TEST_F(ShownTextTest, AnAnswerKeepsTheSpaceThatPartsItFromThePrompt) {
  EXPECT_EQ(Shown({Generated(0), Generated(1), Generated(2)}), " Once upon");
}

// A stop string that was met inside of a control token, of which two bytes come before it.
TEST_F(ShownTextTest, OfAControlTokenThatIsNotShownNoPartIs) {
  const auto shown = [&](bool skip_special) {
    ShownText text(tokenizer_.get(), {.skip_special = skip_special});
    std::string all = text.Add({.token = TokenId{1}}).text;
    all += text.Add({.token = TokenId{0}, .shown_bytes = 2}).text;
    return all + text.End().text;
  };
  EXPECT_EQ(shown(true), " Once");
  EXPECT_EQ(shown(false), " Once<s");
}

// Tags that are control tokens are left out of text, and still are tags; elsewhere they are what
// control tokens are.
TEST_F(ShownTextTest, TagsOfAThoughtMayBeControlTokensOrNot) {
  for (const auto type : {engine::TokenType::kControl, engine::TokenType::kUserDefined}) {
    const bool is_control = type == engine::TokenType::kControl;
    engine::TokenizerSpec spec;
    spec.tokens = {"<think>", "</think>", "a", "b", "<s>", "<", "/"};
    spec.token_types.assign(spec.tokens.size(), engine::TokenType::kNormal);
    spec.token_types[0] = spec.token_types[1] = type;
    spec.token_types[4] = engine::TokenType::kControl;
    spec.pre_tokenizer = "gpt2";
    const auto tokenizer = CreateTokenizer(spec);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    for (const bool skip_special : {true, false}) {
      const auto shown = [&](engine::ReasoningStart start, const std::vector<int>& ids,
                             bool include = true) {
        ShownText text(tokenizer->get(), {.skip_special = skip_special,
                                          .reasoning = engine::ReasoningFormat::kThink,
                                          .include_reasoning = include});
        text.SetReasoningStart(start);
        std::string reasoning, answer;
        const auto take = [&](const ShownText::Output& output) {
          reasoning += output.reasoning;
          answer += output.text;
        };
        for (const int id : ids) take(text.Add(Generated(id)));
        take(text.End());
        return reasoning + "|" + answer + "|" + std::to_string(text.reasoning_tokens());
      };
      const auto hidden = [&](const char* tag) {
        return std::string(is_control && skip_special ? "" : tag);
      };
      const std::string special = skip_special ? "" : "<s>";
      using engine::ReasoningStart;
      EXPECT_EQ(shown(ReasoningStart::kBefore, {0, 2, 4, 1, 3}), "a" + special + "|b|4");
      EXPECT_EQ(shown(ReasoningStart::kInside, {2, 1, 3}), "a|b|2");
      EXPECT_EQ(shown(ReasoningStart::kInside, {0, 2, 1, 3}), "a|b|3");
      EXPECT_EQ(shown(ReasoningStart::kBefore, {0, 2, 1, 3}, false), "|b|3");
      // Behind text that might have become a tag.
      EXPECT_EQ(shown(ReasoningStart::kInside, {2, 5, 1, 3}), "a<|b|3");
      EXPECT_EQ(shown(ReasoningStart::kBefore, {0, 5, 6, 1, 3}), "</|b|4");
      EXPECT_EQ(shown(ReasoningStart::kInside, {5, 1, 3}), "<|b|2");
      EXPECT_EQ(shown(ReasoningStart::kBefore, {2, 0, 3, 1}),
                "|a" + hidden("<think>") + "b" + hidden("</think>") + "|0");
      EXPECT_EQ(shown(ReasoningStart::kBefore, {1, 2}), "|" + hidden("</think>") + "a|0");
      EXPECT_EQ(shown(ReasoningStart::kBehind, {0, 2, 1}),
                "|" + hidden("<think>") + "a" + hidden("</think>") + "|0");
    }
  }
}

// The bytes of a character that has begun come out in front of it.
TEST_F(ShownTextTest, ACutControlTokenEndsACharacter) {
  engine::TokenizerSpec spec;
  spec.tokens = {"\u00e2", "<s>"};  // the byte E2 of byte-level BPE
  spec.token_types = {engine::TokenType::kNormal, engine::TokenType::kControl};
  spec.pre_tokenizer = "gpt2";
  const auto tokenizer = CreateTokenizer(spec);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  ShownText text(tokenizer->get(), {});
  EXPECT_EQ(text.Add({.token = TokenId{0}}).text, "");
  EXPECT_EQ(text.Add({.token = TokenId{1}, .shown_bytes = 2}).text, "\xEF\xBF\xBD");
}

}  // namespace
}  // namespace refrain::server::openai
