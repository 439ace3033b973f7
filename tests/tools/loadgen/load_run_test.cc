#include "tools/loadgen/load_run.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/tools/loadgen/load_run_fakes.h"

namespace refrain::loadgen {
namespace {

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

// Throughput would be of tokens that nobody generated.
TEST(Usage, ThatCannotBeTrueMakesAnAnswerAFailure) {
  for (const auto& [told, asked_for, failed] :
       {std::tuple{1000, true, 1}, {1000, false, 0}, {1, true, 1}, {2, true, 0}, {16, true, 0}}) {
    FakeLoop loop;
    FakeBackend backend(&loop);
    backend.told_tokens = told;
    FakeWorkload workload(Sessions(1));
    const Ran ran = RunLoad({.arrivals = kTenPerSecond, .sets_most_tokens = asked_for}, &workload,
                            &backend, &loop);
    EXPECT_EQ(ran.result.failed, failed) << told;
    if (failed > 0) {
      EXPECT_EQ(ran.result.failures.begin()->first, "bad_answer") << told;
    }
  }
}

TEST(Usage, OrIdsOfAllTokensTellHowLongAnAnswerIs) {
  for (const auto& [gives_ids, first_tokens, unknown] :
       {std::tuple{true, 1, 0}, {true, 2, 1}, {false, 1, 1}}) {
    FakeLoop loop;
    FakeBackend backend(&loop);
    backend.gives_ids = gives_ids;
    backend.first_tokens = first_tokens;
    FakeWorkload workload(Sessions(1));
    const Ran ran = RunLoad({.arrivals = kTenPerSecond}, &workload, &backend, &loop);
    EXPECT_EQ(ran.result.unknown_lengths, unknown);
    EXPECT_EQ(ran.result.short_answers, 1 - unknown);
  }
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

constexpr double kServiceS = 1e-6;

// One user, of whose requests some are turned away, each after kServiceS.
class TurnedAwayTest : public ::testing::Test {
 protected:
  TurnedAwayTest() { backend_.service_s = kServiceS; }

  Ran Run(LoadOptions options) {
    options.kind = LoopKind::kClosed;
    begin_s_ = loop_.NowS();
    return RunLoad(options, &workload_, &backend_, &loop_);
  }
  // From the end of one request to the next.
  std::vector<double> Pauses() const {
    std::vector<double> pauses;
    for (size_t i = 1; i < backend_.sent.size(); ++i) {
      pauses.push_back(backend_.sent[i].at_s - backend_.sent[i - 1].at_s - kServiceS);
    }
    return pauses;
  }
  static void ExpectNear(const std::vector<double>& got, const std::vector<double>& expected) {
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-9) << i;
  }

  FakeLoop loop_;
  FakeBackend backend_{&loop_};
  FakeWorkload workload_{Sessions(1000)};
  double begin_s_ = 0;
};

// Where a server refuses all, a hundred thousand requests a second would show nothing but that.
TEST_F(TurnedAwayTest, AUserComesAgainLaterEachTimeUntilItHasAnAnswer) {
  for (const char* kind : {"connection_refused", "http_429", "http_503", "grpc_UNAVAILABLE",
                           "grpc_RESOURCE_EXHAUSTED"}) {
    backend_.sent.clear();
    backend_.refused_kind = kind;
    backend_.refused = {1, 2, 3, 4, 5, 6, 7, 9};
    const Ran ran = Run({.most_requests = 10});
    ExpectNear(Pauses(), {0.05, 0.1, 0.2, 0.4, 0.8, 1, 1, 0, 0.05});
    EXPECT_EQ(ran.result.failures.at(kind).count, 8);
    // Its pause is no request's time.
    EXPECT_NEAR(Of(ran, Metric::kE2e).max, kServiceS * 1e3, 1e-6);
  }
}

// The second session's first turn is answered, its second is not.
TEST_F(TurnedAwayTest, AnAnswerInBetweenBeginsAnew) {
  FakeWorkload turns(Sessions(1000, /*turns=*/2));
  backend_.refused = {1, 2, 4};
  RunLoad({.kind = LoopKind::kClosed, .most_requests = 5}, &turns, &backend_, &loop_);
  ExpectNear(Pauses(), {0.05, 0.1, 0, 0.05});
}

TEST_F(TurnedAwayTest, AUserComesAgainWhenItWasToldTo) {
  backend_.refused = {1, 2};
  for (const auto& [told_s, waits_s] : {std::pair{7.0, 7.0}, {0.25, 0.25}, {3600.0, 60.0}}) {
    backend_.sent.clear();
    backend_.retry_after_s = told_s;
    Run({.most_requests = 3});
    ExpectNear(Pauses(), {waits_s, waits_s});
  }
  // At once is what it would do by itself.
  backend_.sent.clear();
  backend_.retry_after_s = 0;
  Run({.most_requests = 3});
  ExpectNear(Pauses(), {0.05, 0.1});
}

TEST_F(TurnedAwayTest, OthersThatFailAreFollowedAtOnce) {
  backend_.fail_number = 1;
  Run({.most_requests = 2});
  ExpectNear(Pauses(), {0});
}

// Nobody waits for a user that has nothing left to ask.
TEST_F(TurnedAwayTest, TheRunEndsWithItsLastRequestOrItsTime) {
  backend_.refused = {1, 2, 3};
  backend_.retry_after_s = 50;
  const Ran by_requests = Run({.most_requests = 1});
  EXPECT_EQ(by_requests.result.failed, 1);
  EXPECT_LT(loop_.NowS() - begin_s_, 1);
  backend_.sent.clear();
  const Ran by_time = Run({.users = 2, .duration_s = 20});
  EXPECT_EQ(by_time.result.failed, 2);
  EXPECT_NEAR(loop_.NowS() - begin_s_, 20, 1e-3);
}

}  // namespace
}  // namespace refrain::loadgen
