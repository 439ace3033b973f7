// Models that would think for ever, held to a budget: through the engine loop over fakes, and by
// the sampler beside everything else that it is asked for.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "engine/grammar/output_constrainer.h"
#include "engine/grammar/output_format.h"
#include "engine/sampler.h"
#include "engine/thinking_budget.h"
#include "tests/support/fake_tokenizer.h"
#include "tests/support/loop_harness.h"

namespace refrain::engine {
namespace {

using ::refrain::testing::ChoiceOutput;
using ::refrain::testing::FakeKvCell;
using ::refrain::testing::FakeTokenizer;
using ::refrain::testing::LetterVocabulary;
using ::refrain::testing::LoopHarness;
using ::refrain::testing::Prompt;
using ::refrain::testing::RequestOutput;
using ::refrain::testing::TokenRequest;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Not;
using ::testing::SizeIs;

// The letters, the opening tag, and the closing tag by one token or by three; then what else may
// stand in a tag that was begun.
constexpr int32_t kLetters = 24;
constexpr int32_t kOpen = kLetters;
std::vector<std::string> VocabularyWithTags(const std::vector<std::string>& closing) {
  std::vector<std::string> pieces = LetterVocabulary();
  pieces.pop_back();
  pieces.emplace_back("<think>");
  pieces.insert(pieces.end(), closing.begin(), closing.end());
  for (const char* const rest : {"<", "/", "t", ">"}) {
    if (std::ranges::find(pieces, rest) == pieces.end()) pieces.emplace_back(rest);
  }
  pieces.emplace_back("</s>");
  return pieces;
}
const std::vector<std::string> kOneToken = {"</think>"};
const std::vector<std::string> kThreeTokens = {"</", "think", ">"};

// It never writes a tag, but for the opening one in front of `opens_at` of its own tokens.
testing::FakeModelRunner::Logits ForeverThinking(size_t vocab_size, int32_t opens_at = -1) {
  return [vocab_size, opens_at](const std::vector<FakeKvCell>& history) {
    std::vector<float> logits = testing::HashLogits(history, static_cast<int32_t>(vocab_size));
    for (size_t token = kOpen; token < vocab_size; ++token) logits[token] = -1e6f;
    if (static_cast<int32_t>(history.size()) == opens_at) logits[kOpen] = 1e6f;
    return logits;
  };
}

Request Thinking(int32_t prompt_seed, int32_t max_tokens, std::optional<int32_t> budget) {
  std::vector<int32_t> prompt = Prompt(20, prompt_seed);
  prompt.push_back(kOpen);
  Request request = TokenRequest(prompt, max_tokens);
  request.sampling.thinking_budget_tokens = budget;
  return request;
}

struct Case {
  int in_flight;
  std::vector<std::string> closing;
};

class ThinkingOutputTest : public ::testing::TestWithParam<Case> {
 protected:
  testing::LoopOptions Options() const {
    return {.max_in_flight = GetParam().in_flight,
            .vocabulary = VocabularyWithTags(GetParam().closing)};
  }
  std::vector<int32_t> ClosingTokens() const {
    std::vector<int32_t> tokens;
    for (size_t i = 0; i < GetParam().closing.size(); ++i) {
      tokens.push_back(kOpen + 1 + static_cast<int32_t>(i));
    }
    return tokens;
  }
  // Letters alone, but for the tag, which stands behind `budget` of them.
  void ExpectClosedBehind(size_t budget, const ChoiceOutput& choice) const {
    const std::vector<int32_t> tag = ClosingTokens();
    ASSERT_GE(choice.tokens.size(), budget + tag.size());
    for (size_t i = 0; i < choice.tokens.size(); ++i) {
      if (i < budget || i >= budget + tag.size()) {
        EXPECT_LT(choice.tokens[i], kLetters) << "token " << i;
      } else {
        EXPECT_EQ(choice.tokens[i], tag[i - budget]) << "token " << i;
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(All, ThinkingOutputTest,
                         ::testing::Values(Case{1, kOneToken}, Case{2, kOneToken},
                                           Case{1, kThreeTokens}, Case{2, kThreeTokens}));

// Greedy and sampled, of several choices each; up to there the thought is what it would have been.
TEST_P(ThinkingOutputTest, AThoughtIsClosedBehindItsBudget) {
  LoopHarness harness(Options());
  harness.runner.set_logits(ForeverThinking(harness.tokenizer.vocab_size()));
  for (const int32_t budget : {0, 1, 2, 9, 30}) {
    for (const double temperature : {0.0, 1.5}) {
      Request request = Thinking(3, 40, budget);
      request.sampling.temperature = temperature;
      request.sampling.seed = 5;
      request.n = 3;
      const RequestOutput output = harness.Run(request);
      request.sampling.thinking_budget_tokens.reset();
      const RequestOutput free = harness.Run(request);
      for (int32_t i = 0; i < request.n; ++i) {
        const ChoiceOutput& choice = output.choices.at(i);
        ASSERT_THAT(choice.tokens, SizeIs(40));
        ExpectClosedBehind(static_cast<size_t>(budget), choice);
        EXPECT_TRUE(std::equal(choice.tokens.begin(), choice.tokens.begin() + budget,
                               free.choices.at(i).tokens.begin()));
        EXPECT_EQ(choice.ends.at(0).reason, FinishReason::kLength);
      }
    }
  }
  harness.CheckIdle();
}

TEST_P(ThinkingOutputTest, ABudgetThatIsNotReachedChangesNothing) {
  LoopHarness harness(Options());
  harness.runner.set_logits(ForeverThinking(harness.tokenizer.vocab_size()));
  const std::vector<int32_t> free = harness.Run(Thinking(1, 30, {})).choices.at(0).tokens;
  EXPECT_EQ(harness.Run(Thinking(1, 30, 30)).choices.at(0).tokens, free);
  EXPECT_EQ(harness.Run(Thinking(1, 30, INT32_MAX)).choices.at(0).tokens, free);
  EXPECT_NE(harness.Run(Thinking(1, 30, 29)).choices.at(0).tokens, free);
  // Nor one of a request that does not think.
  Request request = TokenRequest(Prompt(20), 30);
  const std::vector<int32_t> answer = harness.Run(request).choices.at(0).tokens;
  request.sampling.thinking_budget_tokens = 0;
  EXPECT_EQ(harness.Run(request).choices.at(0).tokens, answer);
}

TEST_P(ThinkingOutputTest, TheModelMayOpenItsThoughtItself) {
  LoopHarness harness(Options());
  const std::vector<int32_t> prompt = Prompt(20);
  harness.runner.set_logits(
      ForeverThinking(harness.tokenizer.vocab_size(), static_cast<int32_t>(prompt.size())));
  Request request = TokenRequest(prompt, 20);
  request.sampling.thinking_budget_tokens = 4;
  ChoiceOutput choice = harness.Run(request).choices.at(0);
  ASSERT_EQ(choice.tokens.front(), kOpen);
  choice.tokens.erase(choice.tokens.begin());
  ExpectClosedBehind(4, choice);
}

// Many at once, with too little room for all: some make way amid of the tag, and go on with it.
TEST_P(ThinkingOutputTest, IsTheSameInACrowdThatLacksRoom) {
  testing::LoopOptions options = Options();
  options.num_chunks = 14;  // of 16 tokens, for up to eight sequences of up to 56
  LoopHarness crowded(options);
  LoopHarness roomy(Options());
  for (LoopHarness* harness : {&crowded, &roomy}) {
    harness->runner.set_logits(ForeverThinking(harness->tokenizer.vocab_size()));
  }
  std::vector<Request> requests;
  std::vector<std::shared_ptr<TokenStream>> streams;
  for (int32_t i = 0; i < 40; ++i) {
    Request request = Thinking(1 + i % 7, 35, i % 3 == 2 ? std::nullopt : std::optional(i % 31));
    request.sampling.temperature = 0.7 * (i % 4);
    request.sampling.seed = 100 + i;
    request.n = 1 + i % 3;
    requests.push_back(request);
    streams.push_back(crowded.Submit(std::move(request)));
    ASSERT_NE(streams.back(), nullptr) << crowded.submit_status();
  }
  crowded.RunUntilIdle();
  EXPECT_GT(crowded.loop.stats().preemptions_total, 5);
  for (size_t i = 0; i < requests.size(); ++i) {
    const RequestOutput output = crowded.Read(streams[i]);
    ASSERT_TRUE(output.status.ok()) << output.status;
    const RequestOutput alone = roomy.Run(requests[i]);
    for (const auto& [index, choice] : output.choices) {
      EXPECT_EQ(choice.tokens, alone.choices.at(index).tokens) << "request " << i;
      const std::optional<int32_t> budget = requests[i].sampling.thinking_budget_tokens;
      if (budget.has_value()) ExpectClosedBehind(static_cast<size_t>(*budget), choice);
    }
  }
  crowded.CheckIdle();
}

// Whatever else forbids it.
TEST_P(ThinkingOutputTest, NothingElseKeepsTheTagAway) {
  LoopHarness harness(Options());
  harness.runner.set_logits(ForeverThinking(harness.tokenizer.vocab_size()));
  Request request = Thinking(2, 30, 6);
  request.sampling.allowed_tokens = {TokenId{1}, TokenId{2}, TokenId{3}};
  std::vector<std::vector<TokenId>> banned;
  std::vector<std::pair<TokenId, float>> biases;
  std::vector<TokenId> stops;
  for (const int32_t token : ClosingTokens()) {
    banned.push_back({TokenId{token}});
    biases.emplace_back(TokenId{token}, -100.0f);
    stops.push_back(TokenId{token});
  }
  request.sampling.banned_sequences = banned;
  request.sampling.logit_bias = biases;
  request.stop.stop_token_ids = stops;
  request.stop.min_tokens = 30;  // before which no stop comes
  for (const double temperature : {0.0, 2.0}) {
    request.sampling.temperature = temperature;
    ChoiceOutput choice = harness.Run(request).choices.at(0);
    ASSERT_THAT(choice.tokens, SizeIs(30));
    ExpectClosedBehind(6, choice);
    std::erase_if(choice.tokens, [](int32_t token) { return token >= kLetters; });
    EXPECT_THAT(choice.tokens, Each(AllOf(Ge(1), Le(3))));
  }
}

TEST_P(ThinkingOutputTest, TheTagMayBeAStop) {
  LoopHarness harness(Options());
  harness.runner.set_logits(ForeverThinking(harness.tokenizer.vocab_size()));
  Request request = Thinking(2, 30, 6);
  request.stop.stop = {"</think>"};
  const ChoiceOutput choice = harness.Run(request).choices.at(0);
  EXPECT_THAT(choice.text, Not(HasSubstr("<")));
  EXPECT_THAT(choice.tokens, SizeIs(6));
  EXPECT_EQ(choice.ends.at(0).reason, FinishReason::kStop);
  EXPECT_EQ(choice.ends.at(0).matched_stop, "</think>");
}

// The model's own: it would not have chosen the tag.
TEST_P(ThinkingOutputTest, LogprobsOfTheTagAreTheModels) {
  LoopHarness harness(Options());
  harness.runner.set_logits(ForeverThinking(harness.tokenizer.vocab_size()));
  Request request = Thinking(2, 12, 6);
  request.logprobs.top = 2;
  const ChoiceOutput choice = harness.Run(request).choices.at(0);
  ExpectClosedBehind(6, choice);
  ASSERT_THAT(choice.events, SizeIs(12));
  for (size_t i = 0; i < 12; ++i) {
    const TokenEvent& event = choice.events[i];
    ASSERT_THAT(event.top, SizeIs(2));
    const bool is_tag = i >= 6 && i < 6 + ClosingTokens().size();
    EXPECT_EQ(event.top[0].token == event.token, !is_tag) << i;
    EXPECT_EQ(event.logprob->logprob < -1000, is_tag) << i;
  }
}

// One that is held to a form, too: what is behind the thought has it.
TEST(ThinkingSamplerTest, AFormBeginsBehindTheThought) {
  for (const auto& closing : {kOneToken, kThreeTokens}) {
    const FakeTokenizer tokenizer(VocabularyWithTags(closing));
    const size_t vocab_size = tokenizer.vocab_size();
    OutputConstrainer constrainer(&tokenizer, vocab_size);
    OutputFormat format;
    format.form = OutputFormat::Regex{"(ab|cd)e"};
    for (const ReasoningStart start : {ReasoningStart::kInside, ReasoningStart::kBefore}) {
      const auto made = constrainer.Make(format, {.reasoning = start}, "", nullptr);
      ASSERT_TRUE(made.ok()) << made.status();
      auto constraint = std::make_shared<OutputConstraint>();
      constraint->grammar = made->grammar;
      constraint->masks = made->masks;
      SamplingParams params{.temperature = 1};
      params.thinking_limit = std::make_shared<ThinkingLimit>(
          ThinkingLimit{.closer = std::make_shared<ThoughtCloser>(&tokenizer),
                        .start = start,
                        .budget_tokens = 4});
      for (uint64_t seed = 1; seed < 30; ++seed) {
        SamplerState sampler(params, seed, {}, 0, {}, constraint);
        std::string text;
        OutputState state = OutputState::kGoesOn;
        for (int i = 0; i < 20 && state == OutputState::kGoesOn; ++i) {
          std::vector<float> logits = ForeverThinking(vocab_size, 0)(
              std::vector<FakeKvCell>(static_cast<size_t>(i + (start.is_inside() ? 1 : 0))));
          text.append(tokenizer.TokenBytes(sampler.Sample(logits, &state)));
        }
        EXPECT_EQ(state, OutputState::kComplete);
        const std::string opening = start.is_inside() ? "" : "<think>";
        EXPECT_TRUE(std::regex_match(text, std::regex(opening + "[a-p xy]{4,12}</think>(ab|cd)e")))
            << text;
      }
    }
  }
}

// A form alone says where its own tags are.
TEST(ThinkingSamplerTest, AFormMayLeaveNoPlaceForTheTag) {
  const FakeTokenizer tokenizer(VocabularyWithTags(kOneToken));
  OutputConstrainer constrainer(&tokenizer, tokenizer.vocab_size());
  OutputFormat format;
  format.form = OutputFormat::Regex{"<think>a{6}</think>b"};
  const auto made = constrainer.Make(format, {}, "", nullptr);
  ASSERT_TRUE(made.ok()) << made.status();
  auto constraint = std::make_shared<OutputConstraint>();
  constraint->grammar = made->grammar;
  constraint->masks = made->masks;
  SamplingParams params{.temperature = 0};
  params.thinking_limit = std::make_shared<ThinkingLimit>(
      ThinkingLimit{.closer = std::make_shared<ThoughtCloser>(&tokenizer),
                    .start = ReasoningStart::kBefore,
                    .budget_tokens = 1});
  SamplerState sampler(params, 1, {}, 0, {}, constraint);
  std::string text;
  for (OutputState state = OutputState::kGoesOn; state == OutputState::kGoesOn;) {
    std::vector<float> logits(tokenizer.vocab_size());
    text.append(tokenizer.TokenBytes(sampler.Sample(logits, &state)));
    ASSERT_LT(text.size(), 30u);
  }
  EXPECT_EQ(text, "<think>aaaaaa</think>b");
}

// What the device is told, and what makes a step quick, go by the same.
TEST(ThinkingSamplerTest, ADeviceIsToldOfTheTagAlone) {
  const FakeTokenizer tokenizer(VocabularyWithTags(kThreeTokens));
  const size_t vocab_size = tokenizer.vocab_size();
  SamplingParams params{.temperature = 0};
  params.thinking_limit = std::make_shared<ThinkingLimit>(
      ThinkingLimit{.closer = std::make_shared<ThoughtCloser>(&tokenizer),
                    .start = ReasoningStart::kInside,
                    .budget_tokens = 1});
  SamplerState greedy(params, 1, {}, 0, {});
  EXPECT_TRUE(greedy.greedy_but_bans());
  params.allowed_tokens = {TokenId{3}, TokenId{5}};
  SamplerState sampler(params, 1, {}, 0, {});
  const auto allowed = [&] {
    std::vector<kernels::LogitEdit> edits;
    std::vector<int32_t> tokens;
    const kernels::SamplingRow row = sampler.DeviceRow(vocab_size, &edits, &tokens);
    EXPECT_EQ(row.allowed_end - row.allowed_begin, std::ssize(tokens));
    EXPECT_EQ(row.edit_end, row.edit_begin);
    return tokens;
  };
  EXPECT_THAT(allowed(), ElementsAre(3, 5));
  for (SamplerState* one : {&greedy, &sampler}) one->Count(TokenId{3});
  for (const int32_t token : {kOpen + 1, kOpen + 2, kOpen + 3}) {
    EXPECT_THAT(allowed(), ElementsAre(token));
    EXPECT_FALSE(greedy.greedy_but_bans());
    // Another choice of the prompt has its budget for itself.
    EXPECT_TRUE(SamplerState(greedy, 2).greedy_but_bans());
    for (SamplerState* one : {&greedy, &sampler}) one->Count(TokenId{token});
  }
  EXPECT_THAT(allowed(), ElementsAre(3, 5));
  EXPECT_TRUE(greedy.greedy_but_bans());
}

}  // namespace
}  // namespace refrain::engine
