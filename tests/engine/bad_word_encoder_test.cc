#include "engine/bad_word_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/fake_tokenizer.h"

namespace refrain::engine {
namespace {

using ::testing::ElementsAre;

class BadWordEncoderTest : public ::testing::Test {
 protected:
  BadWordEncoderTest() {
    tokenizer_.before_encode = [this](std::string_view) { ++texts_; };
  }

  BadWordEncoder::Sequences Encode(const BadWordEncoder::Words& words) {
    auto sequences = encoder_.Encode(words);
    EXPECT_TRUE(sequences.ok()) << sequences.status();
    return sequences.ok() ? *sequences : BadWordEncoder::Sequences();
  }

  // Token of a byte: byte % 24.
  testing::FakeTokenizer tokenizer_{testing::LetterVocabulary()};
  BadWordEncoder encoder_{&tokenizer_};
  int texts_ = 0;
};

TEST_F(BadWordEncoderTest, EncodesAListOfACallOnce) {
  const BadWordEncoder::Words words = {"a", "b"};
  const BadWordEncoder::Sequences first = Encode(words);
  EXPECT_EQ(first.size(), 4u);
  EXPECT_EQ(texts_, 4);
  for (int prompt = 1; prompt < 1000; ++prompt) {
    const auto copy = std::make_unique<BadWordEncoder::Words>(words);
    EXPECT_EQ(Encode(*copy).begin(), first.begin()) << "not shared";
  }
  EXPECT_EQ(texts_, 4);
}

// No limit of the engine's counts them while their requests wait.
TEST_F(BadWordEncoderTest, TakesNoMoreThanItsTokens) {
  for (const auto& sequence : Encode({std::string(100, 'a')})) {
    EXPECT_EQ(sequence.capacity(), sequence.size());
  }
}

// Lists are made and dropped: another one may come to lie where an earlier one was.
TEST_F(BadWordEncoderTest, TellsListsApart) {
  for (int call = 0; call < 1000; ++call) {
    const std::string word(1, static_cast<char>('a' + call % 26));
    const kvcache::TokenId token{word[0] % 24};
    const kvcache::TokenId space{' ' % 24};
    const BadWordEncoder::Words words = {word};
    EXPECT_THAT(Encode(words), ElementsAre(ElementsAre(token), ElementsAre(space, token)));
  }
  EXPECT_TRUE(Encode({}).empty());
}

// Calls of several clients take turns.
TEST_F(BadWordEncoderTest, KeepsTheListsOfSeveralCalls) {
  const BadWordEncoder::Words one = {"a"};
  const BadWordEncoder::Words two = {"b"};
  for (int prompt = 0; prompt < 100; ++prompt) {
    Encode(one);
    Encode(two);
  }
  EXPECT_EQ(texts_, 4);
}

}  // namespace
}  // namespace refrain::engine
