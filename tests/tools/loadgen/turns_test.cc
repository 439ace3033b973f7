// Conversations of several turns, and the forms in which they go over the wire.

#include "tools/loadgen/load_run.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/tools/loadgen/load_run_fakes.h"

namespace refrain::loadgen {
namespace {

TEST(Turns, RepeatTheHistoryWithTheServersOwnAnswersAfterTheTimeToThink) {
  FakeLoop loop;
  FakeBackend backend(&loop);
  backend.service_s = 1;
  FakeWorkload workload(Sessions(1, 3, 10));
  const double begin_s = loop.NowS();
  const Ran ran = RunLoad({.kind = LoopKind::kClosed}, &workload, &backend, &loop);
  EXPECT_EQ(ran.result.completed, 3);
  ASSERT_EQ(backend.sent.size(), 3u);
  EXPECT_EQ(backend.sent[0].encoded, "0 0 ids ");
  EXPECT_EQ(backend.sent[1].encoded, "0 0 90 90 0 1 ids ");
  EXPECT_EQ(backend.sent[2].encoded, "0 0 90 90 0 1 90 90 0 2 ");
  EXPECT_NEAR(backend.sent[1].at_s - begin_s, 11, 1e-9);
  EXPECT_NEAR(backend.sent[2].at_s - begin_s, 22, 1e-9);
  EXPECT_NEAR(Of(ran, Metric::kE2e).max, 1000, 1e-6);  // thinking is no latency
}

// Scenario: each answer ends with text that its server had held back, a second behind its tokens.
TEST(Turns, GoOnWithTextThatCameBehindItsTokens) {
  FakeLoop loop;
  FakeBackend backend(&loop);
  backend.held_back_s = 1;
  backend.gives_ids = false;
  FakeWorkload workload({{.turns = {{.messages = {{"user", "Hi"}}}, {.messages = {{"user", "So"}}}},
                          .form = PromptForm::kChat}});
  const Ran ran = RunLoad({.kind = LoopKind::kClosed}, &workload, &backend, &loop);
  EXPECT_EQ(ran.result.completed, 2);
  EXPECT_EQ(backend.sent.back().encoded, "user:Hi assistant:ABC user:So ");
  EXPECT_EQ(ran.result.output_tokens, 2 * 2);
  EXPECT_EQ(ran.result.itl.count, 2);
  EXPECT_EQ(ran.result.itl.max, 0) << "it is no token that took a second";
}

// They come much later than the sessions; the time to drain begins when the last one is sent.
TEST(Turns, OfAWorkloadThatHasEndedAreAllSent) {
  for (const LoopKind kind : {LoopKind::kOpen, LoopKind::kClosed}) {
    FakeLoop loop;
    FakeBackend backend(&loop);
    backend.hang_number = 6;
    FakeWorkload workload(Sessions(2, 3, 100));
    const double begin_s = loop.NowS();
    const Ran ran = RunLoad(
        {.kind = kind, .arrivals = kTenPerSecond, .users = 2, .drain_s = 4, .most_in_flight = 1},
        &workload, &backend, &loop);
    EXPECT_EQ(ran.result.completed, 5);
    EXPECT_EQ(ran.result.failures.at("unfinished").count, 1);
    ASSERT_EQ(backend.sent.size(), 6u);
    EXPECT_NEAR(loop.NowS() - begin_s, backend.sent.back().at_s - begin_s + 4, 0.1);
  }
}

// What is planned is sent, though the requests are spent long before it is due; the time to drain
// begins then.
TEST(Turns, ThatArePlannedAreSentWhenTheRequestsAreSpent) {
  for (const LoopKind kind : {LoopKind::kOpen, LoopKind::kClosed}) {
    FakeLoop loop;
    FakeBackend backend(&loop);
    backend.hang_number = 4;
    FakeWorkload workload(Sessions(3, 3, 100));
    const Ran ran = RunLoad(
        {.kind = kind, .arrivals = kTenPerSecond, .users = 2, .most_requests = 4, .drain_s = 4},
        &workload, &backend, &loop);
    EXPECT_EQ(backend.sent.size(), 4u);
    EXPECT_EQ(ran.result.completed, 3);
    EXPECT_EQ(ran.result.failures.at("unfinished").count, 1);
    EXPECT_NEAR(loop.NowS(), backend.sent.back().at_s + 4, 1e-6);
  }
}

// A conversation that fails before its last turn is not waited for either.
TEST(Turns, ThatAreNotSentForAFailureDoNotKeepARunUp) {
  FakeLoop loop;
  FakeBackend backend(&loop);
  backend.fail_number = 2;
  backend.hang_number = 1;
  FakeWorkload workload({Sessions(1)[0], Sessions(1, 3, 10)[0]});
  const Ran ran = RunLoad({.arrivals = kTenPerSecond, .drain_s = 4}, &workload, &backend, &loop);
  EXPECT_EQ(ran.result.failed, 2);
  EXPECT_EQ(ran.result.failures.at("unfinished").count, 1);
  EXPECT_LT(ran.result.duration_s, 5);
}

TEST(Turns, OfAChatHaveTheAnswersAsMessages) {
  FakeLoop loop;
  FakeBackend backend(&loop);
  backend.gives_ids = false;
  Session session;
  session.turns.push_back({.messages = {{"user", "one"}}});
  session.turns.push_back({.messages = {{"user", "two"}}});
  FakeWorkload workload({session});
  const Ran ran =
      RunLoad({.kind = LoopKind::kClosed, .form = PromptForm::kChat}, &workload, &backend, &loop);
  EXPECT_TRUE(ran.status.ok());
  ASSERT_EQ(backend.sent.size(), 2u);
  EXPECT_EQ(backend.sent[1].encoded, "user:one assistant:AB user:two ");
}

// What the server's cache holds of it is a prompt with its answer behind it.
TEST(Turns, OfTextGoOnRightBehindTheAnswers) {
  FakeLoop loop;
  FakeBackend backend(&loop);
  backend.gives_ids = false;
  Session session;
  session.turns.push_back({.messages = {{"system", "be brief"}, {"user", "one"}}});
  session.turns.push_back({.messages = {{"user", "two"}}});
  session.turns.push_back({.messages = {{"user", "three"}, {"user", "four"}}});
  FakeWorkload workload({session});
  const Ran ran =
      RunLoad({.kind = LoopKind::kClosed, .form = PromptForm::kText}, &workload, &backend, &loop);
  EXPECT_TRUE(ran.status.ok());
  ASSERT_EQ(backend.sent.size(), 3u);
  EXPECT_EQ(backend.sent[0].encoded, "be brief\none");
  EXPECT_EQ(backend.sent[1].encoded, "be brief\noneABtwo");
  EXPECT_EQ(backend.sent[2].encoded, "be brief\noneABtwoABthree\nfour");
}

TEST(Turns, AFailedTurnEndsItsConversationOnly) {
  FakeLoop loop;
  FakeBackend backend(&loop);
  backend.fail_number = 2;
  FakeWorkload workload(Sessions(2, 3));
  const Ran ran = RunLoad({.kind = LoopKind::kClosed}, &workload, &backend, &loop);
  EXPECT_EQ(ran.result.completed, 4);
  EXPECT_EQ(ran.result.failed, 1);
}

TEST(Turns, OfIdsNeedTheIdsOfTheAnswers) {
  FakeLoop loop;
  FakeBackend backend(&loop);
  backend.gives_ids = false;
  FakeWorkload workload(Sessions(2, 2));
  const Ran ran = RunLoad({.kind = LoopKind::kClosed}, &workload, &backend, &loop);
  EXPECT_NE(std::string(ran.status.message()).find("return_token_ids"), std::string::npos);
}

// Nothing may be sent when a run ends early: who sent it is gone when the answer comes.
TEST(Turns, OfARunThatFailsAreNotSentAnyMore) {
  FakeLoop loop;
  FakeBackend backend(&loop);
  backend.gives_ids = false;
  backend.service_s = 0.5;  // others wait for their turn
  FakeWorkload workload(Sessions(20, 2));
  const Ran ran =
      RunLoad({.arrivals = kTenPerSecond, .most_in_flight = 2}, &workload, &backend, &loop);
  EXPECT_NE(std::string(ran.status.message()).find("return_token_ids"), std::string::npos);
  EXPECT_EQ(backend.running(), 0u);
}

TEST(Turns, StillThinkingWhenTheRunEndsAreNotSent) {
  FakeLoop loop;
  FakeBackend backend(&loop);
  FakeWorkload workload(Sessions(50, 2, 1000));
  const Ran ran = RunLoad({.arrivals = kTenPerSecond, .duration_s = 2.05, .drain_s = 5}, &workload,
                          &backend, &loop);
  EXPECT_EQ(ran.result.completed, 20);
  EXPECT_EQ(ran.result.failed, 0);
}

TEST(Forms, ASessionsOwnFormGoesBeforeTheRuns) {
  FakeLoop loop;
  FakeBackend backend(&loop);
  Session ids = Sessions(1)[0];
  ids.form = PromptForm::kTokenIds;
  Session text;
  text.turns.push_back({.messages = {{"user", "one"}}});
  text.form = PromptForm::kText;
  FakeWorkload workload({ids, text});
  const Ran ran =
      RunLoad({.kind = LoopKind::kClosed, .form = PromptForm::kChat}, &workload, &backend, &loop);
  EXPECT_TRUE(ran.status.ok()) << ran.status;
  ASSERT_EQ(backend.sent.size(), 2u);
  EXPECT_EQ(backend.forms, (std::vector<PromptForm>{PromptForm::kTokenIds, PromptForm::kText}));
}

TEST(Forms, AWorkloadOfTheOtherFormIsRefused) {
  FakeLoop loop;
  FakeBackend backend(&loop);
  FakeWorkload workload(Sessions(1));
  const Ran ran =
      RunLoad({.kind = LoopKind::kClosed, .form = PromptForm::kChat}, &workload, &backend, &loop);
  EXPECT_NE(std::string(ran.status.message()).find("--prompt-form=token_ids"), std::string::npos);
  EXPECT_TRUE(backend.sent.empty());
}

}  // namespace
}  // namespace refrain::loadgen
