#include "engine/fair_shares.h"

#include <gtest/gtest.h>

#include <vector>

namespace refrain::engine {
namespace {

constexpr int64_t kLag = FairShares::kMostLagTokens;

int64_t TokensOf(const FairShares& shares, int32_t index) {
  return shares.competing().at(static_cast<size_t>(index)).served / TenantEntry{}.CostOf(1);
}

TEST(FairSharesTest, NobodyCompetesAlone) {
  FairShares shares;
  const int32_t a = shares.Enter("a", 1);
  EXPECT_TRUE(shares.competing().empty());
  const int32_t b = shares.Enter("b", 1);
  EXPECT_NE(a, b);
  EXPECT_EQ(shares.competing().size(), 2u);
  shares.Leave(b);
  EXPECT_TRUE(shares.competing().empty());
  EXPECT_EQ(shares.Enter("b", 1), b);
  EXPECT_EQ(shares.competing().size(), 2u);
}

TEST(FairSharesTest, CountsWhatIsComputedOverTheWeight) {
  FairShares shares;
  const int32_t a = shares.Enter("a", 1);
  const int32_t b = shares.Enter("b", 4);
  shares.Charge(a, 100);
  shares.Charge(b, 100);
  EXPECT_EQ(TokensOf(shares, a), 100);
  EXPECT_EQ(TokensOf(shares, b), 25);
}

// b was away while a had a million tokens: it comes first for kMostLagTokens, not for a million.
TEST(FairSharesTest, AnIdleTenantSavesNothingUp) {
  FairShares shares;
  const int32_t a = shares.Enter("a", 1);
  shares.Charge(a, 1'000'000);
  const int32_t b = shares.Enter("b", 1);
  EXPECT_EQ(TokensOf(shares, b), 1'000'000 - kLag);
  shares.Charge(a, 1'000'000);
  shares.Enter("b", 1);  // one that comes while others wait does not lose its turn for it either
  EXPECT_EQ(TokensOf(shares, b), 2'000'000 - kLag);
}

// a had the engine to itself, one request at a time: what it was given in b's absence is not b's
// to have first.
TEST(FairSharesTest, WhatATenantHadAloneDoesNotPutItBehindNewcomers) {
  FairShares shares;
  const int32_t a = shares.Enter("a", 1);
  shares.Charge(a, 1'000'000);
  shares.Leave(a);
  const int32_t b = shares.Enter("b", 1);
  shares.Enter("a", 1);
  EXPECT_LE(TokensOf(shares, a) - TokensOf(shares, b), kLag);
  // And by turns, one of them there at a time.
  shares.Leave(a);
  for (int i = 0; i < 10; ++i) {
    shares.Charge(b, 50'000);
    shares.Leave(b);
    const int32_t c = shares.Enter("c", 1);
    shares.Enter("b", 1);
    EXPECT_LE(TokensOf(shares, b) - TokensOf(shares, c), kLag);
    shares.Leave(c);
  }
}

// low decodes, which is never refused: far ahead of waits, which lacks. Who comes is not put behind
// waits for that, nor is waits when it sends more.
TEST(FairSharesTest, OneThatRunsAheadPutsNobodyBehindThoseThatWait) {
  FairShares shares;
  const int32_t low = shares.Enter("low", 0.01);
  const int32_t waits = shares.Enter("waits", 1);
  shares.Charge(low, 10'000);
  shares.Charge(waits, 500'000);
  shares.SetLacking({false, true});
  const int32_t comes = shares.Enter("comes", 1);
  EXPECT_EQ(TokensOf(shares, comes), 500'000 - kLag);
  shares.Enter("waits", 1);
  EXPECT_EQ(TokensOf(shares, waits), 500'000);
  EXPECT_EQ(TokensOf(shares, low), 1'000'000);
}

// little has all that it asks for: what bulk has had meanwhile is nobody's to save up.
TEST(FairSharesTest, OneThatAsksForLittleGivesOthersNoCredit) {
  FairShares shares;
  const int32_t little = shares.Enter("little", 1);
  const int32_t bulk = shares.Enter("bulk", 1);
  shares.Charge(little, 1000);
  shares.Charge(bulk, 500'000);
  shares.SetLacking({false, true});
  const int32_t comes = shares.Enter("comes", 1);
  EXPECT_EQ(TokensOf(shares, comes), 500'000 - kLag);
  shares.Enter("little", 1);
  EXPECT_EQ(TokensOf(shares, little), 500'000 - kLag);
}

// Each is as far behind as the first, however many come one after the other.
TEST(FairSharesTest, NewcomersDoNotGetAheadOfOneAnother) {
  FairShares shares;
  const int32_t bulk = shares.Enter("bulk", 1);
  shares.Charge(bulk, 500'000);
  std::vector<bool> lacking = {true};
  for (const char* name : {"a", "b", "c"}) {
    const int32_t index = shares.Enter(name, 1);
    EXPECT_EQ(TokensOf(shares, index), 500'000 - kLag);
    lacking.push_back(true);
    shares.SetLacking(lacking);
  }
}

TEST(FairSharesTest, ComingBackDoesNotWipeOutWhatWasHad) {
  FairShares shares;
  const int32_t a = shares.Enter("a", 1);
  const int32_t b = shares.Enter("b", 1);
  shares.Charge(a, 500);
  shares.Leave(a);
  shares.Enter("a", 1);
  EXPECT_EQ(TokensOf(shares, a), 500);
  EXPECT_EQ(TokensOf(shares, b), 0);
}

// Who has none has no part of the cache (see Plan).
TEST(FairSharesTest, SaysWhoHasRequests) {
  FairShares shares;
  const int32_t a = shares.Enter("a", 1);
  shares.Enter("b", 1);
  shares.Enter("c", 1);
  shares.Enter("a", 1);
  const auto has = [&](int32_t index) { return shares.competing()[index].has_requests; };
  shares.Leave(a);
  EXPECT_TRUE(has(a));
  shares.Leave(a);
  EXPECT_FALSE(has(a));
  EXPECT_TRUE(has(1) && has(2));
  shares.Enter("a", 1);
  EXPECT_TRUE(has(a));
}

TEST(FairSharesTest, ForeseesWhatATenantWillHaveBeenServed) {
  FairShares shares;
  const int32_t a = shares.Enter("a", 2);
  shares.Charge(a, 100);
  EXPECT_EQ(shares.ServedAfter(a, 0), TenantEntry{}.CostOf(50));
  EXPECT_EQ(shares.ServedAfter(a, 30), TenantEntry{}.CostOf(65));
  shares.Charge(a, 30);
  EXPECT_EQ(shares.ServedAfter(a, 0), TenantEntry{}.CostOf(65));
}

}  // namespace
}  // namespace refrain::engine
