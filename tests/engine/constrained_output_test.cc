// Requests whose output has a form, through the engine loop over fakes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <regex>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/grammar/output_format.h"
#include "engine/retry_after.h"
#include "tests/support/fake_clock.h"
#include "tests/support/loop_harness.h"

namespace refrain::engine {
namespace {

using ::refrain::testing::ChoiceOutput;
using ::refrain::testing::LoopHarness;
using ::refrain::testing::Prompt;
using ::refrain::testing::RequestOutput;
using ::refrain::testing::TokenRequest;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Not;
using ::testing::Optional;

using Form = decltype(OutputFormat::form);

std::shared_ptr<const OutputFormat> FormatOf(Form form) {
  auto format = std::make_shared<OutputFormat>();
  format->form = std::move(form);
  format->field = "the_form";
  return format;
}

Request ConstrainedRequest(Form form, int32_t max_tokens, int32_t prompt_seed = 1) {
  Request request = TokenRequest(Prompt(20, prompt_seed), max_tokens);
  request.format = FormatOf(std::move(form));
  return request;
}

class ConstrainedOutputTest : public ::testing::TestWithParam<int> {
 protected:
  static testing::LoopOptions Options() { return {.max_in_flight = GetParam()}; }
};

INSTANTIATE_TEST_SUITE_P(InFlight, ConstrainedOutputTest, ::testing::Values(1, 2));

// Many requests at random temperatures, with several choices each, some of which are preempted.
TEST_P(ConstrainedOutputTest, EveryOutputIsOfItsForm) {
  testing::LoopOptions options = Options();
  options.num_chunks = 14;  // of 16 tokens, for up to eight sequences of up to 50
  LoopHarness harness(options);
  const std::vector<std::string> patterns = {"(abc|de){3,5}p", "[a-p]{4}", "a(bcd)*e",
                                             "(x a| y){2,}aa", "aab?|nop|abcd"};
  std::vector<std::pair<std::string, std::shared_ptr<TokenStream>>> streams;
  for (int32_t i = 0; i < 40; ++i) {
    const std::string& pattern = patterns[static_cast<size_t>(i) % patterns.size()];
    Request request = ConstrainedRequest(OutputFormat::Regex{pattern}, 30, 1 + i % 7);
    request.sampling.temperature = 0.7 * (i % 3);
    request.sampling.seed = 100 + i;
    request.n = 1 + i % 3;
    streams.emplace_back(pattern, harness.Submit(std::move(request)));
    ASSERT_NE(streams.back().second, nullptr) << harness.submit_status();
  }
  harness.RunUntilIdle();
  int32_t ended = 0;
  for (const auto& [pattern, stream] : streams) {
    const RequestOutput output = harness.Read(stream);
    ASSERT_TRUE(output.status.ok()) << output.status;
    for (const auto& [index, choice] : output.choices) {
      ASSERT_EQ(choice.ends.size(), 1u);
      if (choice.ends[0].reason == FinishReason::kLength) continue;
      ++ended;
      EXPECT_TRUE(std::regex_match(choice.text, std::regex(pattern)))
          << choice.text << " for " << pattern;
    }
  }
  EXPECT_GE(ended, 50);  // most of 79: the others found no end in 30 tokens
  harness.CheckIdle();
}

// Nothing may follow "abc": the choice ends with its last token, not with an end token behind it.
TEST_P(ConstrainedOutputTest, EndsWithItsLastToken) {
  LoopHarness harness(Options());
  const RequestOutput output =
      harness.Run(ConstrainedRequest(OutputFormat::Choice{{"abc", "abd"}}, 20));
  const ChoiceOutput& choice = output.choices.at(0);
  EXPECT_THAT(choice.text, AnyOf("abc", "abd"));
  ASSERT_EQ(choice.ends.size(), 1u);
  EXPECT_EQ(choice.ends[0].reason, FinishReason::kStop);
  EXPECT_FALSE(choice.ends[0].stop_token.has_value());
  EXPECT_EQ(output.usage.completion_tokens, static_cast<int32_t>(choice.tokens.size()));
  harness.CheckIdle();
}

// The last token that it may have completes it: that is no cut.
TEST_P(ConstrainedOutputTest, IsNotCutWhereItIsComplete) {
  LoopHarness harness(Options());
  const RequestOutput cut = harness.Run(ConstrainedRequest(OutputFormat::Choice{{"ponm"}}, 3));
  EXPECT_EQ(cut.choices.at(0).text, "pon");
  EXPECT_EQ(cut.choices.at(0).ends.at(0).reason, FinishReason::kLength);
  const RequestOutput whole = harness.Run(ConstrainedRequest(OutputFormat::Choice{{"ponm"}}, 4));
  EXPECT_EQ(whole.choices.at(0).text, "ponm");
  EXPECT_EQ(whole.choices.at(0).ends.at(0).reason, FinishReason::kStop);
}

// An end token comes only where the output may end; with ignore_eos it never comes.
TEST_P(ConstrainedOutputTest, EndTokensComeWhereItMayEnd) {
  LoopHarness harness(Options());
  const int32_t eos = static_cast<int32_t>(*harness.tokenizer.eos());
  for (int32_t seed = 1; seed < 20; ++seed) {
    Request request = ConstrainedRequest(OutputFormat::Regex{"(ab){2}o*"}, 40, seed);
    request.sampling.temperature = 2;
    request.sampling.seed = seed;
    const ChoiceOutput may_end = harness.Run(request).choices.at(0);
    if (may_end.ends.at(0).reason == FinishReason::kStop) {
      EXPECT_TRUE(std::regex_match(may_end.text, std::regex("(ab){2}o*"))) << may_end.text;
      EXPECT_EQ(may_end.ends.at(0).stop_token, TokenId{eos});
    }
    request.stop.ignore_eos = true;
    const ChoiceOutput goes_on = harness.Run(request).choices.at(0);
    EXPECT_EQ(goes_on.ends.at(0).reason, FinishReason::kLength);
    EXPECT_THAT(goes_on.tokens, Not(Contains(eos)));
  }
}

// What else is asked for bans what may come: but for the last token that the form allows.
TEST_P(ConstrainedOutputTest, BansChooseAmongWhatTheFormAllows) {
  LoopHarness harness(Options());
  Request request = ConstrainedRequest(OutputFormat::Choice{{"ac", "bc"}}, 20);
  request.sampling.banned_sequences = {{TokenId{0}}, {TokenId{2}}};  // "a", "c"
  EXPECT_EQ(harness.Run(request).choices.at(0).text, "bc");
  request.sampling.banned_sequences = {};
  request.stop.min_tokens = 15;  // no end before, and none needs to come
  const ChoiceOutput early = harness.Run(request).choices.at(0);
  EXPECT_THAT(early.text, AnyOf("ac", "bc"));
  EXPECT_EQ(early.ends.at(0).reason, FinishReason::kStop);
}

TEST_P(ConstrainedOutputTest, RefusesWhatItCannotRead) {
  LoopHarness harness(Options());
  EXPECT_EQ(harness.Submit(ConstrainedRequest(OutputFormat::Regex{"(a"}, 20)), nullptr);
  EXPECT_EQ(harness.submit_status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(harness.submit_status().message()), HasSubstr("the_form: "));
  // Where nothing is generated nothing is made of it.
  EXPECT_NE(harness.Submit(ConstrainedRequest(OutputFormat::Regex{"(a"}, 0)), nullptr);
  harness.RunUntilIdle();
}

// Each step chooses a token, so that some text would come.
TEST(OutputConstrainerTest, RefusesWhatOnlyTheEmptyTextIsOf) {
  LoopHarness harness;
  for (int again = 0; again < 2; ++again) {
    for (const Form& form : {Form(OutputFormat::Regex{"(|a{0})"}),
                             Form(OutputFormat::Ebnf{"root ::= x\nx ::= \"\""})}) {
      const auto made = harness.constrainer.Make(*FormatOf(form), {}, "", nullptr);
      EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(made.status().message()), HasSubstr("the_form: the empty text"));
    }
  }
  EXPECT_TRUE(
      harness.constrainer.Make(*FormatOf(OutputFormat::Ebnf{"root ::= \"a\"?"}), {}, "", nullptr)
          .ok());
}

// One client's schema comes again and again.
TEST(OutputConstrainerTest, MakesTheGrammarOfAFormatOnce) {
  LoopHarness harness;
  const auto make = [&](const char* pattern) {
    return harness.constrainer.Make(*FormatOf(OutputFormat::Regex{pattern}), {}, "", nullptr)
        ->grammar;
  };
  const auto first = make("a+b"), other = make("a+c");
  EXPECT_NE(first, other);
  EXPECT_EQ(make("a+b"), first);
  // Of another place or kind it is another.
  EXPECT_NE(harness.constrainer
                .Make(*FormatOf(OutputFormat::Regex{"a+b"}), {.reasoning = ReasoningStart::kBefore},
                      "", nullptr)
                ->grammar,
            first);
  EXPECT_FALSE(
      harness.constrainer.FindOrNone(*FormatOf(OutputFormat::Choice{{"a+b"}}), {}).has_value());
  const auto make_ebnf = [&](const char* grammar) {
    return harness.constrainer.Make(*FormatOf(OutputFormat::Ebnf{grammar}), {}, "", nullptr)
        ->grammar;
  };
  const auto letter = make_ebnf("root ::= [ab]");
  EXPECT_NE(make_ebnf("root ::= [bc]"), letter);
  EXPECT_EQ(make_ebnf("root ::= [ab]"), letter);
}

// Which no pattern can describe: as many "b" as there were "a".
TEST_P(ConstrainedOutputTest, OutputsNestAsDeepAsTheModelLikes) {
  LoopHarness harness(Options());
  size_t deepest = 0;
  for (int32_t seed = 1; seed <= 20; ++seed) {
    Request request =
        ConstrainedRequest(OutputFormat::Ebnf{R"(root ::= "a" root "b" | [n-p])"}, 30, seed);
    request.sampling.temperature = 2;
    request.sampling.seed = seed;
    const ChoiceOutput output = harness.Run(request).choices.at(0);
    if (output.ends.at(0).reason != FinishReason::kStop) continue;
    const size_t depth = output.text.find_first_not_of('a');
    EXPECT_EQ(output.text.size(), 2 * depth + 1) << output.text;
    EXPECT_EQ(output.text.substr(depth + 1), std::string(depth, 'b')) << output.text;
    deepest = std::max(deepest, depth);
  }
  EXPECT_GE(deepest, 2u);
  harness.CheckIdle();
}

// What is made counts for as long as somebody has it.
TEST(OutputConstrainerTest, CountsItsGrammars) {
  LoopHarness harness;
  EXPECT_EQ(harness.constrainer.grammar_bytes(), 0u);
  size_t all = 0;
  for (size_t i = 0; i < 3 * OutputConstrainer::kKeptGrammars; ++i) {
    const auto made = harness.constrainer.Make(
        *FormatOf(OutputFormat::Regex{"a{" + std::to_string(i + 1) + "}"}), {}, "", nullptr);
    ASSERT_TRUE(made.ok());
    all += made->grammar->memory_bytes();
  }
  EXPECT_GT(harness.constrainer.grammar_bytes(), 0u);
  EXPECT_LT(harness.constrainer.grammar_bytes(), all);
}

// One tenant's forms take half of the room at most, and another's still find theirs.
TEST(OutputConstrainerTest, LeavesRoomForOtherTenants) {
  constexpr size_t kMostBytes = size_t{1} << 20;
  const LoopHarness harness;
  OutputConstrainer constrainer(&harness.tokenizer, harness.tokenizer.vocab_size(), kMostBytes);
  const auto make = [&](const std::string& pattern, const char* tenant) {
    return constrainer.Make(*FormatOf(OutputFormat::Regex{pattern}), {}, tenant, nullptr);
  };
  std::vector<std::shared_ptr<const Grammar>> held;
  absl::Status status;
  for (int i = 1; status.ok() && i < 1000; ++i) {
    const auto made = make("[ab]{100}c{" + std::to_string(i) + "}", "greedy");
    status = made.status();
    if (made.ok()) held.push_back(made->grammar);
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << held.size();
  EXPECT_EQ(RetryAfterOf(status), 1) << "of a first burst";
  EXPECT_GT(constrainer.grammar_bytes(), kMostBytes / 2);
  EXPECT_LT(constrainer.grammar_bytes(), kMostBytes * 6 / 10);
  EXPECT_TRUE(make("x", "other").ok());
}

// More forms are held than are kept. For half a minute one in five seconds goes, and others come.
TEST(OutputConstrainerTest, TellsHowSoonFormsAreLetGo) {
  const LoopHarness harness;
  testing::FakeClock clock;
  OutputConstrainer constrainer(&harness.tokenizer, harness.tokenizer.vocab_size(), size_t{1} << 22,
                                &clock);
  int number = 0;
  std::deque<std::shared_ptr<const Grammar>> held;
  const auto fill = [&] {
    for (;;) {
      const auto made = constrainer.Make(
          *FormatOf(OutputFormat::Regex{"[ab]{100}c{" + std::to_string(++number) + "}"}), {}, "",
          nullptr);
      if (!made.ok()) return made.status();
      held.push_back(made->grammar);
    }
  };
  EXPECT_EQ(RetryAfterOf(fill()), 1);
  ASSERT_GT(held.size(), OutputConstrainer::kKeptGrammars + 10);
  for (int i = 0; i < 6; ++i) {
    clock.Advance(std::chrono::seconds(5));
    held.pop_front();
    EXPECT_TRUE(absl::IsResourceExhausted(fill()));
  }
  EXPECT_THAT(RetryAfterOf(fill()), Optional(AllOf(Ge(4), Le(7))));
}

// A vocabulary that lacks what the form asks for ends the request, and says so.
TEST_P(ConstrainedOutputTest, EndsWhereTheVocabularyHasNothing) {
  LoopHarness harness(Options());
  const RequestOutput output = harness.Run(ConstrainedRequest(OutputFormat::Choice{{"abz"}}, 20));
  EXPECT_EQ(output.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(output.status.message()), HasSubstr("the_form: "));
  harness.CheckIdle();
}

// A control token that is a stop token of the request comes where the output may end.
TEST_P(ConstrainedOutputTest, StopTokensThatAreNoTextAreEnds) {
  LoopHarness harness(Options());
  Request request = ConstrainedRequest(OutputFormat::Regex{"(ab)+"}, 200);
  request.stop.ignore_eos = true;
  request.stop.stop_token_ids = {*harness.tokenizer.eos()};
  request.sampling.temperature = 1;
  request.sampling.seed = 3;
  const ChoiceOutput choice = harness.Run(request).choices.at(0);
  EXPECT_EQ(choice.ends.at(0).stop_token, harness.tokenizer.eos());
  EXPECT_TRUE(std::regex_match(choice.text, std::regex("(ab)+"))) << choice.text;
}

}  // namespace
}  // namespace refrain::engine
