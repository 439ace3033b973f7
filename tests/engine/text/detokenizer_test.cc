#include "engine/text/detokenizer.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/text/utf8.h"
#include "tests/engine/text/text_test_data.h"

namespace refrain::engine {
namespace {

class DetokenizerTest : public testing::Test {
 protected:
  std::unique_ptr<Tokenizer> tokenizer_ = SmolLm2Tokenizer();
};

TEST_F(DetokenizerTest, ReleasesExactlyTheGoldenSteps) {
  const auto golden = ReadTestJson("text-golden/tokenization.json")["incremental_detokenization"];
  ASSERT_EQ(golden.size(), 21u);
  int kept = 0;
  for (const auto& entry : golden) {
    for (const bool skip : {true, false}) {
      const char* key = skip ? "steps_skip_special" : "steps_keep_special";
      // Where nothing is hidden both are equal and only one is given.
      const bool given = entry.contains(key);
      kept += !skip && given;
      const auto& steps = given ? entry[key] : entry["steps_skip_special"];
      Detokenizer detokenizer(tokenizer_.get(), {.skip_special = skip});
      for (size_t i = 0; i < entry["ids"].size(); ++i) {
        EXPECT_EQ(detokenizer.Append(kvcache::TokenId{entry["ids"][i].get<int>()}),
                  steps[i].get<std::string>())
            << entry["name"] << " step " << i;
      }
      EXPECT_EQ(detokenizer.Flush(), entry["flush"].get<std::string>()) << entry["name"];
      EXPECT_EQ(detokenizer.Flush(), "");
    }
  }
  EXPECT_EQ(kept, 3);
}

// However bytes are cut, the pieces are valid UTF-8 and join to the repaired whole.
TEST_F(DetokenizerTest, RandomCutsJoinToTheRepairedWhole) {
  const std::vector<std::string> alphabet = {"a",        " ",    "é",        "日",
                                             "😀",        "\x80", "\xF0",     "\xF0\x9F",
                                             "\xED\xA0", "\xC0", "\xF4\x90", "\xE2\x82"};
  std::mt19937 random(4);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes;
    for (unsigned n = random() % 12; n > 0; --n) bytes += alphabet[random() % alphabet.size()];
    Detokenizer detokenizer(tokenizer_.get());
    std::string joined;
    for (size_t at = 0; at < bytes.size();) {
      const size_t size = 1 + random() % 3;
      const std::string piece = detokenizer.AppendBytes(std::string_view(bytes).substr(at, size));
      ASSERT_TRUE(IsValidUtf8(piece));
      joined += piece;
      at += size;
    }
    joined += detokenizer.Flush();
    ASSERT_EQ(joined, ReplaceIllFormedUtf8(bytes));
  }
}

TEST_F(DetokenizerTest, EncodedTextComesBackForRandomTexts) {
  const std::vector<std::string> alphabet = {"a", " the", "é",  "日本",
                                             "😀", "\n",   "12", "<|im_end|>"};
  std::mt19937 random(5);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (unsigned n = random() % 20; n > 0; --n) text += alphabet[random() % alphabet.size()];
    for (const bool parse_special : {false, true}) {
      Detokenizer detokenizer(tokenizer_.get(), {.skip_special = false});
      std::string joined;
      for (const int id : EncodeOrFail(*tokenizer_, text, {.parse_special = parse_special})) {
        joined += detokenizer.Append(kvcache::TokenId{id});
      }
      ASSERT_EQ(joined + detokenizer.Flush(), text);
    }
  }
}

TEST_F(DetokenizerTest, DropsOneLeadingSpaceWhenAsked) {
  Detokenizer detokenizer(tokenizer_.get(), {.drop_leading_space = true});
  EXPECT_EQ(detokenizer.AppendBytes(" "), "");
  EXPECT_EQ(detokenizer.AppendBytes(" a"), " a");
}

TEST_F(DetokenizerTest, IgnoresIdsOutsideOfTheVocabulary) {
  Detokenizer detokenizer(tokenizer_.get());
  EXPECT_EQ(detokenizer.Append(kvcache::TokenId{-1}), "");
  EXPECT_EQ(detokenizer.Append(kvcache::TokenId{1 << 30}), "");
}

}  // namespace
}  // namespace refrain::engine
