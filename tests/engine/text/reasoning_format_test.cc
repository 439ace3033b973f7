#include "engine/text/reasoning_format.h"

#include <gtest/gtest.h>

#include <string>

#include "engine/text/chat_template.h"

namespace refrain::engine {
namespace {

TEST(ReasoningFormatTest, IsKnownByTheClosingTagInTheTemplate) {
  EXPECT_EQ(DetectReasoningFormat("{{ content.split('</think>')[-1] }}"), ReasoningFormat::kThink);
  EXPECT_EQ(DetectReasoningFormat("{{ '<think>\\n' }}"), ReasoningFormat::kNone);
  EXPECT_EQ(DetectReasoningFormat("{{ message.content }}"), ReasoningFormat::kNone);
  EXPECT_EQ(DetectReasoningFormat(""), ReasoningFormat::kNone);
}

TEST(ReasoningFormatTest, OfAnyTemplateOfTheModelIsTheModels) {
  const auto format = [](const char* source, const char* tool_use, bool finds) {
    ChatTemplateSpec spec{.source = source, .named = {}, .tokens = {}, .finds_reasoning = finds};
    if (*tool_use != '\0') spec.named["tool_use"] = tool_use;
    return (*ChatTemplate::Create(spec))->reasoning_format();
  };
  EXPECT_EQ(format("{{ messages }}", "", true), ReasoningFormat::kNone);
  EXPECT_EQ(format("{{ messages }}</think>", "", true), ReasoningFormat::kThink);
  EXPECT_EQ(format("{{ messages }}", "{{ messages }}</think>", true), ReasoningFormat::kThink);
  EXPECT_EQ(format("{{ messages }}</think>", "{{ messages }}</think>", false),
            ReasoningFormat::kNone);
}

TEST(ReasoningFormatTest, APromptsLastTagTellsHowItLeavesTheModel) {
  const auto start = [](const std::string& prompt) { return ReasoningStartOf(prompt, 2); };
  EXPECT_EQ(start("hi<|assistant|>"), ReasoningStart::kBefore);
  EXPECT_EQ(start("hi<|assistant|><think> "), ReasoningStart::kBesideTag);
  EXPECT_EQ(start("hi<|assistant|><think> \n"), ReasoningStart::kInside);
  EXPECT_EQ(start("hi<|assistant|><think>\nSo, "), ReasoningStart::kAmid);
  EXPECT_EQ(start("hi<|assistant|><think></"), ReasoningStart(ReasoningStart::kAmid, 2));
  EXPECT_EQ(start("hi<|assistant|><think>\n\n</think>\n\n"), ReasoningStart::kBehind);
  EXPECT_EQ(start("hi<|assistant|></think>"), ReasoningStart::kBehind);
  EXPECT_EQ(start("hi<|assistant|></think><think>\n"), ReasoningStart::kInside);
  EXPECT_EQ(start("hi Think between <think> and </think>.<|assistant|>"), ReasoningStart::kBefore);
  EXPECT_EQ(start(""), ReasoningStart::kBefore);
  // The request's, in whole or in part.
  EXPECT_EQ(ReasoningStartOf("<think>", 7), ReasoningStart::kBefore);
  EXPECT_EQ(ReasoningStartOf("<think>", 1), ReasoningStart::kBefore);
  EXPECT_EQ(ReasoningStartOf("<think>", 0), ReasoningStart::kBesideTag);
  EXPECT_EQ(ReasoningStartOf("</think>\n", 9), ReasoningStart::kBefore);
}

TEST(ReasoningFormatTest, WordsOfAnAnswerTellWhereItEnds) {
  EXPECT_EQ(ReasoningStartWithin("The answer"), ReasoningStart::kBehind);
  EXPECT_EQ(ReasoningStartWithin("The <think>"), ReasoningStart::kBehind);
  EXPECT_EQ(ReasoningStartWithin("\n<think>"), ReasoningStart::kBesideTag);
  EXPECT_EQ(ReasoningStartWithin("<think>\n\n "), ReasoningStart::kInside);
  EXPECT_EQ(ReasoningStartWithin("\n<think>\nLet"), ReasoningStart::kAmid);
  EXPECT_EQ(ReasoningStartWithin("<think>a</think"), ReasoningStart(ReasoningStart::kAmid, 7));
  EXPECT_EQ(ReasoningStartWithin("<think>a <"), ReasoningStart(ReasoningStart::kAmid, 1));
  EXPECT_EQ(ReasoningStartWithin("<think>a</think>"), ReasoningStart::kBehind);
  EXPECT_EQ(ReasoningStartWithin("a</think>b"), ReasoningStart::kBehind);
  EXPECT_EQ(ReasoningStartWithin("a", /*opened=*/true), ReasoningStart::kAmid);
  EXPECT_EQ(ReasoningStartWithin("a</think>b", /*opened=*/true), ReasoningStart::kBehind);
}

TEST(ReasoningFormatTest, TheAnswerIsWhatStandsBehindTheThought) {
  EXPECT_EQ(WithoutReasoning("<think>a</think>b", ReasoningStart::kBefore), "b");
  EXPECT_EQ(WithoutReasoning("a</think>b", ReasoningStart::kBefore), "a</think>b");
  EXPECT_EQ(WithoutReasoning("<think>a", ReasoningStart::kBefore), "");
  EXPECT_EQ(WithoutReasoning("a</think>b", ReasoningStart::kInside), "b");
  EXPECT_EQ(WithoutReasoning("a", ReasoningStart::kInside), "");
  EXPECT_EQ(WithoutReasoning("a", ReasoningStart::kAmid), "");
  EXPECT_EQ(WithoutReasoning("k>b", ReasoningStart(ReasoningStart::kAmid, 6)), "b");
  EXPECT_EQ(WithoutReasoning("</think>b", ReasoningStart(ReasoningStart::kAmid, 1)), "b");
  EXPECT_EQ(WithoutReasoning("<think>a</think>b", ReasoningStart::kBehind), "<think>a</think>b");
}

}  // namespace
}  // namespace refrain::engine
