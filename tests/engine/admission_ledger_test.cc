#include "engine/admission_ledger.h"

#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

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
