#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#ifndef PCRE2_CODE_UNIT_WIDTH
#define PCRE2_CODE_UNIT_WIDTH 8
#endif
#include <pcre2.h>

#include "engine/grammar/regex_rule.h"
#include "tests/engine/grammar/naive_acceptor.h"
#include "tests/engine/grammar/regex_grammar.h"
#include "tests/support/random_steps.h"

namespace refrain::engine {
namespace {

using refrain::testing::Accepts;
using refrain::testing::MakeRegexGrammar;
using refrain::testing::NaiveAcceptor;
using refrain::testing::RandomSeed;
using refrain::testing::RandomSteps;

// With white space spelled out: that of ECMA-262 is not PCRE2's.
std::string WithSpaceSpelled(const std::string& pattern) {
  const std::string space =
      "\\u{9}-\\u{D}\\u{20}\\u{A0}\\u{1680}\\u{2000}-\\u{200A}\\u{2028}\\u{2029}\\u{202F}\\u{205F}"
      "\\u{3000}\\u{FEFF}";
  std::string spelled;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const std::string unit = pattern.substr(i, pattern[i] == '\\' ? 2 : 1);
    i += unit.size() - 1;
    if (unit == "[" || unit == "]") in_class = unit == "[";
    if (unit == "\\s") {
      spelled += in_class ? space : "[" + space + "]";
    } else {
      spelled += unit == "\\S" ? "[^" + space + "]" : unit;
    }
  }
  return spelled;
}

// A pattern as PCRE2 understands it: the oracle.
class PcrePattern {
 public:
  PcrePattern(const std::string& pattern, bool is_whole)
      : context_(pcre2_compile_context_create(nullptr), pcre2_compile_context_free) {
    pcre2_set_compile_extra_options(context_.get(), PCRE2_EXTRA_ALT_BSUX);
    pcre2_set_newline(context_.get(), PCRE2_NEWLINE_ANYCRLF);
    const uint32_t options = PCRE2_UTF | PCRE2_ALLOW_EMPTY_CLASS | PCRE2_DOLLAR_ENDONLY |
                             (is_whole ? PCRE2_ANCHORED | PCRE2_ENDANCHORED : 0);
    int error = 0;
    PCRE2_SIZE error_at = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), options,
                              &error, &error_at, context_.get()));
    if (code_ != nullptr) data_.reset(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
  }

  bool is_understood() const { return code_ != nullptr; }
  // None when it gives up.
  std::optional<bool> Matches(const std::string& text) const {
    const int found = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                  text.size(), 0, 0, data_.get(), nullptr);
    if (found < PCRE2_ERROR_NOMATCH) return std::nullopt;
    return found >= 0;
  }

 private:
  std::unique_ptr<pcre2_compile_context, void (*)(pcre2_compile_context*)> context_;
  std::unique_ptr<pcre2_code, void (*)(pcre2_code*)> code_{nullptr, pcre2_code_free};
  std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> data_{nullptr,
                                                                       pcre2_match_data_free};
};

class RandomPattern {
 public:
  explicit RandomPattern(uint32_t seed) : random_(seed) {}

  // Some have anchors where they do not belong.
  std::string Pattern() { return Alternatives(3); }
  std::string Text() {
    std::string text;
    for (int i = Below(7); i > 0; --i) text += Character();
    return text;
  }
  int Below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  void Shuffle(std::array<char, 256>* bytes) {
    std::shuffle(bytes->begin(), bytes->end(), random_);
  }
  template <size_t kSize>
  const char* OneOf(const char* const (&choices)[kSize]) {
    return choices[Below(static_cast<int>(kSize))];
  }

 private:
  std::string Alternatives(int depth) {
    std::string pattern = Sequence(depth);
    while (Below(3) == 0) pattern += "|" + Sequence(depth);
    return pattern;
  }
  std::string Sequence(int depth) {
    std::string pattern = Below(5) == 0 ? "^" : "";
    for (int i = Below(4); i > 0; --i) {
      pattern += Atom(depth);
      if (Below(3) == 0) {
        pattern += OneOf({"*", "+", "?", "{2}", "{1,2}", "{0,3}", "{2,}", "*?", "+?", "{18,20}"});
      }
    }
    return pattern + (Below(5) == 0 ? "$" : "");
  }
  std::string Atom(int depth) {
    if (depth > 0 && Below(4) == 0) {
      const std::string name = "(?<g" + std::to_string(num_names_++) + ">";
      return OneOf({"(", "(?:", name.c_str()}) + Alternatives(depth - 1) + ")";
    }
    if (Below(4) == 0) {
      // PCRE2 has no use for the quantifier of an empty class, which may well be 0.
      std::string members = OneOf({"a", "b", "^"});
      for (int i = Below(4); i > 0; --i) {
        members += OneOf({"a", "b", "a-b", "\\d", "\\w", "\\s", "\\n", "\\\\", "\"", "\\]",
                          "\xC3\xA9", "\xC3\xA0-\xC3\xBF", "\\W", "\\u0061"});
      }
      return "[" + members + "]";
    }
    return OneOf({"a", "a", "b", "b", "\"", "\\\\", "\\n", "\xC3\xA9", "\xF0\x9F\x98\x80", "\\d",
                  "\\w", "\\s", "\\S", "\\D", "\\x61", "\\u{62}", "\\/", "."});
  }
  std::string Character() {
    return OneOf({"a", "a", "a", "b", "b", "b", "\"", "\\", "\n", "\xC3\xA9", "\xF0\x9F\x98\x80",
                  "0", "_", " ", "/", "\x7F", "\x01"});
  }

  std::mt19937 random_;
  int num_names_ = 0;
};

// As it stands in a JSON string, without the quotes.
std::string Inside(const std::string& text) {
  const std::string quoted = nlohmann::json(text).dump();
  return quoted.substr(1, quoted.size() - 2);
}

// A text that the grammar takes, or none where that would be long.
std::optional<std::string> TakeWalk(const Grammar& grammar, RandomPattern* random) {
  NaiveAcceptor acceptor(&grammar);
  std::string text;
  while (text.size() < 60) {
    if (acceptor.CanEnd() && random->Below(4) == 0) return text;
    std::array<char, 256> bytes;
    std::iota(bytes.begin(), bytes.end(), '\0');
    random->Shuffle(&bytes);
    const char* const next =
        std::find_if(bytes.begin(), bytes.end(), [&acceptor](const char& byte) {
          return acceptor.Accept({&byte, 1});
        });
    if (next == bytes.end()) return text;
    text.push_back(*next);
  }
  return std::nullopt;
}

void CompareWithPcre(RegexText kind, uint32_t seed) {
  RandomPattern random(RandomSeed(seed));
  const bool is_json = kind == RegexText::kJsonString;
  int num_compared = 0, num_matches = 0, num_walks = 0, num_too_ambiguous = 0;
  // The oracle of grammars takes long where a pattern is ambiguous.
  const int num_patterns = std::min(RandomSteps() / 20, 5000);
  for (int i = 0; i < num_patterns; ++i) {
    const std::string pattern = random.Pattern();
    const PcrePattern oracle(WithSpaceSpelled(pattern), !is_json);
    ASSERT_TRUE(oracle.is_understood()) << pattern;
    const absl::StatusOr<Grammar> grammar = MakeRegexGrammar(pattern, kind);
    if (!grammar.ok()) {
      const std::string message(grammar.status().message());
      // As "a.{20}" in the middle of a string, of which any "a" may be the beginning.
      if (message.find("too ambiguous") != std::string::npos) {
        ++num_too_ambiguous;
        continue;
      }
      const bool is_empty = message.find("never be satisfied") != std::string::npos;
      ASSERT_TRUE(is_empty || pattern.find_first_of("^$") != std::string::npos)
          << pattern << ' ' << message;
      for (int j = 0; is_empty && j < 10; ++j) EXPECT_NE(oracle.Matches(random.Text()), true);
      continue;
    }
    for (int j = 0; j < 20; ++j) {
      const std::string text = random.Text();
      const std::optional<bool> matches = oracle.Matches(text);
      if (!matches.has_value()) continue;
      ++num_compared;
      num_matches += *matches ? 1 : 0;
      ASSERT_EQ(Accepts(*grammar, is_json ? Inside(text) : text), *matches)
          << pattern << " and " << text;
    }
    for (int j = 0; j < 2; ++j) {
      const std::optional<std::string> walk = TakeWalk(*grammar, &random);
      if (!walk.has_value()) continue;
      ++num_walks;
      const std::string text =
          is_json ? nlohmann::json::parse("\"" + *walk + "\"").get<std::string>() : *walk;
      ASSERT_NE(oracle.Matches(text), false) << pattern << " and " << *walk;
    }
  }
  EXPECT_LE(num_too_ambiguous, num_patterns / 500);
  EXPECT_GT(num_compared, num_patterns * 2);
  EXPECT_GT(num_matches, num_patterns / 5);
  EXPECT_GT(num_walks, num_patterns / 5);
}

TEST(RandomPatternsTest, MatchPlainTextsAsPcreDoes) { CompareWithPcre(RegexText::kPlain, 31); }

TEST(RandomPatternsTest, MatchStringsAsPcreDoes) { CompareWithPcre(RegexText::kJsonString, 32); }

// Bytes of all kinds, most of them such as patterns are made of: a grammar or a refusal.
TEST(RandomPatternsTest, AreUnderstoodOrRefused) {
  std::mt19937 random(RandomSeed(33));
  constexpr std::string_view kBytes = "()[]{}|^$*+?.\\-,:=!<>ud0129abx\"\xC3\xA9\xFF";
  int num_understood = 0;
  for (int i = 0; i < RandomSteps(); ++i) {
    std::string pattern(random() % 20, ' ');
    for (char& c : pattern) {
      c = random() % 10 == 0 ? static_cast<char>(random()) : kBytes[random() % kBytes.size()];
    }
    const auto kind = random() % 2 == 0 ? RegexText::kPlain : RegexText::kJsonString;
    const absl::StatusOr<Grammar> grammar = MakeRegexGrammar(pattern, kind);
    if (grammar.ok()) {
      ++num_understood;
    } else {
      EXPECT_EQ(grammar.status().code(), absl::StatusCode::kInvalidArgument) << pattern;
    }
  }
  EXPECT_GT(num_understood, RandomSteps() / 100);
}

}  // namespace
}  // namespace refrain::engine
