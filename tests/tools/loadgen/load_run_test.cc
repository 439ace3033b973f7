#include "tools/loadgen/load_run.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>
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
    if (failed > 0) EXPECT_EQ(ran.result.failures.begin()->first, "bad_answer") << told;
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

}  // namespace
}  // namespace refrain::loadgen
