#include "kvcache/reuse_statistics.h"

#include <gtest/gtest.h>

#include <deque>
#include <utility>
#include <vector>

namespace refrain::kvcache {
namespace {

TEST(ReuseStatistics, EveryAgeIsInTheBucketThatBeginsBeforeIt) {
  for (int64_t age = 0; age < 40000; ++age) {
    const int bucket = ReuseStatistics::Bucket(age);
    ASSERT_LE(ReuseStatistics::BucketBegin(bucket), age);
    if (bucket + 1 < ReuseStatistics::kBuckets) {
      ASSERT_GT(ReuseStatistics::BucketBegin(bucket + 1), age);
    }
  }
}

TEST(ReuseStatistics, ClassesDoNotOverlap) {
  EXPECT_EQ(ReuseStatistics::ContinuedClass(0, 0), 0);
  EXPECT_LT(ReuseStatistics::ContinuedClass(1000, int64_t{1} << 40),
            ReuseStatistics::AbandonedClass(1));
  EXPECT_LT(ReuseStatistics::AbandonedClass(1000), ReuseStatistics::kClasses);
}

// Nothing was seen: as LRU has it.
TEST(ReuseStatistics, AtFirstTheRateFallsWithAge) {
  const ReuseStatistics statistics;
  for (int bucket = 9; bucket + 1 < ReuseStatistics::kBuckets; ++bucket) {
    EXPECT_LE(statistics.Rate(0, bucket), statistics.Rate(0, bucket - 1)) << bucket;
  }
  EXPECT_LT(statistics.Rate(ReuseStatistics::AbandonedClass(1), 3), statistics.Rate(0, 3));
}

// Every lineage is continued 20 requests later: at 16 it is worth more than just after its turn,
// and at 64 hardly anything.
TEST(ReuseStatistics, LearnsThatTheNextTurnTakesItsTime) {
  ReuseStatistics statistics;
  std::vector<std::pair<ReuseStatistics::Watch, int64_t>> waiting;
  for (int i = 0; i < 2000; ++i) {
    statistics.RequestJoined();
    if (waiting.size() == 20) {
      statistics.Continued(waiting.front().first, 0, waiting.front().second);
      waiting.erase(waiting.begin());
    }
    waiting.emplace_back(statistics.Begin(0), statistics.now());
  }
  const auto rate = [&](int64_t age) { return statistics.Rate(0, ReuseStatistics::Bucket(age)); };
  EXPECT_GT(rate(16), 1.5 * rate(2));
  EXPECT_LT(rate(64), rate(16) / 3);
}

// 100,000 requests of conversations that come back after 100, then 10,000 that come back after 5:
// what is 50 old is worth keeping before, and not afterwards.
TEST(ReuseStatistics, WhatIsAskedOfAServerChanges) {
  ReuseStatistics statistics;
  std::deque<std::pair<ReuseStatistics::Watch, int64_t>> waiting;
  const auto play = [&](int requests, size_t until_next_turn) {
    for (int i = 0; i < requests; ++i) {
      statistics.RequestJoined();
      while (waiting.size() >= until_next_turn) {
        statistics.Continued(waiting.front().first, 0, waiting.front().second);
        waiting.pop_front();
      }
      waiting.emplace_back(statistics.Begin(0), statistics.now());
    }
  };
  const auto rate = [&](int64_t age) { return statistics.Rate(0, ReuseStatistics::Bucket(age)); };
  play(100'000, 100);
  EXPECT_GT(rate(50), rate(2));
  play(10'000, 5);
  EXPECT_GT(rate(2), 4 * rate(50));
}

// Copies for the beams of a search begin lineages without a request.
TEST(ReuseStatistics, WhatItKeepsGrowsWithRequestsNotWithLineages) {
  ReuseStatistics statistics;
  for (int request = 0; request < 10; ++request) {
    statistics.RequestJoined();
    for (int i = 0; i < 100'000; ++i) {
      statistics.Begin(i % 3);
      statistics.Begin(3);
    }
  }
  EXPECT_EQ(statistics.num_watches(), 10u * 4);
}

// Of ten that begin together one comes back after five requests, or nine do.
TEST(ReuseStatistics, CountsEachOfThoseThatBeganTogether) {
  const auto rate_after = [](int continued) {
    ReuseStatistics statistics;
    std::deque<std::vector<ReuseStatistics::Watch>> waiting;
    for (int request = 0; request < 500; ++request) {
      statistics.RequestJoined();
      if (waiting.size() == 5) {
        for (int i = 0; i < continued; ++i) {
          statistics.Continued(waiting.front()[static_cast<size_t>(i)], 0, statistics.now() - 5);
        }
        waiting.pop_front();
      }
      std::vector<ReuseStatistics::Watch>& watches = waiting.emplace_back();
      for (int i = 0; i < 10; ++i) watches.push_back(statistics.Begin(0));
    }
    return statistics.Rate(0, ReuseStatistics::Bucket(4));
  };
  EXPECT_LT(rate_after(1), 0.1);
  EXPECT_GT(rate_after(9), 0.3);
}

TEST(ReuseStatistics, TailsOfPromptsAndAnswersAreApart) {
  ReuseStatistics statistics;
  for (int i = 0; i < 20; ++i) {
    statistics.TailSeen(false, false);
    statistics.TailSeen(true, true);
  }
  EXPECT_LT(statistics.TailShare(false), 0.1);
  EXPECT_GT(statistics.TailShare(true), 0.9);
}

}  // namespace
}  // namespace refrain::kvcache
