#include "engine/admission_ledger.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/drain_meter.h"
#include "engine/retry_after.h"
#include "tests/support/fake_clock.h"

namespace refrain::engine {
namespace {

using namespace std::chrono_literals;

TEST(RetryAfterTest, IsAWholeNumberOfSecondsWithinItsBounds) {
  const auto hint = [](double seconds) {
    return RetryAfterOf(WithRetryAfter(absl::ResourceExhaustedError("full"), seconds)).value_or(-1);
  };
  EXPECT_EQ(hint(0), 1);
  EXPECT_EQ(hint(-5), 1);
  EXPECT_EQ(hint(1.2), 2);
  EXPECT_EQ(hint(59.5), 60);
  EXPECT_EQ(hint(1e12), kMaxRetryAfterS);
  EXPECT_EQ(hint(std::numeric_limits<double>::quiet_NaN()), kMaxRetryAfterS);
  EXPECT_EQ(RetryAfterOf(absl::ResourceExhaustedError("full")), std::nullopt);
}

// `count` leave, one in each `period`, at its end.
void Leave(int count, std::chrono::milliseconds period, testing::FakeClock* clock,
           DrainMeter* meter) {
  for (int i = 0; i < count; ++i) {
    clock->Advance(period);
    meter->Add(clock->Now(), 1);
  }
}

TEST(DrainMeterTest, MeasuresTheRateOfTheLastSeconds) {
  testing::FakeClock clock;
  DrainMeter meter;
  for (int i = 0; i < 60; ++i) {
    meter.Add(clock.Now(), 5);
    clock.Advance(500ms);
  }
  EXPECT_NEAR(meter.SecondsFor(clock.Now(), 100), 10, 1);  // ten a second
  for (int i = 0; i < 60; ++i) {
    meter.Add(clock.Now(), 20);
    clock.Advance(500ms);
  }
  EXPECT_NEAR(meter.SecondsFor(clock.Now(), 100), 2.5, 0.3);  // the slow time is forgotten
  clock.Advance(DrainMeter::kWindow * 2);
  EXPECT_GE(meter.SecondsFor(clock.Now(), 100), 100);  // nothing has left lately
}

// Before a burst there was nothing to leave: that is no slowness.
TEST(DrainMeterTest, AnIdleTimeBeforeDoesNotCount) {
  testing::FakeClock clock;
  DrainMeter meter;
  meter.Add(clock.Now(), 1);
  clock.Advance(DrainMeter::kWindow * 2);
  meter.Begin(clock.Now());
  Leave(60, 50ms, &clock, &meter);
  EXPECT_NEAR(meter.SecondsFor(clock.Now(), 1000), 50, 5);  // twenty a second
}

// One in 20 s while others wait: that one has just left does not make it one a second.
TEST(DrainMeterTest, ASlowRateStaysSlow) {
  testing::FakeClock clock;
  DrainMeter meter;
  meter.Begin(clock.Now());
  Leave(3, 20s, &clock, &meter);
  EXPECT_GE(meter.SecondsFor(clock.Now(), 1), 15);
}

// A first burst: nothing has left yet, and nothing has taken long.
TEST(DrainMeterTest, WhereNothingHasLeftItTakesAsLongAsItHasTaken) {
  testing::FakeClock clock;
  clock.Advance(DrainMeter::kWindow * 2);
  DrainMeter meter;
  EXPECT_NEAR(meter.SecondsFor(clock.Now(), 1), 0, 0.01);
  meter.Begin(clock.Now());
  clock.Advance(10ms);
  EXPECT_NEAR(meter.SecondsFor(clock.Now(), 20), 0.2, 0.01);
  clock.Advance(490ms);
  EXPECT_NEAR(meter.SecondsFor(clock.Now(), 2), 1, 0.01);
  clock.Advance(5s);
  EXPECT_NEAR(meter.SecondsFor(clock.Now(), 2), 11, 0.1);
  clock.Advance(DrainMeter::kWindow * 2);
  EXPECT_NEAR(meter.SecondsFor(clock.Now(), 2), 31, 1);
}

// What has only just come is told from what left before it, ten a second, however long ago.
TEST(DrainMeterTest, BeforeAnythingHasLeftTheFormerRateCounts) {
  for (const auto idle : {std::chrono::seconds(2), DrainMeter::kWindow * 100}) {
    testing::FakeClock clock;
    DrainMeter meter;
    meter.Begin(clock.Now());
    Leave(40, 100ms, &clock, &meter);
    clock.Advance(idle);
    meter.Begin(clock.Now());
    EXPECT_NEAR(meter.SecondsFor(clock.Now(), 20), 2, 0.3);
    Leave(2, 5ms, &clock, &meter);
    EXPECT_NEAR(meter.SecondsFor(clock.Now(), 20), 2, 0.3);
    clock.Advance(10s);  // and no other: it has become slow
    EXPECT_NEAR(meter.SecondsFor(clock.Now(), 2), 10, 0.3);
  }
}

// A request now and then, which never waits, is no slow queue, and makes none forgotten.
TEST(DrainMeterTest, WhatLeavesAtOnceKeepsTheFormerRate) {
  testing::FakeClock clock;
  DrainMeter meter;
  meter.Begin(clock.Now());
  Leave(40, 100ms, &clock, &meter);
  for (int i = 0; i < 10; ++i) {
    clock.Advance(5s);
    meter.Begin(clock.Now());
    Leave(1, 1ms, &clock, &meter);
  }
  clock.Advance(5s);
  meter.Begin(clock.Now());
  EXPECT_NEAR(meter.SecondsFor(clock.Now(), 20), 2, 0.3);
}

// It took a free slot, and says nothing of how a queue drains.
TEST(DrainMeterTest, ALoneOneThatLeftAtOnceIsNoRate) {
  testing::FakeClock clock;
  DrainMeter meter;
  meter.Begin(clock.Now());
  Leave(1, 2ms, &clock, &meter);
  clock.Advance(5s);
  meter.Begin(clock.Now());
  clock.Advance(5ms);
  EXPECT_LE(meter.SecondsFor(clock.Now(), 8), 0.1);
}

// 320 a second, of a thousand that came a quarter of a second ago.
TEST(DrainMeterTest, WithinTheFirstSecondARateIsThatOfTheTimeThatHasPassed) {
  for (const auto former : {0ms, 2ms, 250ms}) {  // nothing before, a lone one, four a second
    testing::FakeClock clock;
    DrainMeter meter;
    if (former > 0ms) {
      meter.Begin(clock.Now());
      Leave(former > 100ms ? 20 : 1, former, &clock, &meter);
      clock.Advance(5s);
    }
    meter.Begin(clock.Now());
    for (int i = 0; i < 50; ++i) {
      clock.Advance(5ms);
      meter.Add(clock.Now(), i % 5 < 2 ? 1 : 2);
    }
    EXPECT_NEAR(meter.SecondsFor(clock.Now(), 920), 2.9, 0.2);
  }
}

// As many as there are free slots leave at once; each of the others waits for one to end.
TEST(DrainMeterTest, WhatTookFreeSlotsDoesNotCountOnceOthersHaveLeft) {
  testing::FakeClock clock;
  DrainMeter meter;
  meter.Begin(clock.Now());
  Leave(8, 1ms, &clock, &meter);
  clock.Advance(492ms);
  for (int i = 0; i < 8; ++i) meter.Add(clock.Now(), 1);
  EXPECT_NEAR(meter.SecondsFor(clock.Now(), 16), 1, 0.1);
}

TEST(DrainMeterTest, AQueueThatWasSoonGoneHasItsOwnRate) {
  testing::FakeClock clock;
  DrainMeter meter;
  meter.Begin(clock.Now());
  Leave(100, 5ms, &clock, &meter);
  clock.Advance(1h);
  meter.Begin(clock.Now());
  EXPECT_NEAR(meter.SecondsFor(clock.Now(), 800), 4, 0.2);
}

// Two milliseconds between two of them make no five hundred a second.
TEST(DrainMeterTest, TwoThatLeaveOneBehindTheOtherAreNoQuickQueue) {
  testing::FakeClock clock;
  DrainMeter meter;
  meter.Begin(clock.Now());
  clock.Advance(97ms);
  Leave(2, 2ms, &clock, &meter);
  EXPECT_GE(meter.SecondsFor(clock.Now(), 100), 5);
}

class AdmissionLedgerTest : public ::testing::Test {
 protected:
  // `requests` start and end within `time`, evenly, while one waits.
  void Serve(int requests, std::chrono::duration<double> time) {
    AdmissionTicket ticket;
    for (int i = 0; i <= requests; ++i) {
      auto next = ledger_->Enter("");
      ASSERT_TRUE(next.ok() && next->SetTokens(100).ok());
      if (i > 0) clock_.Advance(time / requests);
      ticket = *std::move(next);
    }
  }

  int RetryAfter() { return RetryAfterOf(ledger_->Enter("").status()).value_or(-1); }

  testing::FakeClock clock_;
  std::shared_ptr<AdmissionLedger> ledger_ = std::make_shared<AdmissionLedger>(40, 1000, &clock_);
};

// Two requests a second leave the queue; the forty that wait will be gone in twenty.
TEST_F(AdmissionLedgerTest, TellsWhenTheQueueWillHaveDrained) {
  Serve(32, 16s);
  std::vector<AdmissionTicket> queued;
  for (int i = 0; i < 40; ++i) queued.push_back(*ledger_->Enter(""));
  EXPECT_TRUE(absl::IsResourceExhausted(ledger_->Enter("").status()));
  EXPECT_NEAR(RetryAfter(), 20, 2);
}

// An idle server is no slow one.
TEST_F(AdmissionLedgerTest, TellsABurstBehindAnIdleTimeTheRateBeforeIt) {
  Serve(160, 16s);
  clock_.Advance(1h);
  std::vector<AdmissionTicket> queued;
  for (int i = 0; i < 40; ++i) queued.push_back(*ledger_->Enter(""));
  EXPECT_NEAR(RetryAfter(), 4, 1);
}

TEST_F(AdmissionLedgerTest, TellsAFirstBurstToComeBackAtOnce) {
  std::vector<AdmissionTicket> queued;
  for (int i = 0; i < 40; ++i) queued.push_back(*ledger_->Enter(""));
  clock_.Advance(5ms);
  EXPECT_EQ(RetryAfter(), 1);
}

TEST_F(AdmissionLedgerTest, TellsABurstBehindALoneRequestToComeBackAtOnce) {
  ledger_->Enter("")->LeaveQueue();
  clock_.Advance(3s);
  std::vector<AdmissionTicket> queued;
  for (int i = 0; i < 40; ++i) queued.push_back(*ledger_->Enter(""));
  clock_.Advance(5ms);
  EXPECT_EQ(RetryAfter(), 1);
}

TEST_F(AdmissionLedgerTest, TellsMoreWhenTheQueueDrainsSlowly) {
  Serve(8, 16s);
  std::vector<AdmissionTicket> queued;
  for (int i = 0; i < 40; ++i) queued.push_back(*ledger_->Enter(""));
  EXPECT_EQ(RetryAfter(), kMaxRetryAfterS);
}

// 200 tokens a second leave; 900 wait and 200 more do not fit.
TEST_F(AdmissionLedgerTest, TellsWhenTheTokensWillHaveDrained) {
  Serve(32, 16s);
  AdmissionTicket large = *ledger_->Enter("");
  ASSERT_TRUE(large.SetTokens(900).ok());
  AdmissionTicket refused = *ledger_->Enter("");
  const absl::Status status = refused.SetTokens(200);
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_NEAR(RetryAfterOf(status).value_or(-1), 5, 1);
}

// However slowly requests end: at the deadline the server is gone, or another in its place.
TEST_F(AdmissionLedgerTest, TellsNoTimeBehindADrainsDeadline) {
  std::vector<AdmissionTicket> there;
  for (int i = 0; i < 10; ++i) there.push_back(*ledger_->Enter(""));
  clock_.Advance(15s);
  ledger_->Close(absl::UnavailableError("draining"), clock_.Now() + 7s);
  EXPECT_EQ(RetryAfter(), 7);
  clock_.Advance(3s);
  EXPECT_EQ(RetryAfter(), 4);
}

// Six prompts of one call are more than the limit of 1,000: they would be at any time. Behind
// others they wait as all do.
TEST_F(AdmissionLedgerTest, ACallThatIsAloneMayHaveAnyNumberOfTokens) {
  constexpr uint64_t kCall = 7;
  std::vector<AdmissionTicket> of_call;
  for (int i = 0; i < 6; ++i) {
    of_call.push_back(*ledger_->Enter("", Errand::kRun, kCall));
    EXPECT_TRUE(of_call.back().SetTokens(400).ok()) << i;
  }
  AdmissionTicket other = *ledger_->Enter("", Errand::kRun, kCall + 1);
  EXPECT_TRUE(absl::IsResourceExhausted(other.SetTokens(400)));
  EXPECT_TRUE(absl::IsResourceExhausted(ledger_->Enter("")->SetTokens(400)));
  of_call.clear();
  ASSERT_TRUE(other.SetTokens(800).ok());
  for (int i = 0; i < 2; ++i) of_call.push_back(*ledger_->Enter("", Errand::kRun, kCall));
  EXPECT_TRUE(absl::IsResourceExhausted(of_call[1].SetTokens(400)));
}

// While it drains: until what is there has ended, at the rate at which requests end.
TEST_F(AdmissionLedgerTest, TellsWhenADrainWillBeOver) {
  Serve(32, 16s);
  EXPECT_EQ(ledger_->SecondsUntilEmpty(), 0);
  std::vector<AdmissionTicket> there;
  for (int i = 0; i < 10; ++i) there.push_back(*ledger_->Enter(""));
  EXPECT_NEAR(ledger_->SecondsUntilEmpty(), 5, 1);
  ledger_->Close(absl::UnavailableError("draining"));
  EXPECT_TRUE(absl::IsUnavailable(ledger_->Enter("").status()));
  EXPECT_NEAR(RetryAfter(), 5, 1);
  EXPECT_NEAR(ledger_->SecondsUntilEmpty(), 5, 1);
}

TEST_F(AdmissionLedgerTest, AFullQueueStillTakesAnotherTenantsFairPart) {
  std::vector<AdmissionTicket> queued;
  const auto fill = [&](const char* tenant) {
    int entered = 0;
    for (absl::StatusOr<AdmissionTicket> ticket = ledger_->Enter(tenant); ticket.ok();
         ticket = ledger_->Enter(tenant)) {
      queued.push_back(*std::move(ticket));
      ++entered;
    }
    return entered;
  };
  EXPECT_EQ(fill("a"), 40);
  EXPECT_EQ(fill("b"), 13);  // 40 over a, b and one more
  EXPECT_EQ(fill("c"), 10);
  EXPECT_EQ(fill("a"), 0);
  for (int i = 0; i < 100; ++i) fill(std::to_string(i).c_str());
  EXPECT_EQ(ledger_->queued_requests(), 80) << "never more than twice the limit";
  EXPECT_TRUE(absl::IsResourceExhausted(ledger_->Enter("late").status()));
  queued.clear();
  EXPECT_EQ(ledger_->queued_requests(), 0);
  EXPECT_EQ(fill("c"), 40) << "nothing is remembered of those who left";
}

TEST_F(AdmissionLedgerTest, WhatComesForItsTokensAloneIsQueuedAndDoesNotWaitToRun) {
  AdmissionTicket to_run = *ledger_->Enter("a");
  AdmissionTicket tokens = *ledger_->Enter("a", Errand::kTokenize);
  EXPECT_EQ(ledger_->queued_requests(), 2);
  EXPECT_EQ(ledger_->waiting_requests(), 1);
  AdmissionTicket moved = std::move(tokens);
  moved.LeaveQueue();
  EXPECT_EQ(ledger_->queued_requests(), 1);
  EXPECT_EQ(ledger_->waiting_requests(), 1);
  to_run.LeaveQueue();
  EXPECT_EQ(ledger_->waiting_requests(), 0);
}

TEST_F(AdmissionLedgerTest, QueuedTokensOfOneTenantKeepNoOtherOut) {
  AdmissionTicket large = *ledger_->Enter("a");
  ASSERT_TRUE(large.SetTokens(900).ok());
  AdmissionTicket more = *ledger_->Enter("a");
  EXPECT_TRUE(absl::IsResourceExhausted(more.SetTokens(200)));
  AdmissionTicket other = *ledger_->Enter("b");
  EXPECT_TRUE(absl::IsResourceExhausted(other.SetTokens(334))) << "1,000 over a, b and one more";
  EXPECT_TRUE(other.SetTokens(333).ok());
}

}  // namespace
}  // namespace refrain::engine
