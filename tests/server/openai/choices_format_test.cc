#include "server/openai/choices_format.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/create_tokenizer.h"
#include "tests/support/fake_tokenizer.h"

namespace refrain::server::openai {
namespace {

using engine::TokenId;

// The log-probabilities of one token of a completion, by its text in a vocabulary that has "a"
// twice, as a tokenizer with tokens of single bytes has.
std::string TopLogprobs(TokenId token, float logprob, std::vector<engine::TokenLogprob> top) {
  const testing::FakeTokenizer tokenizer({"a", "b", "a", "c", "</s>"});
  ChoicesFormat::Answer answer;
  answer.output.logprobs = 3;
  ChoicesFormat format(std::move(answer), /*num_choices=*/1, &tokenizer);
  TextPiece piece;
  piece.text = "?";
  piece.tokens.push_back({.token = token, .logprob = logprob, .top = std::move(top), .rank = 1});
  std::string event;
  format.AppendEvents(0, piece, {}, std::nullopt, &event);
  const size_t begin = event.find("\"top_logprobs\":[");
  const size_t end = event.find(']', begin);
  return event.substr(begin, end + 1 - begin);
}

TEST(ChoicesFormatTest, OfTokensWithOneTextTheLikeliestIsNamed) {
  EXPECT_EQ(TopLogprobs(TokenId{1}, -0.5f,
                        {{TokenId{1}, -0.5f, 1}, {TokenId{2}, -1.5f, 2}, {TokenId{0}, -2.5f, 3}}),
            R"("top_logprobs":[{"b":-0.5,"a":-1.5}])");
}

TEST(ChoicesFormatTest, OfTokensWithOneTextThatOfTheAnswerIsNamed) {
  EXPECT_EQ(TopLogprobs(TokenId{2}, -1.5f,
                        {{TokenId{0}, -0.5f, 1}, {TokenId{2}, -1.5f, 2}, {TokenId{3}, -2.5f, 3}}),
            R"("top_logprobs":[{"a":-1.5,"c":-2.5}])");
  EXPECT_EQ(TopLogprobs(TokenId{2}, -4.5f,
                        {{TokenId{0}, -0.5f, 1}, {TokenId{1}, -1.5f, 2}, {TokenId{3}, -2.5f, 3}}),
            R"("top_logprobs":[{"b":-1.5,"c":-2.5,"a":-4.5}])");
}

TEST(ChoicesFormatTest, TheTokenOfTheAnswerIsNamedBesideTheLikeliest) {
  EXPECT_EQ(TopLogprobs(TokenId{3}, -9.5f, {{TokenId{0}, -0.5f, 1}, {TokenId{1}, -1.5f, 2}}),
            R"("top_logprobs":[{"a":-0.5,"b":-1.5,"c":-9.5}])");
}

// Of a vocabulary whose texts begin with a space that nobody wrote: Llama 2's.
TEST(ChoicesFormatTest, TextOffsetsCountWhatIsShown) {
  engine::TokenizerSpec spec;
  spec.kind = engine::TokenizerKind::kSentencePiece;
  spec.tokens = {"<s>", "\u2581Once", "\u2581upon"};
  spec.token_types = {engine::TokenType::kControl, engine::TokenType::kNormal,
                      engine::TokenType::kNormal};
  spec.scores = {0, 0, 0};
  spec.bos = engine::TokenId{0};
  const auto tokenizer = CreateTokenizer(spec);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto offsets = [&](bool echo, bool skip_special, bool added_bos = false) {
    ChoicesFormat::Answer answer;
    answer.output.echo = echo;
    answer.output.logprobs = 0;
    answer.output.skip_special = skip_special;
    ChoicesFormat format(answer, 1, tokenizer->get());
    TextPiece choice;
    for (const int id : {0, 1, 2}) {
      choice.tokens.push_back({.token = engine::TokenId{id}, .from_prompt = echo});
    }
    choice.tokens.front().added_bos = added_bos;
    choice.tokens.push_back({.token = engine::TokenId{1}});
    format.Keep(0, std::move(choice));
    const auto body = nlohmann::json::parse(format.TakeWhole({{}}, {}));
    return body["choices"][0]["logprobs"]["text_offset"];
  };
  for (const bool skip_special : {true, false}) {
    EXPECT_EQ(offsets(true, skip_special), nlohmann::json({0, 3, 7, 12}));  // <s>Once upon Once
    EXPECT_EQ(offsets(true, skip_special, true), nlohmann::json({0, 0, 4, 9}));  // Once upon Once
  }
  EXPECT_EQ(offsets(false, true), nlohmann::json({0, 0, 5, 10}));   //  Once upon Once
  EXPECT_EQ(offsets(false, false), nlohmann::json({0, 3, 8, 13}));  // <s> Once upon Once
}

// Where the tokens lie that `ids` names, told in one event for each.
std::vector<int64_t> StreamedTextOffsets(const std::vector<int>& ids) {
  const testing::FakeTokenizer tokenizer(
      {"The", "\xF0\x9F", "\x98", "\x80", "\xF0\x9F\x98", "\x80!", "\xED\xA0", "</s>"});
  ChoicesFormat::Answer answer;
  answer.output.logprobs = 0;
  ChoicesFormat format(std::move(answer), /*num_choices=*/1, &tokenizer);
  std::vector<int64_t> offsets;
  for (const int id : ids) {
    TextPiece piece;
    piece.text = "?";
    piece.tokens.push_back({.token = TokenId{id}});
    std::string event;
    format.AppendEvents(0, piece, {}, std::nullopt, &event);
    const auto body = nlohmann::json::parse(event.substr(event.find('{')));
    offsets.push_back(body["choices"][0]["logprobs"]["text_offset"][0]);
  }
  return offsets;
}

TEST(ChoicesFormatTest, TextOffsetsOfPartsOfACharacterAreWhereItBegins) {
  EXPECT_EQ(StreamedTextOffsets({0, 1, 2, 3, 0}), (std::vector<int64_t>{0, 3, 3, 3, 4}));
  EXPECT_EQ(StreamedTextOffsets({0, 4, 5, 0}), (std::vector<int64_t>{0, 3, 3, 5}));
}

// Each ill-formed part is shown as one character, U+FFFD.
TEST(ChoicesFormatTest, TextOffsetsCountReplacementCharacters) {
  EXPECT_EQ(StreamedTextOffsets({2, 1, 0, 0}), (std::vector<int64_t>{0, 1, 2, 5}));
  EXPECT_EQ(StreamedTextOffsets({0, 2, 3, 0}), (std::vector<int64_t>{0, 3, 4, 5}));
  EXPECT_EQ(StreamedTextOffsets({1, 1, 4, 3, 0}), (std::vector<int64_t>{0, 1, 2, 2, 3}));
  EXPECT_EQ(StreamedTextOffsets({1, 7, 0}), (std::vector<int64_t>{0, 1, 1}));  // cut by a control
  EXPECT_EQ(StreamedTextOffsets({6, 0, 0}), (std::vector<int64_t>{0, 2, 5}));  // half a surrogate
}

}  // namespace
}  // namespace refrain::server::openai
