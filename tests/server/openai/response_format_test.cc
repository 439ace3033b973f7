#include "server/openai/response_format.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/support/fake_tokenizer.h"

namespace refrain::server::openai {
namespace {

using engine::TokenId;

// The log-probabilities of one token of a completion, by its text in a vocabulary that has "a"
// twice, as a tokenizer with tokens of single bytes has.
std::string TopLogprobs(TokenId token, float logprob, std::vector<engine::TokenLogprob> top) {
  const testing::FakeTokenizer tokenizer({"a", "b", "a", "c", "</s>"});
  ResponseFormat::Answer answer;
  answer.output.logprobs = 3;
  ResponseFormat format(std::move(answer), /*num_choices=*/1, &tokenizer);
  TextPiece piece;
  piece.text = "?";
  piece.tokens.push_back({.token = token, .logprob = logprob, .top = std::move(top), .rank = 1});
  std::string event;
  format.AppendEvent(0, piece, {}, std::nullopt, &event);
  const size_t begin = event.find("\"top_logprobs\":[");
  const size_t end = event.find(']', begin);
  return event.substr(begin, end + 1 - begin);
}

TEST(ResponseFormatTest, OfTokensWithOneTextTheLikeliestIsNamed) {
  EXPECT_EQ(TopLogprobs(TokenId{1}, -0.5f,
                        {{TokenId{1}, -0.5f, 1}, {TokenId{2}, -1.5f, 2}, {TokenId{0}, -2.5f, 3}}),
            R"("top_logprobs":[{"b":-0.5,"a":-1.5}])");
}

TEST(ResponseFormatTest, OfTokensWithOneTextThatOfTheAnswerIsNamed) {
  EXPECT_EQ(TopLogprobs(TokenId{2}, -1.5f,
                        {{TokenId{0}, -0.5f, 1}, {TokenId{2}, -1.5f, 2}, {TokenId{3}, -2.5f, 3}}),
            R"("top_logprobs":[{"a":-1.5,"c":-2.5}])");
  EXPECT_EQ(TopLogprobs(TokenId{2}, -4.5f,
                        {{TokenId{0}, -0.5f, 1}, {TokenId{1}, -1.5f, 2}, {TokenId{3}, -2.5f, 3}}),
            R"("top_logprobs":[{"b":-1.5,"c":-2.5,"a":-4.5}])");
}

TEST(ResponseFormatTest, TheTokenOfTheAnswerIsNamedBesideTheLikeliest) {
  EXPECT_EQ(TopLogprobs(TokenId{3}, -9.5f, {{TokenId{0}, -0.5f, 1}, {TokenId{1}, -1.5f, 2}}),
            R"("top_logprobs":[{"a":-0.5,"b":-1.5,"c":-9.5}])");
}

}  // namespace
}  // namespace refrain::server::openai
