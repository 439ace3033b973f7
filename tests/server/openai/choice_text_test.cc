#include "server/openai/choice_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/fake_tokenizer.h"

namespace refrain::server::openai {
namespace {

using engine::TokenId;

// A model that says line ends behind a tag, or control tokens, shows nothing for as long; its
// tokens, which nobody counts, are not all kept meanwhile.
TEST(ChoiceTextTest, TokensThatShowNothingWaitForTextInSmallNumbers) {
  const testing::FakeTokenizer tokenizer({"a", "</think>", "\n", "<s>"});
  for (const int silent : {2, 3}) {
    for (const bool wants_tokens : {true, false}) {
      ChoiceText text(&tokenizer, {.wants_tokens = wants_tokens,
                                   .shown = {.reasoning = engine::ReasoningFormat::kThink}});
      text.SetReasoningStart(engine::ReasoningStart::kInside);
      size_t most = 0, tokens = 0, pieces = 0;
      std::string reasoning, answer;
      const auto add = [&](int id) {
        text.Add({.token = TokenId{id}});
        for (const TextPiece& piece : text.ready()) {
          reasoning += piece.reasoning;
          answer += piece.text;
          most = std::max(most, piece.tokens.size());
          tokens += piece.tokens.size();
          ++pieces;
        }
        text.ClearReady();
      };
      add(0);
      add(1);
      for (int i = 0; i < 1000; ++i) add(silent);
      add(0);
      EXPECT_EQ(reasoning, "a");
      EXPECT_EQ(answer, "a");
      EXPECT_EQ(tokens, wants_tokens ? 1003u : 0u);
      EXPECT_LE(most, 64u);
      EXPECT_EQ(pieces, wants_tokens ? 1u + 15u + 1u : 2u);
    }
  }
}

// Also those that were told before it was known that a thought begins.
TEST(ChoiceTextTest, AThoughtsTokensAreTheFirstOfAll) {
  const testing::FakeTokenizer tokenizer({"a", "<think>", "</think>", " "});
  ChoiceText text(&tokenizer,
                  {.wants_tokens = true, .shown = {.reasoning = engine::ReasoningFormat::kThink}});
  text.SetReasoningStart(engine::ReasoningStart::kBefore);
  const auto add = [&](int id) { text.Add({.token = TokenId{id}}); };
  for (int i = 0; i < 100; ++i) add(3);
  for (const int id : {1, 0, 2}) add(id);
  for (int i = 0; i < 80; ++i) add(0);
  size_t thought = 0, others = 0;
  for (const TextPiece& piece : text.ready()) {
    EXPECT_TRUE(piece.text.empty() || piece.thought_tokens <= 1) << "the closing tag";
    (piece.text.empty() ? thought : others) += piece.tokens.size();
    if (!piece.text.empty()) thought += piece.thought_tokens, others -= piece.thought_tokens;
  }
  EXPECT_EQ(thought, 103u);
  EXPECT_EQ(others, 80u);
  EXPECT_EQ(text.reasoning_tokens(), 103);
}

// Pieces in order, calls in brackets, and what ends the choice.
std::vector<std::string> Told(ChoiceText& text) {
  std::vector<std::string> told;
  for (const TextPiece& piece : text.ready()) {
    std::string& all = told.emplace_back(piece.text);
    if (piece.call.has_value()) {
      all += "[" + piece.call->name.value_or("") + piece.call->arguments + "]";
    }
    if (piece.finish.has_value()) all += piece.called ? " called" : " ended";
  }
  return told;
}

ChoiceText::Options CallsOf(engine::ToolFormat format) {
  return {.shown = {.tools = format, .stream_tool_calls = true}};
}

// A token that ends the arguments and goes on.
TEST(ChoiceTextTest, WhatStandsBehindACallIsToldBehindIt) {
  const testing::FakeTokenizer hermes(
      {"Hi <tool_call>", R"({"name": "f", "arguments": {"a": 1)", "})", "</s>"});
  ChoiceText broken(&hermes, CallsOf(engine::ToolFormat::kHermes));
  for (const int id : {0, 1, 2, 2}) broken.Add({.token = TokenId{id}});
  broken.End({.reason = engine::FinishReason::kStop});
  EXPECT_EQ(Told(broken),
            (std::vector<std::string>{"Hi", "[f]", R"([{"a": 1])", "[}]", ")", "}) called"}));

  // All of a call and what is around it in one token.
  const testing::FakeTokenizer whole(
      {R"(a<tool_call>{"name": "f", "arguments": {}}</tool_call>b)", "</s>"});
  ChoiceText text(&whole, CallsOf(engine::ToolFormat::kHermes));
  for (int i = 0; i < 2; ++i) text.Add({.token = TokenId{0}});
  text.End({.reason = engine::FinishReason::kStop});
  EXPECT_EQ(Told(text),
            (std::vector<std::string>{"a[f]", "[{}]", "b", "a[f]", "[{}]", "b called"}));
}

// The beginning of another call, which was held back, is no part of the one that came last.
TEST(ChoiceTextTest, TextThatTheEndBringsIsToldBehindTheLastCall) {
  const testing::FakeTokenizer tokenizer(
      {R"(<tool_call>{"name": "f", "arguments": {"a": 1)", "}}</tool_call>", "\n<tool", "</s>"});
  for (const bool begins_another : {true, false}) {
    ChoiceText text(&tokenizer, CallsOf(engine::ToolFormat::kHermes));
    for (int id = 0; id < (begins_another ? 3 : 2); ++id) text.Add({.token = TokenId{id}});
    text.End({.reason = engine::FinishReason::kLength});
    std::vector<std::string> want = {"[f]", R"([{"a": 1])", begins_another ? "[}]" : "[}] called"};
    if (begins_another) want.push_back("\n<tool called");
    EXPECT_EQ(Told(text), want);
  }
}

}  // namespace
}  // namespace refrain::server::openai
