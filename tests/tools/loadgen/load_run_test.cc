#include "tools/loadgen/load_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace refrain::loadgen {
namespace {

// An event loop whose time jumps to the next call.
class FakeLoop final : public EventLoop {
 public:
  double NowS() const override { return now_s_; }
  void CallAt(double at_s, std::function<void()> call) override {
    calls_.emplace(std::max(at_s, now_s_), std::move(call));
  }
  void Post(std::function<void()> call) override { CallAt(now_s_, std::move(call)); }
  void Run() override {
    stopped_ = false;
    while (!stopped_ && !calls_.empty()) {
      now_s_ = std::max(now_s_, calls_.begin()->first);
      const auto call = std::move(calls_.begin()->second);
      calls_.erase(calls_.begin());
      call();
    }
    starved_ = !stopped_;
    calls_.clear();
  }
  void Stop() override { stopped_ = true; }

  // Work that keeps the loop from all else.
  void Block(double seconds) { now_s_ += seconds; }
  bool starved() const { return starved_; }  // ended without Stop: the run forgot something

 private:
  double now_s_ = 100;
  bool stopped_ = false;
  bool starved_ = false;
  std::multimap<double, std::function<void()>> calls_;
};

// A server that works on one request at a time, each for `service_s`, and answers in two tokens.
class FakeBackend final : public Backend {
 public:
  explicit FakeBackend(FakeLoop* loop) : loop_(loop) {}

  std::string Encode(const GenerationRequest& request) const override {
    forms.push_back(request.form);
    std::string text;
    for (const int32_t id : request.token_ids) text += std::to_string(id) + " ";
    text += request.text;
    for (const ChatMessage& message : request.messages) {
      text += message.role + ":" + message.content + " ";
    }
    if (request.wants_token_ids) text += "ids ";
    return text;
  }

  void Start(std::string encoded, AnswerSink* sink) override {
    sent.push_back({loop_->NowS(), encoded});
    const size_t number = sent.size();
    running_[number] = sink;
    most_running = std::max(most_running, running_.size());
    if (number == hang_number) return;
    if (number == stall_number) free_at_s_ = loop_->NowS() + stall_s;
    free_at_s_ = std::max(free_at_s_, loop_->NowS()) + service_s;
    loop_->CallAt(free_at_s_, [this, number] { Answer(number); });
  }

  void CancelAll() override {
    for (const auto& [number, sink] : std::exchange(running_, {})) {
      AnswerEnd end;
      end.failure = Failure{"unfinished", ""};
      sink->OnEnd(loop_->NowS(), end);
    }
  }

  struct Sent {
    double at_s;
    std::string encoded;
  };
  std::vector<Sent> sent;
  mutable std::vector<PromptForm> forms;  // of what was encoded
  double service_s = 0.01;
  size_t stall_number = 0;  // the server stalls when this one comes
  double stall_s = 0;
  size_t hang_number = 0;  // never answered
  size_t fail_number = 0;
  bool gives_ids = true;
  int32_t first_tokens = 1;  // in an answer's first event; one more follows
  double textless_s = 0;     // of nine more tokens without text, then the end
  size_t most_running = 0;
  size_t running() const { return running_.size(); }

 private:
  void Answer(size_t number) {
    const auto found = running_.find(number);
    if (found == running_.end()) return;
    AnswerSink* sink = found->second;
    running_.erase(found);
    const std::vector<int32_t> ids = gives_ids ? std::vector<int32_t>{90} : std::vector<int32_t>{};
    AnswerEnd end;
    if (number == fail_number) {
      end.failure = Failure{"http_500", "asked to"};
    } else {
      sink->OnTokens(loop_->NowS(), first_tokens, "A", ids);
      sink->OnTokens(loop_->NowS(), 1, "B", ids);
    }
    if (textless_s > 0) {
      loop_->Block(textless_s);
      end.output_tokens = first_tokens + 10;
      end.finished_s = loop_->NowS();
      loop_->Block(1);  // to the end of the connection, which is no token's time
    }
    sink->OnEnd(loop_->NowS(), end);
  }

  FakeLoop* const loop_;
  double free_at_s_ = 0;
  std::map<size_t, AnswerSink*> running_;
};

class FakeWorkload final : public Workload {
 public:
  explicit FakeWorkload(std::vector<Session> sessions) : sessions_(std::move(sessions)) {}

  absl::StatusOr<std::optional<Session>> Next() override {
    if (next_ == fail_at) return absl::InvalidArgumentError("line 3 is odd");
    if (next_ == sessions_.size()) return std::optional<Session>();
    return std::optional<Session>(sessions_[next_++]);
  }
  size_t fail_at = SIZE_MAX;

 private:
  std::vector<Session> sessions_;
  size_t next_ = 0;
};

std::vector<Session> Sessions(int count, int turns = 1, double think_s = 0) {
  std::vector<Session> sessions;
  for (int i = 0; i < count; ++i) {
    Session& session = sessions.emplace_back();
    for (int turn = 0; turn < turns; ++turn) {
      session.turns.push_back({.token_ids = {i, turn}, .think_s = turn == 0 ? 0 : think_s});
    }
  }
  return sessions;
}

std::vector<Session> SessionsAt(const std::vector<double>& starts_s) {
  std::vector<Session> sessions = Sessions(static_cast<int>(starts_s.size()));
  for (size_t i = 0; i < starts_s.size(); ++i) sessions[i].start_s = starts_s[i];
  return sessions;
}

struct Ran {
  absl::Status status;
  RunResult result;
};
Ran RunLoad(const LoadOptions& options, Workload* workload, FakeBackend* backend, FakeLoop* loop) {
  Recorder recorder{Slo{}};
  LoadRun run(options, workload, backend, loop, &recorder);
  const absl::Status status = run.Run();
  EXPECT_FALSE(loop->starved());
  return {status, recorder.Finish(run.begin_s())};
}

const Summary& Of(const Ran& ran, Metric metric) {
  return ran.result.metrics[static_cast<size_t>(metric)];
}

constexpr ArrivalOptions kTenPerSecond = {.law = ArrivalLaw::kConstant, .rate_per_s = 10};

TEST(OpenLoop, SendsAtThePlannedTimesWhateverTheServerDoes) {
  FakeLoop loop;
  FakeBackend backend(&loop);
  backend.service_s = 5;  // far slower than the arrivals
  FakeWorkload workload(Sessions(100));
  const double begin_s = loop.NowS();
  const Ran ran = RunLoad({.arrivals = kTenPerSecond, .most_requests = 20, .drain_s = 1e6},
                          &workload, &backend, &loop);
  ASSERT_EQ(backend.sent.size(), 20u);
  for (size_t i = 0; i < 20; ++i) {
    EXPECT_NEAR(backend.sent[i].at_s - begin_s, 0.1 * static_cast<double>(i + 1), 1e-9);
  }
  EXPECT_EQ(ran.result.completed, 20);
}

// The server stalls for 2 s: all that should have come meanwhile see it, not one request alone.
TEST(OpenLoop, AStallOfTheServerIsSeenByAllWhoArriveDuringIt) {
  FakeLoop loop;
  FakeBackend backend(&loop);
  backend.service_s = 1e-6;
  backend.stall_number = 11;
  backend.stall_s = 2;
  FakeWorkload workload(Sessions(100));
  const Ran ran =
      RunLoad({.arrivals = kTenPerSecond, .most_requests = 100}, &workload, &backend, &loop);
  // Twenty arrivals wait between 2 s and 0.1 s.
  EXPECT_NEAR(Of(ran, Metric::kE2e).max, 2000, 1);
  EXPECT_NEAR(Of(ran, Metric::kE2e).mean, (2000 + 100) / 2.0 * 20 / 100, 5);
  EXPECT_NEAR(Of(ran, Metric::kE2e).p90, 1000, 110);
}

// This program itself is held up for a second: requests go out late, and latency counts from when
// they should have gone out.
TEST(OpenLoop, ALateClientHidesNothing) {
  FakeLoop loop;
  FakeBackend backend(&loop);
  backend.service_s = 1e-6;
  FakeWorkload workload(Sessions(100));
  loop.CallAt(loop.NowS() + 2.05, [&] { loop.Block(1); });
  const Ran ran =
      RunLoad({.arrivals = kTenPerSecond, .most_requests = 50}, &workload, &backend, &loop);
  EXPECT_EQ(ran.result.completed, 50);
  EXPECT_NEAR(Of(ran, Metric::kE2e).max, 950, 1);
  EXPECT_NEAR(ran.result.send_lag.max, 950, 4);
}

TEST(OpenLoop, WaitingForAFreePlaceIsPartOfTheLatency) {
  FakeLoop loop;
  FakeBackend backend(&loop);
  backend.service_s = 0.5;
  FakeWorkload workload(Sessions(10));
  const Ran ran = RunLoad({.arrivals = kTenPerSecond, .most_requests = 10, .most_in_flight = 2},
                          &workload, &backend, &loop);
  EXPECT_EQ(ran.result.completed, 10);
  EXPECT_EQ(backend.most_running, 2u);
  EXPECT_NEAR(Of(ran, Metric::kE2e).max, 5000 - 900, 1);
}

TEST(OpenLoop, EndsAfterItsDurationAndCountsWhatIsUnfinished) {
  FakeLoop loop;
  FakeBackend backend(&loop);
  backend.hang_number = 3;
  FakeWorkload workload(Sessions(1000));
  const Ran ran = RunLoad({.arrivals = kTenPerSecond, .duration_s = 2.05, .drain_s = 4}, &workload,
                          &backend, &loop);
  EXPECT_EQ(backend.sent.size(), 20u);
  EXPECT_EQ(ran.result.completed, 19);
  EXPECT_EQ(ran.result.failures.at("unfinished").count, 1);
  EXPECT_NEAR(ran.result.duration_s, 6.05, 1e-6);
}

// What still waits for a free place when the run ends is not thrown at the server all at once.
TEST(OpenLoop, WhatWaitsAtTheEndIsUnfinishedAndNeverSent) {
  FakeLoop loop;
  FakeBackend backend(&loop);
  backend.service_s = 1e9;
  FakeWorkload workload(Sessions(1000));
  const Ran ran =
      RunLoad({.arrivals = kTenPerSecond, .most_requests = 20, .drain_s = 4, .most_in_flight = 2},
              &workload, &backend, &loop);
  EXPECT_EQ(backend.sent.size(), 2u);
  EXPECT_EQ(ran.result.failures.at("unfinished").count, 20);
  EXPECT_EQ(ran.result.peak_in_flight, 2);
  EXPECT_EQ(ran.result.completed, 0);
}

TEST(OpenLoop, EndsWithItsWorkload) {
  FakeLoop loop;
  FakeBackend backend(&loop);
  FakeWorkload workload(Sessions(7));
  const Ran ran =
      RunLoad({.arrivals = kTenPerSecond, .most_requests = 100}, &workload, &backend, &loop);
  EXPECT_TRUE(ran.status.ok());
  EXPECT_EQ(ran.result.completed, 7);
}

TEST(OpenLoop, TellsWhatIsWrongWithItsWorkload) {
  FakeLoop loop;
  FakeBackend backend(&loop);
  FakeWorkload workload(Sessions(7));
  workload.fail_at = 4;
  const Ran ran =
      RunLoad({.arrivals = kTenPerSecond, .most_requests = 100}, &workload, &backend, &loop);
  EXPECT_EQ(ran.status.message(), "line 3 is odd");
}

TEST(OpenLoop, WhatIsUnfinishedAfterItsWorkloadIsWaitedForNoLonger) {
  FakeLoop loop;
  FakeBackend backend(&loop);
  backend.hang_number = 3;
  FakeWorkload workload(Sessions(7));
  const Ran ran = RunLoad({.arrivals = kTenPerSecond, .drain_s = 4}, &workload, &backend, &loop);
  EXPECT_TRUE(ran.status.ok());
  EXPECT_EQ(ran.result.completed, 6);
  EXPECT_EQ(ran.result.failures.at("unfinished").count, 1);
  EXPECT_NEAR(ran.result.duration_s, 0.7 + 4, 1e-6);
}

// The line is found when the request before it has just been sent.
TEST(OpenLoop, WhatWasSentBeforeAnErrorOfTheWorkloadIsAnswered) {
  FakeLoop loop;
  FakeBackend backend(&loop);
  backend.service_s = 1;
  FakeWorkload workload(Sessions(7));
  workload.fail_at = 4;
  const Ran ran =
      RunLoad({.arrivals = kTenPerSecond, .most_requests = 100}, &workload, &backend, &loop);
  EXPECT_FALSE(ran.status.ok());
  EXPECT_EQ(ran.result.completed, 4);
  EXPECT_EQ(ran.result.failed, 0);
}

TEST(OpenLoop, NoMoreOfTheWorkloadIsReadThanThereAreRequests) {
  FakeLoop loop;
  FakeBackend backend(&loop);
  FakeWorkload workload(Sessions(7));
  workload.fail_at = 4;
  const Ran ran =
      RunLoad({.arrivals = kTenPerSecond, .most_requests = 4}, &workload, &backend, &loop);
  EXPECT_TRUE(ran.status.ok()) << ran.status;
  EXPECT_EQ(ran.result.completed, 4);
}

// The third is under way, and two wait for a free place.
TEST(OpenLoop, ARunThatIsAbortedEndsAtOnceWithWhatItHas) {
  FakeLoop loop;
  FakeBackend backend(&loop);
  backend.hang_number = 3;
  FakeWorkload workload(Sessions(100));
  Recorder recorder{Slo{}};
  LoadRun run({.arrivals = kTenPerSecond, .most_in_flight = 1}, &workload, &backend, &loop,
              &recorder);
  loop.CallAt(loop.NowS() + 0.55, [&] {
    run.Abort(absl::CancelledError("interrupted"));
    run.Abort(absl::CancelledError("again"));
  });
  EXPECT_EQ(run.Run().message(), "interrupted");
  const RunResult result = recorder.Finish(run.begin_s());
  EXPECT_EQ(result.completed, 2);
  EXPECT_EQ(result.failures.at("unfinished").count, 3);
  EXPECT_NEAR(result.duration_s, 0.55, 1e-6);
  EXPECT_FALSE(loop.starved());
}

// So that the mean of ITL is that of TPOT, wherever an answer's tokens come together.
TEST(OpenLoop, TokensOfAFirstEventHaveNoTimeBetweenThem) {
  FakeLoop loop;
  FakeBackend backend(&loop);
  backend.first_tokens = 3;
  FakeWorkload workload(Sessions(5));
  const Ran ran = RunLoad({.arrivals = kTenPerSecond}, &workload, &backend, &loop);
  EXPECT_EQ(ran.result.output_tokens, 5 * 4);
  EXPECT_EQ(ran.result.itl.count, 5 * 3);
}

// Else TPOT would be 0, however slow the server is.
TEST(OpenLoop, TokensBehindTheLastTextCountUpToTheEndThatIsTold) {
  FakeLoop loop;
  FakeBackend backend(&loop);
  backend.textless_s = 2;
  FakeWorkload workload(Sessions(1));
  const Ran ran = RunLoad({.arrivals = kTenPerSecond}, &workload, &backend, &loop);
  EXPECT_EQ(ran.result.output_tokens, 11);
  EXPECT_NEAR(Of(ran, Metric::kTpot).max, 200, 1e-6);
}

TEST(Trace, KeepsTheDistancesOfTheTraceAtItsSpeed) {
  FakeLoop loop;
  FakeBackend backend(&loop);
  FakeWorkload workload(SessionsAt({50, 51, 55}));
  const double begin_s = loop.NowS();
  const Ran ran = RunLoad({.kind = LoopKind::kTrace, .trace_speed = 2}, &workload, &backend, &loop);
  EXPECT_TRUE(ran.status.ok());
  ASSERT_EQ(backend.sent.size(), 3u);
  EXPECT_NEAR(backend.sent[0].at_s - begin_s, 0, 1e-9);
  EXPECT_NEAR(backend.sent[1].at_s - begin_s, 0.5, 1e-9);
  EXPECT_NEAR(backend.sent[2].at_s - begin_s, 2.5, 1e-9);
}

// It would be late from the start, and say that the server was.
TEST(Trace, RefusesTimesThatFall) {
  FakeLoop loop;
  FakeBackend backend(&loop);
  FakeWorkload workload(SessionsAt({10, 500, 20}));
  const Ran ran = RunLoad({.kind = LoopKind::kTrace}, &workload, &backend, &loop);
  EXPECT_EQ(ran.status.message(),
            "a session that starts at 20 s comes behind one at 500 s: sort the workload by time to "
            "replay it");
}

TEST(Trace, RefusesAWorkloadWithoutTimes) {
  FakeLoop loop;
  FakeBackend backend(&loop);
  FakeWorkload workload(Sessions(3));
  EXPECT_FALSE(RunLoad({.kind = LoopKind::kTrace}, &workload, &backend, &loop).status.ok());
}

TEST(ClosedLoop, KeepsAsManyUnderWayAsThereAreUsers) {
  FakeLoop loop;
  FakeBackend backend(&loop);
  backend.service_s = 1;
  FakeWorkload workload(Sessions(100));
  const Ran ran = RunLoad({.kind = LoopKind::kClosed, .users = 4, .most_requests = 12}, &workload,
                          &backend, &loop);
  EXPECT_EQ(ran.result.completed, 12);
  EXPECT_EQ(backend.most_running, 4u);
  EXPECT_EQ(ran.result.peak_in_flight, 4);
  EXPECT_NEAR(ran.result.duration_s, 12, 1e-6);
}

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
