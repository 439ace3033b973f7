#include "server/openai/shown_text.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "engine/text/create_tokenizer.h"

namespace refrain::server::openai {
namespace {

using engine::TokenId;

// Of a vocabulary whose texts begin with a space that nobody wrote: Llama 2's.
class ShownTextTest : public ::testing::Test {
 protected:
  void SetUp() override {
    engine::TokenizerSpec spec;
    spec.kind = engine::TokenizerKind::kSentencePiece;
    spec.tokens = {"<s>", "\u2581Once", "\u2581upon"};
    spec.token_types = {engine::TokenType::kControl, engine::TokenType::kNormal,
                        engine::TokenType::kNormal};
    spec.scores = {0, 0, 0};
    spec.bos = TokenId{0};
    auto tokenizer = CreateTokenizer(spec);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *std::move(tokenizer);
  }

  std::string Shown(const ShownText::Options& options) const {
    ShownText text(tokenizer_.get(), options);
    std::string shown;
    for (const int id : {0, 1, 2}) shown += text.Add({.token = TokenId{id}}).text;
    return shown + text.End().text;
  }

  std::unique_ptr<engine::Tokenizer> tokenizer_;
};

TEST_F(ShownTextTest, AnEchoedPromptIsTheTextThatWasSent) {
  EXPECT_EQ(Shown({.begins_with_prompt = true}), "Once upon");
}

TEST_F(ShownTextTest, AnAnswerKeepsTheSpaceThatPartsItFromThePrompt) {
  EXPECT_EQ(Shown({}), " Once upon");
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
