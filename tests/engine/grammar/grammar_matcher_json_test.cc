#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "engine/grammar/grammar_builder.h"
#include "engine/grammar/grammar_matcher.h"
#include "engine/grammar/json_rules.h"
#include "engine/grammar/token_trie.h"
#include "tests/engine/text/text_test_data.h"

namespace refrain::engine {
namespace {

using kvcache::TokenId;

class GrammarMatcherJsonTest : public ::testing::Test {
 protected:
  using Draw = std::function<RuleId(JsonRules* rules)>;

  static std::shared_ptr<const Grammar> Drawn(const Draw& draw) {
    GrammarBuilder builder;
    JsonRules rules(&builder);
    const RuleId root = draw(&rules);
    absl::StatusOr<Grammar> grammar = std::move(builder).Finish(root);
    EXPECT_TRUE(grammar.ok()) << grammar.status();
    return std::make_shared<const Grammar>(*std::move(grammar));
  }

  GrammarMatcher Matcher() const { return GrammarMatcher(grammar_, masks_); }

  // The tokens of the text up to the first one that is not allowed.
  size_t AcceptedTokens(const std::vector<int>& ids, GrammarMatcher* matcher) const {
    TokenSet allowed(trie_.vocab_size());
    for (size_t i = 0; i < ids.size(); ++i) {
      matcher->FindAllowed(&allowed);
      const bool is_accepted = matcher->AcceptToken(TokenId{ids[i]});
      EXPECT_EQ(allowed.Has(TokenId{ids[i]}), is_accepted) << i;
      if (!is_accepted) return i;
    }
    return ids.size();
  }

  void ExpectTaken(const std::string& text) const {
    const std::vector<int> ids = EncodeOrFail(*tokenizer_, text, {});
    GrammarMatcher matcher = Matcher();
    ASSERT_EQ(AcceptedTokens(ids, &matcher), ids.size()) << text;
    EXPECT_TRUE(matcher.CanEnd()) << text;
  }

  void ExpectAllowsWhatItAccepts(GrammarMatcher matcher, const std::string& where) const {
    TokenSet allowed(trie_.vocab_size());
    matcher.FindAllowed(&allowed);
    for (const TokenId token : trie_.TokensBelow(0)) {
      GrammarMatcher trial = matcher;
      ASSERT_EQ(trial.AcceptToken(token), allowed.Has(token))
          << where << " | " << trie_.BytesOf(token);
    }
  }

  std::unique_ptr<Tokenizer> tokenizer_ = SmolLm2Tokenizer();
  TokenTrie trie_{*tokenizer_, tokenizer_->vocab_size(), {}};
  std::shared_ptr<MaskStore> masks_ = std::make_shared<MaskStore>(&trie_, size_t{64} << 20);
  std::shared_ptr<const Grammar> grammar_ = Drawn([](JsonRules* rules) { return rules->Value(); });
};

// A model's own settings, and some of all that JSON has, in the usual layouts.
TEST_F(GrammarMatcherJsonTest, TakesJsonTextsTokenByToken) {
  std::vector<nlohmann::ordered_json> texts = {
      ReadTestJson("smollm2-tokenizer/tokenizer_config.json"),
      nlohmann::ordered_json::parse(R"(
        {"": [], "a\"b\\": {}, "\u00e9\ud83d\ude00": "\n\t日本語 🎉", "n": [0, -1, 1.5e-7, 12E+3],
         "deep": [[[[[{"x": [null, true, false, [[], [{}]]]}]]]]], "text": "{\"not\": [\"json\"]}"})"),
      "only a string",
      42,
      nullptr,
      nlohmann::ordered_json::array()};
  for (const nlohmann::ordered_json& json : texts) {
    ExpectTaken(json.dump());
    for (const int indent : {1, 2, 4}) ExpectTaken(json.dump(indent));
    ExpectTaken(json.dump(-1, ' ', /*ensure_ascii=*/true));
  }
}

// Each text with one byte changed, left out or put in: taken exactly when a parser takes it, but
// for what models are not to write (JsonRules: long numbers, wide space).
TEST_F(GrammarMatcherJsonTest, RefusesWhatAParserRefuses) {
  const std::string text = R"({"a": [1, -2.5e3, "x\n\u00e9", true], "b": {"c": null}, "dé": ""})";
  ExpectTaken(text);
  int taken = 0, refused = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    for (const char byte : std::string("\"{}[],:\\019.-e+ truelfasn/\n\x01\x80\xC3")) {
      for (const size_t replaced : {0, 1}) {
        std::string other = text;
        other.replace(i, replaced, 1, byte);
        GrammarMatcher matcher = Matcher();
        const bool is_taken = matcher.Accept(other) && matcher.CanEnd();
        ++(is_taken ? taken : refused);
        if (is_taken) {
          EXPECT_TRUE(nlohmann::json::accept(other)) << other;
        }
        if (byte != ' ' && byte != '\n' && nlohmann::json::accept(other)) {
          EXPECT_TRUE(is_taken) << other;
        }
      }
    }
  }
  EXPECT_GT(taken, 500);
  EXPECT_GT(refused, 2000);
}

// Broken off anywhere it may not end, and the model can go on.
TEST_F(GrammarMatcherJsonTest, OffersTokensUntilTheEnd) {
  const std::string text = R"({"a": [1, {"b": "x y"}], "c": [true, ""]})";
  GrammarMatcher matcher = Matcher();
  TokenSet allowed(trie_.vocab_size());
  for (const char byte : text) {
    EXPECT_FALSE(matcher.CanEnd());
    matcher.FindAllowed(&allowed);
    EXPECT_GT(allowed.Count(), 0u);
    ASSERT_TRUE(matcher.Accept(std::string(1, byte)));
  }
  EXPECT_TRUE(matcher.MustEnd());
  matcher.FindAllowed(&allowed);
  EXPECT_EQ(allowed.Count(), 0u);
}

// Inside of a string, and in all of its parts.
TEST_F(GrammarMatcherJsonTest, AllowsWhatItAccepts) {
  for (const std::string before :
       {"", "\"", R"("a\)", R"("a\u00)", R"("a\ud83d)", "\"\xE6\x97", "[", "[1", "[-", "[[{\"a\"",
        "{\"a\": [{\"b\": \"x", "[\"a\"", "[1,\n  ", "{\"a\": tr", "[[[[[[1.5"}) {
    GrammarMatcher matcher = Matcher();
    ASSERT_TRUE(matcher.Accept(before)) << before;
    ExpectAllowsWhatItAccepts(matcher, before);
  }
}

// Strings of bounded length: their states have twins, and near the bounds none.
TEST_F(GrammarMatcherJsonTest, AllowsWhatItAcceptsInStringsOfBoundedLength) {
  for (const auto& [min, max] : std::vector<std::pair<int, std::optional<int>>>{
           {0, 3}, {0, 100}, {70, 200}, {150, 150}, {80, std::nullopt}}) {
    const auto grammar = Drawn([&](JsonRules* rules) { return rules->StringOfLength(min, max); });
    GrammarMatcher matcher(grammar, masks_);
    ASSERT_TRUE(matcher.Accept("\""));
    for (int length = 0; length < max.value_or(min + 70); ++length) {
      const std::string where = absl::StrCat(min, " to ", max.value_or(-1), " at ", length);
      if (length % 37 == 0 || length == min - 1) ExpectAllowsWhatItAccepts(matcher, where);
      ASSERT_TRUE(matcher.Accept(length % 2 == 0 ? "\\n" : "x")) << where;
    }
    ExpectAllowsWhatItAccepts(matcher, "end");
    EXPECT_TRUE(matcher.Accept("\""));
    EXPECT_TRUE(matcher.MustEnd());
  }
}

}  // namespace
}  // namespace refrain::engine
