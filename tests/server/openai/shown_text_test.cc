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

}  // namespace
}  // namespace refrain::server::openai
