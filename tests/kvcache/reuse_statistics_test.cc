#include "kvcache/reuse_statistics.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
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
  EXPECT_EQ(ReuseStatistics::ContinuedClass(AnswerEnd::kOther, 0, 0), 0);
  const int64_t longest = int64_t{1} << 40;
  EXPECT_LT(ReuseStatistics::ContinuedClass(AnswerEnd::kOther, 1000, longest),
            ReuseStatistics::ContinuedClass(AnswerEnd::kToolCalls, 0, 0));
  EXPECT_LT(ReuseStatistics::ContinuedClass(AnswerEnd::kToolCalls, 1000, longest),
            ReuseStatistics::ContinuedClass(AnswerEnd::kTurn, 0, 0));
  EXPECT_LT(ReuseStatistics::ContinuedClass(AnswerEnd::kBriefTurn, 1000, longest),
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

// Tools take three requests, readers 60: also where so many turns have not been seen before, what
// the answer left to do tells which.
TEST(ReuseStatistics, WhoRunsAToolAndWhoReadsAreApart) {
  ReuseStatistics statistics;
  std::map<AnswerEnd, std::deque<std::pair<ReuseStatistics::Watch, int64_t>>> waiting;
  const std::map<AnswerEnd, size_t> takes = {{AnswerEnd::kToolCalls, 3}, {AnswerEnd::kTurn, 60}};
  for (int i = 0; i < 3000; ++i) {
    statistics.RequestJoined();
    for (const auto& [answer, requests] : takes) {
      const int class_of = ReuseStatistics::ContinuedClass(answer, 0, 0);
      auto& begun = waiting[answer];
      if (begun.size() == requests) {
        statistics.Continued(begun.front().first, class_of, begun.front().second);
        begun.pop_front();
      }
      begun.emplace_back(statistics.Begin(class_of), statistics.now());
    }
  }
  for (const int32_t turns : {0, 5}) {
    const auto rate = [&](AnswerEnd answer, int64_t age) {
      return statistics.Rate(ReuseStatistics::ContinuedClass(answer, turns, 0),
                             ReuseStatistics::Bucket(age));
    };
    EXPECT_GT(rate(AnswerEnd::kToolCalls, 2), 3 * rate(AnswerEnd::kTurn, 2)) << turns;
    EXPECT_LT(rate(AnswerEnd::kToolCalls, 50), rate(AnswerEnd::kTurn, 50)) << turns;
  }
}

// A thousand that left, waited for 20 requests, and ran again before it was known how they ended.
TEST(ReuseStatistics, WhatIsWithdrawnCountsNowhere) {
  for (const bool withdrawn : {true, false}) {
    ReuseStatistics statistics, without;
    std::deque<std::pair<ReuseStatistics::Watch, int64_t>> waiting;
    for (int i = 0; i < 160; ++i) {
      statistics.RequestJoined();
      without.RequestJoined();
      for (int k = 0; i >= 20 && i < 120 && k < 10; ++k) {
        const auto [watch, since] = waiting.front();
        waiting.pop_front();
        if (withdrawn) {
          statistics.Withdraw(watch, 0, since);
        } else {
          statistics.Forget(watch);
        }
      }
      for (int k = 0; i < 100 && k < 10; ++k) {
        waiting.emplace_back(statistics.Begin(0), statistics.now());
      }
    }
    for (int bucket = 0; bucket < 10; ++bucket) {
      const double ratio = statistics.Rate(0, bucket) / without.Rate(0, bucket);
      if (withdrawn) {
        EXPECT_NEAR(ratio, 1, 0.05) << bucket;
      } else {
        EXPECT_LT(ratio, 0.8) << bucket;
      }
    }
  }
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
