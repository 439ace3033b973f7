#include "engine/grammar/json_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/utf8.h"
#include "tests/engine/grammar/naive_acceptor.h"
#include "tests/support/random_steps.h"

namespace refrain::engine {
namespace {

using refrain::testing::Accepts;
using refrain::testing::FindDifference;
using refrain::testing::NaiveAcceptor;
using refrain::testing::RandomSeed;
using refrain::testing::RandomSteps;
using ::testing::HasSubstr;

// The grammar whose root is the rule that `draw` returns.
Grammar Make(const std::function<RuleId(JsonRules&)>& draw) {
  GrammarBuilder builder;
  JsonRules rules(&builder);
  const RuleId root = draw(rules);
  absl::StatusOr<Grammar> grammar = std::move(builder).Finish(root);
  EXPECT_TRUE(grammar.ok()) << grammar.status();
  return *std::move(grammar);
}

Grammar MakeValue() {
  return Make([](JsonRules& rules) { return rules.Value(); });
}

void ExpectTexts(const Grammar& grammar, const std::vector<std::string>& accepted,
                 const std::vector<std::string>& refused) {
  for (const std::string& text : accepted) EXPECT_TRUE(Accepts(grammar, text)) << text;
  for (const std::string& text : refused) EXPECT_FALSE(Accepts(grammar, text)) << text;
}

// Each kind of value, and what is close to one.
TEST(JsonRulesTest, AcceptsValuesOfJson) {
  ExpectTexts(MakeValue(),
              {"null",
               "true",
               "false",
               "0",
               "-0",
               "12",
               "-1.5",
               "1e5",
               "2E-199",
               "0.5e+07",
               "\"\"",
               "[]",
               "{}",
               "[ ]",
               "{ }",
               "[1,2]",
               "[1, 2]",
               "{\"a\":1}",
               "{\"a\": [{}, {\"b\": null}]}",
               "[\n  1,\n  2\n]",
               "{\n\t\"a\": 1\n}",
               "[\r\n1]",
               "[\n\n1]",
               "[[[[[[]]]]]]",
               "[" + std::string(1, '\n') + std::string(64, ' ') + "1]"},
              {"",
               "nul",
               "nulll",
               "True",
               "01",
               "-",
               "1.",
               ".5",
               "+1",
               "1e",
               "1e+",
               "1e200",
               "--1",
               "0x1",
               "NaN",
               "[",
               "[1",
               "[1,]",
               "[,1]",
               "[1 2]",
               "{",
               "{\"a\"}",
               "{a:1}",
               "{\"a\":}",
               "{\"a\":1,}",
               "{,}",
               "[1}",
               "{\"a\" 1}",
               " 1",
               "1 ",
               "[]]",
               "'a'",
               "[  1]",
               "[ \n1]",
               "[\n\n\n1]",
               "[\r1]",
               "// a\n1",
               "{1:2}",
               "{\"a\":1 \"b\":2}",
               "[\n" + std::string(65, ' ') + "1]"});
}

// Twenty digits on each side of the point, and no more.
TEST(JsonRulesTest, BoundsDigits) {
  const std::string digits(JsonRules::kMostDigits, '9');
  ExpectTexts(Make([](JsonRules& rules) { return rules.Number(); }),
              {digits, "-" + digits + "." + digits + "e199", "0." + digits},
              {digits + "9", "0." + digits + "9", "00", digits + ".", "1e1999", "1e299"});
  ExpectTexts(Make([](JsonRules& rules) { return rules.Integer(); }), {"0", "-0", digits, "-10"},
              {"-", "1.0", "1e1", digits + "9", "010"});
}

TEST(JsonRulesTest, AcceptsStringsOfWellFormedTextAndEscapes) {
  ExpectTexts(Make([](JsonRules& rules) { return rules.String(); }),
              {"\"abc\"", "\" ~\x7F\"", "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
               "\"\\u0000\\uFFFF\\ud7ff\\uE000\"", "\"\\uD800\\uDC00\"", "\"\\udBfF\\uDfFf\"",
               "\"\xC2\x80\xDF\xBF\"", "\"\xE0\xA0\x80\xED\x9F\xBF\xEE\x80\x80\"",
               "\"\xF0\x90\x80\x80\xF4\x8F\xBF\xBF\""},
              {"\"",
               "\"\"\"",
               "\"\n\"",
               std::string("\"\0\"", 3),
               "\"\x1F\"",
               "\"\\a\"",
               "\"\\'\"",
               "\"\\u12\"",
               "\"\\u12G4\"",
               "\"\\U0041\"",
               "\"\\uD800\"",
               "\"\\uDC00\"",
               "\"\\uD800\\uD800\"",
               "\"\\uD800\\n\"",
               "\"\\uD800\\u0041\"",
               "\"\x80\"",
               "\"\xC0\x80\"",
               "\"\xC3\"",
               "\"\xE0\x80\x80\"",
               "\"\xED\xA0\x80\"",
               "\"\xF4\x90\x80\x80\"",
               "\"\xF5\x80\x80\x80\"",
               "\"\xFF\""});
}

// One escape is one character, a pair of surrogates too; of UTF-8 bytes do not count.
TEST(JsonRulesTest, CountsCharactersOfStrings) {
  ExpectTexts(Make([](JsonRules& rules) { return rules.StringOfLength(2, 3); }),
              {"\"ab\"", "\"abc\"", "\"\\n\\u0041\"", "\"\\uD83D\\uDE00\xF0\x9F\x98\x80\"",
               "\"\xE2\x82\xAC\xE2\x82\xAC\xE2\x82\xAC\""},
              {"\"\"", "\"a\"", "\"abcd\"", "\"\\uD83D\\uDE00\"", "\"\xE2\x82\xAC\"", "ab"});
  ExpectTexts(Make([](JsonRules& rules) { return rules.StringOfLength(0, 0); }), {"\"\""},
              {"\"a\"", "\""});
  ExpectTexts(Make([](JsonRules& rules) { return rules.StringOfLength(70, std::nullopt); }),
              {"\"" + std::string(70, 'a') + "\"", "\"" + std::string(200, 'a') + "\""},
              {"\"" + std::string(69, 'a') + "\"", "\"\""});
  ExpectTexts(Make([](JsonRules& rules) { return rules.StringOfLength(-5, 1); }), {"\"\"", "\"a\""},
              {"\"aa\""});
}

// A part of the code points: escaped in every way that is theirs, and in no other's.
TEST(JsonRulesTest, DrawsSomeCharacters) {
  const auto make = [](char32_t first, char32_t last) {
    return Make([first, last](JsonRules& rules) {
      const RuleId rule = rules.builder().AddRule();
      rules.AddStringCharacter(rules.builder().begin(rule), first, last, rules.builder().end(rule));
      return rule;
    });
  };
  ExpectTexts(make('"', '"'), {"\\\"", "\\u0022"}, {"\"", "\\\\", "\\u0023"});
  ExpectTexts(make('\n', '\r'), {"\\n", "\\r", "\\f", "\\u000a", "\\u000B", "\\u000d"},
              {"\n", "\\t", "\\u0009", "\\u000e", "\\u001a", "n"});
  ExpectTexts(make('A', 'C'), {"A", "B", "C", "\\u0041", "\\u0043"}, {"D", "\\u0040", "\\u0044"});
  ExpectTexts(make(0xD7FE, 0xE001),
              {"\\ud7fe", "\\uD7FF", "\\ue000", "\\uE001", "\xED\x9F\xBE", "\xEE\x80\x81"},
              {"\\ud7fd", "\\ud800", "\\udfff", "\\ue002", "\xED\xA0\x80", "\xEE\x80\x82"});
  ExpectTexts(make(0x103FE, 0x10801),
              {"\\ud800\\udffe", "\\ud800\\udfff", "\\ud801\\udc00", "\\ud801\\udfff",
               "\\ud802\\udc00", "\\ud802\\udc01", "\xF0\x90\x8F\xBE", "\xF0\x90\xA0\x81"},
              {"\\ud800\\udffd", "\\ud802\\udc02", "\\ud800\\udc00", "\\ud803\\udc00",
               "\xF0\x90\x8F\xBD", "\xF0\x90\xA0\x82"});
  ExpectTexts(make(0x10001, 0x10001), {"\\ud800\\udc01", "\xF0\x90\x80\x81"},
              {"\\ud800\\udc00", "\\ud800\\udc02", "\xF0\x90\x80\x80"});
}

class RandomJson {
 public:
  explicit RandomJson(uint32_t seed) : random_(seed) {}

  nlohmann::json Value(int depth) {
    switch (Below(depth > 0 ? 9 : 6)) {
      case 0:
        return nullptr;
      case 1:
        return Below(2) == 1;
      case 2:
        return static_cast<int64_t>(random_()) >> Below(64);
      case 3:
        return std::ldexp(static_cast<double>(random_()), Below(400) - 264);
      case 4:
      case 5:
        return Text();
      case 6: {
        nlohmann::json array = nlohmann::json::array();
        for (int i = Below(4); i > 0; --i) array.push_back(Value(depth - 1));
        return array;
      }
      default: {
        nlohmann::json object = nlohmann::json::object();
        for (int i = Below(4); i > 0; --i) object[Text()] = Value(depth - 1);
        return object;
      }
    }
  }
  std::string Text() {
    constexpr uint32_t kMost[] = {0x80, 0x80, 0x800, 0x10000, 0x110000};
    std::string text;
    for (int i = Below(12); i > 0; --i) {
      const auto c = static_cast<uint32_t>(Below(static_cast<int>(kMost[Below(5)])));
      if (c < 0xD800 || c > 0xDFFF) AppendUtf8(c, &text);
    }
    return text;
  }
  int Below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }

 private:
  std::mt19937_64 random_;
};

// What another writer of JSON writes, in each of its forms, is accepted; broken at random it is
// only where another reader still finds JSON.
TEST(JsonRulesTest, AgreesWithAnotherWriterAndReader) {
  const Grammar grammar = MakeValue();
  RandomJson random(RandomSeed(20));
  for (int i = 0; i < RandomSteps() / 20; ++i) {
    const nlohmann::json value = random.Value(3);
    const bool ascii = random.Below(2) == 1;
    std::string text;
    switch (random.Below(4)) {
      case 0:
        text = value.dump(-1, ' ', ascii);
        break;
      case 1:
        text = value.dump(1, '\t', ascii);
        break;
      default:
        text = value.dump(random.Below(5), ' ', ascii);
    }
    ASSERT_TRUE(Accepts(grammar, text)) << text;
    for (int j = 0; j < 5; ++j) {
      std::string broken = text;
      const auto at = static_cast<size_t>(random.Below(static_cast<int>(broken.size())));
      constexpr std::string_view kBytes = "\"\\{}[],:0-.eEun \n\t\x80\xC3";
      const char byte = kBytes[static_cast<size_t>(random.Below(static_cast<int>(kBytes.size())))];
      switch (random.Below(3)) {
        case 0:
          broken.erase(at, 1);
          break;
        case 1:
          broken.insert(at, 1, byte);
          break;
        default:
          broken[at] = byte;
      }
      if (!Accepts(grammar, broken)) continue;
      ASSERT_TRUE(nlohmann::json::accept(broken)) << broken;
    }
  }
}

// --- twins and digests ---

StateId StateBehind(const Grammar& grammar, std::string_view text) {
  NaiveAcceptor acceptor(&grammar);
  EXPECT_TRUE(acceptor.Accept(text));
  const std::vector<StateId> states = acceptor.StatesOutsideOfCalls();
  EXPECT_EQ(states.size(), 1u);
  return states.at(0);
}

// What leads on and on in a string, in and out of escapes, and what ends it.
constexpr std::string_view kStringBytes = "a\"\\n\xC3\x80";

// A string of 100 to 300 characters, told apart from its twin by no continuation of kTwinBytes; at
// the last place before a bound comes near, one byte more would.
TEST(JsonRulesTest, TwinsGoOnAlikeAsFarAsTheyMust) {
  const Grammar grammar = Make([](JsonRules& rules) { return rules.StringOfLength(100, 300); });
  const auto state_behind = [&grammar](size_t characters) {
    return StateBehind(grammar, "\"" + std::string(characters, 'a'));
  };
  constexpr int kTwinBytes = Grammar::kTwinBytes;
  for (const size_t characters : {0, 1, 34, 35, 36, 99, 100, 235, 236}) {
    const StateId state = state_behind(characters);
    ASSERT_NE(grammar.twin(state), state) << characters;
    EXPECT_EQ(FindDifference(grammar, state, grammar.twin(state), kStringBytes, kTwinBytes),
              std::nullopt)
        << characters;
  }
  const StateId last = state_behind(236);
  EXPECT_EQ(FindDifference(grammar, last, grammar.twin(last), kStringBytes, 1000), kTwinBytes + 1);
  for (const size_t characters : {237, 299, 300}) {
    const StateId state = state_behind(characters);
    EXPECT_EQ(grammar.twin(state), state) << characters;
  }
  // They are what there need be masks for, and some before the bounds.
  EXPECT_EQ(grammar.twin(state_behind(0)), grammar.twin(state_behind(35)));
  EXPECT_NE(grammar.twin(state_behind(35)), grammar.twin(state_behind(36)));
  EXPECT_EQ(grammar.twin(state_behind(100)), grammar.twin(state_behind(236)));
}

// Without an upper bound the last characters that must come are no one's twin but the first ones'.
TEST(JsonRulesTest, HasTwinsBeforeALowerBoundAlone) {
  const Grammar grammar =
      Make([](JsonRules& rules) { return rules.StringOfLength(200, std::nullopt); });
  const auto state_behind = [&grammar](size_t characters) {
    return StateBehind(grammar, "\"" + std::string(characters, 'a'));
  };
  EXPECT_EQ(grammar.twin(state_behind(0)), state_behind(135));
  EXPECT_EQ(grammar.twin(state_behind(134)), state_behind(135));
  EXPECT_EQ(grammar.twin(state_behind(136)), state_behind(136));
  EXPECT_EQ(FindDifference(grammar, state_behind(134), state_behind(135), kStringBytes,
                           Grammar::kTwinBytes),
            std::nullopt);
  EXPECT_EQ(state_behind(200), state_behind(300));
}

// A mask of a string's inside serves every grammar.
TEST(JsonRulesTest, StringsHaveOneDigestInAllGrammars) {
  const Grammar string = Make([](JsonRules& rules) { return rules.String(); });
  const Grammar::Digest digest = string.digest(StateBehind(string, "\"a"));
  const Grammar long_one = Make([](JsonRules& rules) { return rules.StringOfLength(3, 5000); });
  EXPECT_EQ(long_one.digest(long_one.twin(StateBehind(long_one, "\"abcd"))), digest);
  EXPECT_NE(long_one.digest(StateBehind(long_one, "\"abcd")), digest);
  EXPECT_NE(long_one.digest(long_one.twin(StateBehind(long_one, "\"ab"))), digest);
  const Grammar other = Make([](JsonRules& rules) { return rules.StringOfLength(1000, 3000); });
  EXPECT_EQ(other.digest(other.twin(StateBehind(other, "\"" + std::string(1000, 'a')))), digest);
  const Grammar open =
      Make([](JsonRules& rules) { return rules.StringOfLength(80, std::nullopt); });
  EXPECT_EQ(open.digest(StateBehind(open, "\"" + std::string(80, 'a'))), digest);
  EXPECT_EQ(open.digest(open.twin(StateBehind(open, "\""))),
            other.digest(other.twin(StateBehind(other, "\"aaa"))));
}

// Rules that call each other have the digests that they have in another grammar, in whatever order
// they were drawn.
TEST(JsonRulesTest, RecursiveRulesHaveOneDigestInAllGrammars) {
  const auto start = [](const Grammar& grammar) { return grammar.start(grammar.root()); };
  const Grammar value = MakeValue();
  const Grammar array_first = Make([](JsonRules& rules) {
    rules.Null();
    rules.Array();
    return rules.Value();
  });
  EXPECT_EQ(value.digest(start(value)), array_first.digest(start(array_first)));
  // Another one of the rules that call each other as the root.
  const Grammar array = Make([](JsonRules& rules) { return rules.Array(); });
  std::vector<Grammar::Digest> called;
  for (const Grammar::CallEdge& call : value.calls(start(value))) {
    called.push_back(value.digest(value.start(call.rule)));
  }
  EXPECT_EQ(std::count(called.begin(), called.end(), array.digest(start(array))), 1);
  // A rule that calls the root of the other one.
  const Grammar wrapped = Make([](JsonRules& rules) {
    GrammarBuilder& builder = rules.builder();
    const RuleId rule = builder.AddRule();
    builder.AddCall(builder.AddLiteral(builder.begin(rule), "="), rules.Value(), builder.end(rule));
    return rule;
  });
  const StateId behind = StateBehind(wrapped, "=");
  ASSERT_EQ(wrapped.calls(behind).size(), 1u);
  EXPECT_EQ(wrapped.digest(wrapped.start(wrapped.calls(behind)[0].rule)),
            value.digest(start(value)));
  EXPECT_NE(value.digest(start(value)), wrapped.digest(start(wrapped)));
}

// 5,000 characters fit; more than any grammar holds is refused, and not for long.
TEST(JsonRulesTest, BoundsTheLengthOfStrings) {
  const Grammar grammar = Make([](JsonRules& rules) { return rules.StringOfLength(1, 50000); });
  EXPECT_LT(grammar.memory_bytes(), size_t{8} << 20);
  GrammarBuilder builder;
  JsonRules rules(&builder);
  const RuleId root = rules.StringOfLength(0, 2000000000);
  const absl::StatusOr<Grammar> refused = std::move(builder).Finish(root);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.status().message(), HasSubstr("more than 262144 nodes"));
}

}  // namespace
}  // namespace refrain::engine
