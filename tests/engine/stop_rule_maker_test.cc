#include "engine/stop_rule_maker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace refrain::engine {
namespace {

using ::testing::ElementsAre;

TokenId T(int32_t id) { return TokenId{id}; }

// A call of 1,024 prompts may have 1,024 stop tokens and 16 strings of 4,096 bytes.
TEST(StopRuleMakerTest, ThePromptsOfACallShareListsAndSets) {
  const StopRuleMaker maker({T(2)});
  StopParams params{.stop = {std::string(1024, 'a'), "b"}, .stop_token_ids = {T(9), T(4)}};
  const auto first = maker.Make(params, 10);
  EXPECT_THAT(first->end_tokens, ElementsAre(T(2), T(4), T(9)));
  const std::vector<StopParams> copies(1023, params);
  for (int prompt = 1; prompt < 1024; ++prompt) {
    const auto rules = maker.Make(copies[prompt - 1], 10 + prompt);
    EXPECT_TRUE(rules->strings.IsCopyOf(first->strings));
    EXPECT_TRUE(rules->end_tokens.IsCopyOf(first->end_tokens));
    EXPECT_TRUE(rules->late_tokens.IsCopyOf(first->late_tokens));
    EXPECT_EQ(rules->max_tokens, 10 + prompt);
  }
}

// What is shared must not bring along what is not.
TEST(StopRuleMakerTest, NumbersAreThePromptsOwn) {
  const StopRuleMaker maker({T(2)});
  StopParams params{.min_tokens = 3, .stop = {"x"}, .include_stop_in_output = true};
  (void)maker.Make(params, 10);
  params.min_tokens = 1;
  params.include_stop_in_output = false;
  const auto rules = maker.Make(params, 5);
  EXPECT_EQ(rules->min_tokens, 1);
  EXPECT_EQ(rules->max_tokens, 5);
  EXPECT_FALSE(rules->include_stop_in_output);
}

// Lists are made and dropped: another one may come to lie where an earlier one was.
TEST(StopRuleMakerTest, TellsListsAndTheEndOfGenerationApart) {
  const StopRuleMaker maker({T(2)});
  for (int call = 0; call < 1000; ++call) {
    const std::string word(1, static_cast<char>('a' + call % 26));
    StopParams params{.stop = {word}, .stop_token_ids = {T(3 + call % 5)}};
    EXPECT_THAT(maker.Make(params, 10)->strings, ElementsAre(word));
    EXPECT_THAT(maker.Make(params, 10)->end_tokens, ElementsAre(T(2), T(3 + call % 5)));
    params.ignore_eos = true;
    EXPECT_THAT(maker.Make(params, 10)->end_tokens, ElementsAre(T(3 + call % 5)));
    params.stop_token_ids = {};
    EXPECT_THAT(maker.Make(params, 10)->end_tokens, ElementsAre());
    EXPECT_THAT(maker.Make({.stop = {}}, 10)->strings, ElementsAre());
  }
}

}  // namespace
}  // namespace refrain::engine
