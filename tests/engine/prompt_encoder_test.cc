#include "engine/prompt_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/support/fake_tokenizer.h"

namespace refrain::engine {
namespace {

using ::testing::ElementsAre;

TokenId T(int32_t id) { return TokenId{id}; }

class PromptEncoderTest : public ::testing::Test {
 protected:
  EncodedRequest Encode(Request request) {
    EncodedRequest encoded;
    encoded.request = std::move(request);
    const auto text = encoder_.Render(encoded.request);
    EXPECT_TRUE(text.ok()) << text.status();
    status_ = encoder_.Tokenize(*text, &encoded);
    return encoded;
  }

  // Token of a byte: byte % 24.
  testing::FakeTokenizer tokenizer_{testing::LetterVocabulary()};
  PromptEncoder encoder_{
      &tokenizer_, nullptr, {.max_context_tokens = 8, .kv_capacity_tokens = 100}};
  absl::Status status_;
};

TEST_F(PromptEncoderTest, KeepsTheEndOfATruncatedPrompt) {
  Request request;
  request.prompt = TextPrompt{.text = "abcdefghijkl"};
  request.keep_prompt_tokens = 3;
  EXPECT_THAT(Encode(request).prompt, ElementsAre(T('j' % 24), T('k' % 24), T('l' % 24)));
  EXPECT_TRUE(status_.ok()) << status_;
  // A prompt of ids, and one that is short enough.
  request.prompt = TokenPrompt{.ids = {T(1), T(2), T(3), T(4)}};
  EXPECT_THAT(Encode(request).prompt, ElementsAre(T(2), T(3), T(4)));
  request.prompt = TokenPrompt{.ids = {T(1), T(2)}};
  EXPECT_THAT(Encode(request).prompt, ElementsAre(T(1), T(2)));
  // The context's limit counts what is kept.
  request.prompt = TextPrompt{.text = "abcdefghijkl"};
  request.keep_prompt_tokens.reset();
  Encode(request);
  EXPECT_FALSE(status_.ok());
}

TEST_F(PromptEncoderTest, BansBadWordsAloneAndBehindASpace) {
  Request request;
  request.prompt = TextPrompt{.text = "a"};
  request.sampling.bad_words = {" ab", "c", "  "};
  const auto banned = Encode(request).request.sampling.banned_sequences;
  const TokenId space = T(' ' % 24);
  EXPECT_THAT(banned, ElementsAre(ElementsAre(T('a' % 24), T('b' % 24)),
                                  ElementsAre(space, T('a' % 24), T('b' % 24)),
                                  ElementsAre(T('c' % 24)), ElementsAre(space, T('c' % 24))));
}

}  // namespace
}  // namespace refrain::engine
