// Added tokens that take white space with them, or are found as single words only.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/create_tokenizer.h"
#include "engine/text/tokenizer_json.h"
#include "tests/engine/text/text_test_data.h"

namespace refrain::engine {
namespace {

using Json = nlohmann::ordered_json;
using kvcache::TokenId;

Json Golden() { return ReadTestJson("added-tokens-golden/added_tokens.json"); }

std::unique_ptr<Tokenizer> TokenizerOf(const Json& json) {
  const auto spec = ParseTokenizerJson(json.dump());
  EXPECT_TRUE(spec.ok()) << spec.status();
  if (!spec.ok()) return nullptr;
  auto tokenizer = CreateTokenizer(*spec);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

TEST(AddedTokensTest, IdsAreThoseOfHuggingFace) {
  const Json golden = Golden();
  size_t compared = 0;
  for (const auto& [name, of_tokenizer] : golden.items()) {
    const auto tokenizer = TokenizerOf(of_tokenizer["tokenizer"]);
    ASSERT_NE(tokenizer, nullptr) << name;
    for (const Json& one : of_tokenizer["cases"]) {
      const std::string text = one[0];
      EXPECT_EQ(EncodeOrFail(*tokenizer, text, {.parse_special = true, .add_bos = false}),
                IdsOf(one[1]))
          << name << ' ' << one[0];
      EXPECT_EQ(EncodeOrFail(*tokenizer, text, {.add_bos = false}), IdsOf(one[2]))
          << name << ", text only, " << one[0];
      ++compared;
    }
  }
  EXPECT_GE(compared, 250u);
}

// Where added_tokens_decoder of tokenizer_config.json says otherwise than tokenizer.json.
TEST(AddedTokensTest, IdsBesideAConfigAreThoseOfHuggingFace) {
  const Json golden = ReadTestJson("added-tokens-golden/config_tokens.json");
  ASSERT_EQ(golden.size(), 13u);
  for (const auto& [name, one] : golden.items()) {
    SCOPED_TRACE(name);
    const std::string json = one["tokenizer"].dump(), config = one["config"].dump();
    const auto spec = ParseTokenizerJson({.tokenizer_json = json, .tokenizer_config_json = config});
    ASSERT_TRUE(spec.ok()) << spec.status();
    const auto tokenizer = CreateTokenizer(*spec);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    ASSERT_GE(one["cases"].size(), 30u);
    for (const Json& text : one["cases"]) {
      EXPECT_EQ(EncodeOrFail(**tokenizer, text[0], {.parse_special = true, .add_bos = false}),
                IdsOf(text[1]))
          << text[0];
      EXPECT_EQ(EncodeOrFail(**tokenizer, text[0], {.add_bos = false}), IdsOf(text[2]))
          << "text only, " << text[0];
    }
  }
}

TEST(AddedTokensTest, RefusesAConfigsTokenThatHasNoId) {
  const std::string json = Golden()["byte_level"]["tokenizer"].dump();
  const auto spec = ParseTokenizerJson(
      {.tokenizer_json = json,
       .tokenizer_config_json = R"({"added_tokens_decoder": {"x1": {"content": "<n>"}}})"});
  EXPECT_NE(spec.status().message().find("added_tokens_decoder has 'x1'"), absl::string_view::npos)
      << spec.status();
}

// Beside a tokenizer.model both ways of merging are told of the rules: what is left of the text has
// the ids that it has on its own.
TEST(AddedTokensTest, FilesBesideASentencePieceModelHaveRules) {
  const std::string config = R"({"added_tokens_decoder": {
      "1": {"content": "<s>", "special": true, "lstrip": true, "rstrip": true},
      "512": {"content": "<|end|>", "special": true, "rstrip": true},
      "513": {"content": "<w>", "special": true, "single_word": true}}})";
  const auto spec = ParseSentencePieceSidecars({.tokenizer_config_json = config});
  ASSERT_TRUE(spec.ok()) << spec.status();
  const std::string model = ReadTestData("stories260K-tokenizer/tok512.model");
  for (const auto merging :
       {SentencePieceMerging::kOwnWhereEqual, SentencePieceMerging::kLibrary}) {
    const auto tokenizer = CreateSentencePieceTokenizer(model, *spec, merging);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    const auto ids = [&](const char* text) {
      return EncodeOrFail(**tokenizer, text, {.parse_special = true, .add_bos = false});
    };
    const std::vector<int> once = ids("once");
    const auto with_once = [&](std::vector<int> expected) {
      expected.insert(expected.begin(), once.begin(), once.end());
      expected.insert(expected.end(), once.begin(), once.end());
      return expected;
    };
    EXPECT_EQ(ids("once \n<s>\u00A0once"), with_once({1}));
    EXPECT_EQ(ids("once<|end|> \nonce"), with_once({512}));
    EXPECT_EQ(ids("once<|end|>  <s> once"), with_once({512, 1}));
    EXPECT_NE(ids("once <|end|>once"), with_once({512}));
    EXPECT_EQ(ids("-<w>-")[ids("-").size()], 513);
    EXPECT_EQ(std::ranges::count(ids("once<w> <w>once"), 513), 0);
  }
}

// What the request wrote forges no token, but its white space is taken as any other.
TEST(AddedTokensTest, TakesTheWhiteSpaceOfPlainSpans) {
  const auto tokenizer = TokenizerOf(Golden()["byte_level"]["tokenizer"]);
  ASSERT_NE(tokenizer, nullptr);
  const std::string text = "<|user|>\n hi<s> <|end|>\n";
  const TextSpan content{9, 16};
  ASSERT_EQ(text.substr(content.begin_byte, content.end_byte - content.begin_byte), " hi<s> ");
  const EncodeOptions options{
      .parse_special = true, .add_bos = false, .plain_spans = {&content, 1}};
  std::vector<int> expected = EncodeOrFail(*tokenizer, "hi<s> ", {.add_bos = false});
  expected.insert(expected.begin(), 262);
  expected.push_back(261);
  EXPECT_EQ(EncodeOrFail(*tokenizer, text, options), expected);
  const auto controls = tokenizer->FindControlTokens(text, options);
  EXPECT_EQ(controls,
            (std::vector<ControlToken>{{{0, 8}, TokenId{262}}, {{16, 23}, TokenId{261}}}));
}

TEST(AddedTokensTest, TheBoundOnTokensLeavesOutWhiteSpaceThatMayBeTaken) {
  for (const char* name : {"byte_level", "metaspace_first"}) {
    const auto tokenizer = TokenizerOf(Golden()[name]["tokenizer"]);
    ASSERT_NE(tokenizer, nullptr);
    for (const char* space : {" ", "\n", "\u0085", "\u2003", "\u3000", "hi \u2009"}) {
      std::string text = "<|end|>";
      for (int i = 0; i < 10'000; ++i) text += space;
      EXPECT_LE(tokenizer->FewestTokens(text),
                EncodeOrFail(*tokenizer, text, {.parse_special = true, .add_bos = false}).size());
    }
    EXPECT_GE(tokenizer->FewestTokens(Repeat("hi ", 3000)), 60u);
  }
}

// Counts what it is asked, and stops a text once it has been asked so often.
class CountingPace : public EncodePace {
 public:
  explicit CountingPace(size_t stop_at) : stop_at_(stop_at) {}
  void Checkpoint() override {
    if (++count_ == stop_at_) Stop();
  }
  size_t count() const { return count_; }

 private:
  const size_t stop_at_;
  size_t count_ = 0;
};

// White space that is taken, tokens that are white space, and words that are no single ones: a
// quadratic search takes minutes for any of them.
TEST(AddedTokensTest, OneMegabyteIsFastAndGivesWay) {
  constexpr size_t kBytes = 1 << 20;
  for (const char* name : {"byte_level", "byte_level_normalized", "byte_level_spaces"}) {
    const auto tokenizer = TokenizerOf(Golden()[name]["tokenizer"]);
    ASSERT_NE(tokenizer, nullptr);
    for (const std::string& text :
         {"<|end|>" + Repeat(" ", kBytes), Repeat(" ", kBytes) + "<s>",
          "<s>" + Repeat("\n", kBytes), Repeat("\n\n ", kBytes), Repeat("\u3000", kBytes) + "<s>",
          Repeat("<s> ", kBytes), Repeat("a<w>", kBytes), Repeat("word", kBytes),
          Repeat(" <mask>", kBytes)}) {
      const auto start = std::chrono::steady_clock::now();
      CountingPace never(0), soon(3);
      ASSERT_TRUE(tokenizer->Encode(text, {.parse_special = true, .pace = &never}).ok());
      EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20))
          << text.substr(0, 9);
      // Every 128 bytes of the search, or of what is taken.
      EXPECT_GE(never.count(), kBytes / 1024) << name << ' ' << text.substr(0, 9);
      EXPECT_EQ(tokenizer->Encode(text, {.parse_special = true, .pace = &soon}).status().code(),
                absl::StatusCode::kCancelled)
          << name << ' ' << text.substr(0, 9);
      EXPECT_EQ(soon.count(), 3u);
    }
  }
}

}  // namespace
}  // namespace refrain::engine
