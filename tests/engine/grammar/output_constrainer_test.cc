#include "engine/grammar/output_constrainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "engine/grammar/grammar_matcher.h"
#include "tests/support/fake_tokenizer.h"
#include "tests/support/heap_counts.h"
#include "tests/support/refused_memory.h"

namespace refrain::engine {
namespace {

using ::refrain::testing::FakeTokenizer;
using ::refrain::testing::HeapCountsOfThread;
using ::refrain::testing::LetterVocabulary;
using ::refrain::testing::RefuseEachAllocation;
using ::testing::HasSubstr;

using Form = decltype(OutputFormat::form);

class OutputConstrainerTest : public ::testing::Test {
 protected:
  static OutputFormat FormatOf(Form form) {
    return {.form = std::move(form), .or_calls = {}, .field = "f"};
  }
  bool IsKept(const OutputFormat& format) {
    return constrainer_.FindOrNone(format, {}).has_value();
  }
  std::shared_ptr<const Grammar> Make(const OutputFormat& format, const OutputPlace& place = {}) {
    const auto made = constrainer_.Make(format, place, "", nullptr);
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? made->grammar : nullptr;
  }

  FakeTokenizer tokenizer_{LetterVocabulary()};
  OutputConstrainer constrainer_{&tokenizer_, tokenizer_.vocab_size()};
};

// One that served another's output would hold it to another form.
TEST_F(OutputConstrainerTest, FormatsThatDifferInAnythingHaveGrammarsOfTheirOwn) {
  const std::string object = R"({"type":"object"})";
  const OutputFormat::ToolCalls calls{.tools = {{"f", object}}};
  const OutputPlace hermes{.reasoning = ReasoningStart::kBehind, .tools = ToolFormat::kHermes};
  std::vector<std::pair<OutputFormat, OutputPlace>> all;
  const auto add = [&](Form form, const OutputPlace& place) {
    all.emplace_back(FormatOf(std::move(form)), place);
  };
  add(calls, hermes);
  add(OutputFormat::ToolCalls{.tools = {{"g", object}}}, hermes);
  add(OutputFormat::ToolCalls{.tools = {{"f", ""}}}, hermes);
  add(OutputFormat::ToolCalls{.tools = {{"f", object, /*is_strict=*/false}}}, hermes);
  add(OutputFormat::ToolCalls{.tools = calls.tools, .several = false}, hermes);
  add(OutputFormat::ToolCalls{.tools = {{"f", object}, {"g", object}}}, hermes);
  add(calls, {.reasoning = ReasoningStart::kBehind, .tools = ToolFormat::kLlama3});
  const OutputFormat::Regex regex{"ab"};
  for (const ReasoningStart::Place place :
       {ReasoningStart::kBefore, ReasoningStart::kBesideTag, ReasoningStart::kInside,
        ReasoningStart::kAmid, ReasoningStart::kBehind}) {
    add(regex, {.reasoning = place, .tools = ToolFormat::kHermes});
  }
  add(regex, {.reasoning = {ReasoningStart::kAmid, 3}, .tools = ToolFormat::kHermes});
  add(OutputFormat::Choice{{"ab"}}, hermes);
  add(OutputFormat::Choice{{"ab", "c"}}, hermes);
  add(OutputFormat::Choice{{"a", "bc"}}, hermes);
  add(OutputFormat::Ebnf{"root ::= [ab]"}, hermes);
  add(OutputFormat::JsonObject{}, hermes);
  add(OutputFormat::JsonSchema{object}, hermes);
  for (const bool several : {true, false}) {
    add(regex, hermes);
    all.back().first.or_calls = calls;
    all.back().first.or_calls->several = several;
  }
  std::vector<std::shared_ptr<const Grammar>> made;
  for (size_t i = 0; i < all.size(); ++i) {
    const auto& [format, place] = all[i];
    EXPECT_FALSE(constrainer_.FindOrNone(format, place).has_value()) << "of " << i;
    made.push_back(Make(format, place));
  }
  for (size_t i = 0; i < all.size(); ++i) {
    const auto found = constrainer_.FindOrNone(all[i].first, all[i].second);
    ASSERT_TRUE(found.has_value()) << "of " << i;
    EXPECT_EQ(found->grammar, made[i]) << "of " << i;
  }
}

// What others ask for meanwhile takes the place of what was not asked for.
TEST_F(OutputConstrainerTest, KeepsThoseUsedLast) {
  constexpr size_t kKept = OutputConstrainer::kKeptGrammars;
  std::vector<OutputFormat> formats;
  for (size_t i = 0; i <= kKept; ++i) {
    formats.push_back(FormatOf(OutputFormat::Regex{"a{" + std::to_string(i + 1) + "}"}));
  }
  for (size_t i = 0; i < kKept; ++i) Make(formats[i]);
  for (size_t i = 1; i < kKept; ++i) EXPECT_TRUE(IsKept(formats[i])) << i;
  EXPECT_TRUE(IsKept(formats[0])) << "as many as may be: the first is there";
  Make(formats[kKept]);
  for (size_t i = 0; i <= kKept; ++i) {
    EXPECT_EQ(IsKept(formats[i]), i != 1) << i << ": that one was asked for before all others";
  }
}

// Texts of 60,000 characters, of which not all can be kept.
TEST_F(OutputConstrainerTest, KeepsNoMoreThanItHasRoomFor) {
  std::vector<OutputFormat> formats;
  size_t one_bytes = 0, all_bytes = 0;
  while (all_bytes < 2 * OutputConstrainer::kKeptBytes) {
    const std::string text(60'000, static_cast<char>('a' + formats.size() % 16));
    formats.push_back(FormatOf(OutputFormat::Choice{{text + std::to_string(formats.size())}}));
    one_bytes = Make(formats.back())->memory_bytes();
    all_bytes += one_bytes;
    ASSERT_TRUE(IsKept(formats.back())) << formats.size();
    ASSERT_LT(formats.size(), OutputConstrainer::kKeptGrammars) << "too small";
  }
  const size_t kept = constrainer_.grammar_bytes();
  EXPECT_LE(kept, OutputConstrainer::kKeptBytes);
  EXPECT_GE(kept, OutputConstrainer::kKeptBytes - 2 * one_bytes);
}

// Refused is its place in the list of those that are kept: the last allocation before it is kept.
TEST_F(OutputConstrainerTest, WhatFindsNoMemoryToBeKeptTakesNoRoom) {
  const auto format_of = [](size_t number) {
    const std::string text(60'000, static_cast<char>('a' + number % 16));
    return FormatOf(OutputFormat::Choice{{text + std::to_string(100 + number)}});
  };
  const OutputFormat first = format_of(0);
  const int64_t before = HeapCountsOfThread().allocations;
  const size_t bytes = Make(first)->memory_bytes() + first.bytes() + 64;
  std::unique_ptr<OutputConstrainer> constrainer;
  for (int64_t last = HeapCountsOfThread().allocations - before;; --last) {
    constrainer = std::make_unique<OutputConstrainer>(&tokenizer_, tokenizer_.vocab_size());
    HeapCountsOfThread().until_refused = last;
    try {
      (void)constrainer->Make(first, {}, "", nullptr);
    } catch (const std::bad_alloc&) {
    }
    HeapCountsOfThread().until_refused = -1;
    ASSERT_GT(last, 0);
    if (!constrainer->FindOrNone(first, {}).has_value()) break;
  }
  EXPECT_EQ(constrainer->grammar_bytes(), 0u);
  // As many as there is room for.
  const size_t most = OutputConstrainer::kKeptBytes / bytes;
  ASSERT_LT(most, OutputConstrainer::kKeptGrammars);
  ASSERT_GT((most + 1) * (bytes - 64), OutputConstrainer::kKeptBytes);
  for (size_t i = 1; i <= most; ++i) {
    ASSERT_TRUE(constrainer->Make(format_of(i), {}, "", nullptr).ok());
  }
  EXPECT_TRUE(constrainer->FindOrNone(format_of(1), {}).has_value());
}

// Scenario: an output may begin in many places at once, of as many rules.
TEST_F(OutputConstrainerTest, AfterAnyRefusedAllocationTheSameFormIsMade) {
  constexpr int kRules = 60;
  std::string grammar = "root ::= \"x\"", rules;
  for (int i = 0; i < kRules; ++i) {
    const std::string name = "rule" + std::to_string(i);
    grammar += " | " + name;
    rules += name + " ::= \"a\" \"" + std::string(static_cast<size_t>(i) + 1, 'b') + "\" | \"c\"\n";
  }
  const OutputFormat format = FormatOf(OutputFormat::Ebnf{grammar + "\n" + rules});
  const std::string tenant(100, 'k');
  const auto refused = RefuseEachAllocation([&] {
    try {
      EXPECT_TRUE(constrainer_.Make(format, {}, tenant, nullptr).ok());
    } catch (const std::bad_alloc&) {
      EXPECT_EQ(constrainer_.grammar_bytes() > 0, IsKept(format)) << "a share that nobody has";
      throw;
    }
  });
  EXPECT_GT(refused, 300);
  EXPECT_TRUE(IsKept(format));
}

TEST_F(OutputConstrainerTest, RefusesWhatIsOverrunFromTheStart) {
  std::string grammar = "root ::= \"x\"", rules;
  for (size_t i = 0; i <= GrammarMatcher::kMostPlaces; ++i) {
    const std::string number = std::to_string(i);
    grammar += " | r" + number;
    rules += "\nr" + number + " ::= \"a" + number + "\"";
  }
  const auto made =
      constrainer_.Make(FormatOf(OutputFormat::Ebnf{grammar + rules}), {}, "", nullptr);
  EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(made.status().message()),
              HasSubstr("f: the output may begin in more than 512 ways at once"));
  EXPECT_EQ(constrainer_.grammar_bytes(), 0u);
}

}  // namespace
}  // namespace refrain::engine
