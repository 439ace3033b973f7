// Numbers within bounds, digit by digit.

#include "engine/grammar/number_range.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/engine/grammar/naive_acceptor.h"
#include "tests/engine/grammar/random_text.h"
#include "tests/support/random_steps.h"

namespace refrain::engine {
namespace {

using refrain::testing::Accepts;

NumberRange Between(const char* lower, const char* upper) {
  NumberRange range;
  if (*lower != '\0') range.AddLower({Decimal(lower)});
  if (*upper != '\0') range.AddUpper({Decimal(upper)});
  return range;
}

absl::StatusOr<Grammar> Draw(const NumberRange& range, NumberForm form) {
  GrammarBuilder builder;
  const RuleId rule = builder.AddRule();
  absl::Status drawn = AddNumber(range, form, builder.begin(rule), builder.end(rule), &builder);
  if (!drawn.ok()) return drawn;
  return std::move(builder).Finish(rule);
}

// Each of 4,001 integers is taken exactly when it is within.
TEST(NumberRangeTest, IntegersAreThoseWithin) {
  const std::vector<std::pair<const char*, const char*>> ranges = {
      {"0", "0"},     {"0", ""},       {"", "0"},      {"1", "9"},      {"9", "10"},
      {"10", "99"},   {"99", "1001"},  {"-5", "5"},    {"-1", ""},      {"", "-1"},
      {"-100", "-9"}, {"-1500", "17"}, {"123", "123"}, {"1.5", "12.3"}, {"-1.5", "-0.5"},
      {"-0.5", "0"},  {"1e2", "1.2e3"}};
  for (const auto& [lower, upper] : ranges) {
    const NumberRange range = Between(lower, upper);
    const absl::StatusOr<Grammar> grammar = Draw(range, NumberForm::kInteger);
    ASSERT_TRUE(grammar.ok()) << grammar.status();
    for (int i = -2000; i <= 2000; ++i) {
      const bool is_within =
          (*lower == '\0' || i >= std::atof(lower)) && (*upper == '\0' || i <= std::atof(upper));
      EXPECT_EQ(Accepts(*grammar, std::to_string(i)), is_within)
          << i << " in [" << lower << ", " << upper << "]";
      EXPECT_EQ(range.Holds(Decimal(std::to_string(i))), is_within) << i;
    }
  }
}

TEST(NumberRangeTest, WritesNumbersAsJsonHasThem) {
  const auto integers = Draw(Between("-100", "100"), NumberForm::kInteger);
  const auto decimals = Draw(Between("-100", "100"), NumberForm::kDecimal);
  ASSERT_TRUE(integers.ok() && decimals.ok());
  for (const char* text :
       {"", "-", "01", "00", "+1", "-0", "-01", "1.", ".5", "1e1", "1 ", "--1"}) {
    EXPECT_FALSE(Accepts(*integers, text)) << text;
    EXPECT_FALSE(Accepts(*decimals, text)) << text;
  }
  EXPECT_FALSE(Accepts(*integers, "1.0"));
  for (const char* text : {"0", "0.0", "1.0", "100.000", "-0.01", "99.99"}) {
    EXPECT_TRUE(Accepts(*decimals, text)) << text;
  }
  for (const char* text : {"-0.0", "100.001", "-100.0000000001", "1000"}) {
    EXPECT_FALSE(Accepts(*decimals, text)) << text;
  }
}

TEST(NumberRangeTest, ExclusiveBoundsAreLeftOut) {
  NumberRange range;
  range.AddLower({Decimal("0"), true});
  range.AddUpper({Decimal("2.5"), true});
  const auto integers = Draw(range, NumberForm::kInteger);
  const auto decimals = Draw(range, NumberForm::kDecimal);
  ASSERT_TRUE(integers.ok() && decimals.ok());
  EXPECT_FALSE(Accepts(*integers, "0"));
  EXPECT_TRUE(Accepts(*integers, "2"));
  for (const char* text : {"0.001", "1", "2.49999"}) EXPECT_TRUE(Accepts(*decimals, text)) << text;
  for (const char* text : {"0", "0.0", "0.000", "2.5", "2.50", "2.51", "3", "-1"}) {
    EXPECT_FALSE(Accepts(*decimals, text)) << text;
  }
}

// 2.4999999999999999999 is below 2.5; a double that is read of it is not.
TEST(NumberRangeTest, ExclusiveBoundsHoldForDoublesToo) {
  NumberRange range;
  range.AddUpper({Decimal("2.5"), true});
  range.AddLower({Decimal("2.4")});
  const auto grammar = Draw(range, NumberForm::kDecimal);
  ASSERT_TRUE(grammar.ok());
  EXPECT_FALSE(Accepts(*grammar, "2.4999999999999999999"));
  EXPECT_TRUE(Accepts(*grammar, "2.49999999999999"));
}

TEST(NumberRangeTest, TheStricterOfTwoBoundsCounts) {
  NumberRange range;
  range.AddLower({Decimal("3")});
  range.AddLower({Decimal("2"), true});
  range.AddLower({Decimal("3"), true});
  range.AddUpper({Decimal("9"), true});
  range.AddUpper({Decimal("9")});
  range.AddUpper({Decimal("10")});
  for (const auto& [value, holds] : {std::pair("3", false), std::pair("4", true),
                                     std::pair("8.9", true), std::pair("9", false)}) {
    EXPECT_EQ(range.Holds(Decimal(value)), holds) << value;
  }
}

TEST(NumberRangeTest, PartsHaveAtMostTwentyDigits) {
  const auto grammar = Draw(Between("0", ""), NumberForm::kDecimal);
  ASSERT_TRUE(grammar.ok());
  EXPECT_TRUE(Accepts(*grammar, std::string(20, '9') + "." + std::string(20, '9')));
  EXPECT_FALSE(Accepts(*grammar, std::string(21, '9')));
  EXPECT_FALSE(Accepts(*grammar, "1." + std::string(21, '9')));
}

TEST(NumberRangeTest, MultiplesAreThoseOfTheNumber) {
  for (const char* of : {"1", "2", "3", "7", "25", "60", "100", "1000", "250", "0.5"}) {
    NumberRange range = Between("-3000", "3000");
    range.multiple_of = Decimal(of);
    const auto grammar = Draw(range, NumberForm::kInteger);
    ASSERT_TRUE(grammar.ok()) << grammar.status();
    for (int i = -3100; i <= 3100; ++i) {
      const bool is_multiple = std::abs(i) <= 3000 && std::fmod(i, std::atof(of)) == 0;
      EXPECT_EQ(Accepts(*grammar, std::to_string(i)), is_multiple) << i << " of " << of;
      EXPECT_EQ(range.Holds(Decimal(std::to_string(i))), is_multiple) << i << " of " << of;
    }
  }
}

TEST(NumberRangeTest, MultiplesOfDecimalsHaveTheirDigits) {
  NumberRange range;
  range.multiple_of = Decimal("0.25");
  const auto grammar = Draw(range, NumberForm::kDecimal);
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  for (const char* text : {"0", "1", "0.25", "-12.50", "3.5", "7.75", "100"}) {
    EXPECT_TRUE(Accepts(*grammar, text)) << text;
    EXPECT_TRUE(range.Holds(Decimal(text))) << text;
  }
  for (const char* text : {"0.1", "0.26", "0.750", "0.", "2.05"}) {
    EXPECT_FALSE(Accepts(*grammar, text)) << text;
  }
  EXPECT_FALSE(range.Holds(Decimal("2.05")));
  EXPECT_FALSE(range.Holds(Decimal("0.125")));
}

// Of constants, which take no automaton.
TEST(NumberRangeTest, ManyDigitsHaveMultiplesToo) {
  struct Case {
    const char* multiple_of;
    const char* value;
    bool holds;
  };
  for (const auto& [multiple_of, value, holds] : {
           Case{"12345678901", "12345678901", true},
           {"12345678901", "-37037036703", true},
           {"12345678901", "12345678902", false},
           {"0.1234567891", "0.2469135782", true},
           {"0.1234567891", "0.2469135783", false},
           {"999999999999999999", "999999999999999998000000000000000001", true},
           {"999999999999999999", "999999999999999998000000000000000002", false},
           {"1e17", "3e18", true},
           {"1e17", "3e16", false},
       }) {
    NumberRange range;
    range.multiple_of = Decimal(multiple_of);
    EXPECT_TRUE(range.can_tell()) << multiple_of;
    EXPECT_EQ(range.Holds(Decimal(value)), holds) << value << " of " << multiple_of;
  }
  for (const char* multiple_of : {"1e18", "1.000000000000000001"}) {
    NumberRange range;
    range.multiple_of = Decimal(multiple_of);
    EXPECT_FALSE(range.can_tell()) << multiple_of;
  }
}

// Of a thousand remainders of 1000 only the trailing zeros matter.
TEST(NumberRangeTest, RemaindersThatDifferInNothingAreOne) {
  NumberRange range;
  range.multiple_of = Decimal("1000");
  const auto grammar = Draw(range, NumberForm::kInteger);
  ASSERT_TRUE(grammar.ok());
  EXPECT_LT(grammar->num_states(), 200u);
}

TEST(NumberRangeTest, RefusesWhatHoldsNoNumber) {
  const auto refusal = [](const char* lower, const char* upper, NumberForm form,
                          const char* multiple_of) {
    NumberRange range = Between(lower, upper);
    if (multiple_of != nullptr) range.multiple_of = Decimal(multiple_of);
    return Draw(range, form).status();
  };
  const absl::Status nothing = absl::NotFoundError("allows no number that can be written");
  EXPECT_EQ(refusal("2", "1", NumberForm::kDecimal, nullptr), nothing);
  EXPECT_EQ(refusal("1.2", "1.8", NumberForm::kInteger, nullptr), nothing);
  EXPECT_EQ(refusal("1e30", "", NumberForm::kInteger, nullptr), nothing);
  EXPECT_EQ(refusal("11", "19", NumberForm::kDecimal, "10"), nothing);
  EXPECT_EQ(refusal("", "", NumberForm::kInteger, "7919").message(),
            "has a multipleOf whose automaton takes over 1000 states");
}

// Random bounds, random numbers: a number is taken exactly when it is within, as doubles see it.
TEST(NumberRangeTest, RandomNumbersAreThoseWithin) {
  std::mt19937 random(refrain::testing::RandomSeed(11));
  const auto number = [&] {
    std::string text = random() % 2 == 0 ? "-" : "";
    text += std::to_string(random() % (random() % 2 == 0 ? 20 : 20000));
    if (random() % 2 == 0) text += "." + std::to_string(random() % 1000);
    return text;
  };
  for (int step = 0; step < refrain::testing::RandomSteps() / 100; ++step) {
    NumberRange range;
    if (random() % 4 != 0) range.AddLower({Decimal(number()), random() % 2 == 0});
    if (random() % 4 != 0) range.AddUpper({Decimal(number()), random() % 2 == 0});
    const auto grammar = Draw(range, NumberForm::kDecimal);
    if (!grammar.ok()) {
      EXPECT_TRUE(range.lower->value >= range.upper->value) << grammar.status();
      continue;
    }
    const auto is_within = [&](double value) {
      const auto at = [](const NumberRange::Bound& bound) {
        return std::stod(bound.value.ToString());
      };
      if (range.lower &&
          (value < at(*range.lower) || (range.lower->is_exclusive && value == at(*range.lower)))) {
        return false;
      }
      return !range.upper || value < at(*range.upper) ||
             (!range.upper->is_exclusive && value == at(*range.upper));
    };
    for (int i = 0; i < 50; ++i) {
      const std::string text = number();
      const bool is_negative_zero = std::stod(text) == 0 && text[0] == '-';
      EXPECT_EQ(Accepts(*grammar, text), is_within(std::stod(text)) && !is_negative_zero) << text;
    }
    refrain::testing::RandomTexts texts(&*grammar, random());
    for (int i = 0; i < 10; ++i) {
      const std::string text = texts.Next(30);
      EXPECT_TRUE(is_within(std::stod(text))) << text;
    }
  }
}

TEST(DecimalTest, ReadsAndComparesExactly) {
  const auto shown = [](const char* number) { return Decimal(number).ToString(); };
  EXPECT_EQ(shown("0"), "0");
  EXPECT_EQ(shown("-0.00"), "0");
  EXPECT_EQ(shown("12.50"), "12.5");
  EXPECT_EQ(shown("-1.5e3"), "-1500");
  EXPECT_EQ(shown("1.25E-3"), "0.00125");
  EXPECT_EQ(shown("100e-2"), "1");
  EXPECT_EQ(shown("1e22"), "1" + std::string(22, '0'));
  const char* const ascending[] = {"-1e3", "-12.5", "-12.25", "-0.1", "0",  "0.09",
                                   "0.1",  "1",     "9.99",   "10",   "100"};
  for (size_t i = 0; i < std::size(ascending); ++i) {
    for (size_t j = 0; j < std::size(ascending); ++j) {
      EXPECT_EQ(Decimal(ascending[i]) <=> Decimal(ascending[j]), i <=> j)
          << ascending[i] << " " << ascending[j];
    }
  }
}

}  // namespace
}  // namespace refrain::engine
