#include "engine/admission_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <random>
#include <utility>
#include <vector>

#include "tests/engine/scheduler_snapshots.h"

namespace refrain::engine {
namespace {

// All that are named, in their order.
std::vector<uint64_t> Named(const SchedulerSnapshot& snapshot,
                            const std::vector<const WaitingEntry*>* some = nullptr) {
  AdmissionOrder order(snapshot, some);
  order.set_passing_room(
      {snapshot.limits, static_cast<int32_t>(snapshot.running.size()), snapshot.free_chunks});
  std::vector<uint64_t> ids;
  while (const WaitingEntry* next = order.Next())
    ids.push_back(static_cast<uint64_t>(next->sequence));
  EXPECT_EQ(order.Next(), nullptr);
  return ids;
}

// What clients send who order by time, and the ends of what they can.
constexpr int64_t kFarPriorities[] = {INT64_MIN,         INT64_MIN + 1,          -1'764'500'000'000,
                                      INT32_MIN,         INT32_MAX + int64_t{1}, 1'764'500'000'000,
                                      1'764'500'000'001, INT64_MAX - 1,          INT64_MAX};

SchedulerSnapshot RandomSnapshot(std::mt19937* random, Policy policy, size_t num_waiting) {
  const auto below = [random](uint32_t n) { return static_cast<int32_t>((*random)() % n); };
  SchedulerSnapshot s = Snapshot(below(2) * below(2000));
  s.limits.policy = policy;
  s.limits.max_sequences = 1 + below(300);
  s.limits.step_token_budget = 2048;
  s.limits.ageing_steps = s.limits.grouping_delay_steps = 100;
  s.step = 1000;
  int64_t since_step = s.step - 150;
  const bool are_far = below(2) == 0;
  for (uint64_t id = 1; id <= num_waiting; ++id) {
    WaitingEntry entry = Waiting(id, 0, 1 + below(60));
    entry.shared_tokens = below(2) * below(static_cast<uint32_t>(entry.prefill_tokens));
    entry.idle_chunks = below(3);
    entry.priority = are_far ? kFarPriorities[below(std::size(kFarPriorities))] : below(5) - 2;
    entry.held = below(4) == 0;
    entry.shares_running = below(5) == 0;
    entry.since_step = since_step = std::min(s.step, since_step + below(3));
    s.waiting.push_back(entry);
  }
  return s;
}

// More waiting than the best that are kept of one look at all, so that several looks follow.
TEST(AdmissionOrderTest, RanksAreThoseOfASortBehindTheAged) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const Policy policy = round % 2 == 0 ? Policy::kPriority : Policy::kLongestPrefix;
    const SchedulerSnapshot s = RandomSnapshot(&random, policy, random() % 600);
    std::vector<WaitingEntry> sorted(s.waiting.begin(), s.waiting.end());
    const auto aged = std::find_if(sorted.begin(), sorted.end(), [&](const WaitingEntry& entry) {
      return s.step - entry.since_step < s.limits.ageing_steps;
    });
    const auto end =
        std::remove_if(aged, sorted.end(), [](const WaitingEntry& entry) { return entry.held; });
    std::stable_sort(aged, end, [&](const WaitingEntry& a, const WaitingEntry& b) {
      return policy == Policy::kPriority ? a.priority < b.priority
                                         : a.shared_tokens > b.shared_tokens;
    });
    std::vector<uint64_t> expected;
    for (auto one = sorted.begin(); one != end; ++one) {
      expected.push_back(static_cast<uint64_t>(one->sequence));
    }
    ASSERT_EQ(Named(s), expected) << "round " << round;
    const auto place = [&](uint64_t id) {
      return std::pair(AdmissionOrder::RankOf(s.waiting[id - 1], s), id);
    };
    ASSERT_TRUE(std::is_sorted(expected.begin(), expected.end(),
                               [&](uint64_t a, uint64_t b) { return place(a) < place(b); }))
        << "round " << round;
  }
}

// Under kFcfs: the aged, then those that share, as far as they may, then the others; each once.
TEST(AdmissionOrderTest, AllAreNamedOnceAndNoneIsPassedByWhoDoesNotShare) {
  std::mt19937 random(2);
  int passing = 0;
  for (int round = 0; round < 300; ++round) {
    const SchedulerSnapshot s = RandomSnapshot(&random, Policy::kFcfs, random() % 600);
    const std::vector<uint64_t> named = Named(s);
    std::vector<uint64_t> sorted = named;
    std::sort(sorted.begin(), sorted.end());
    ASSERT_EQ(sorted.size(), s.waiting.size());
    for (size_t i = 0; i < sorted.size(); ++i) ASSERT_EQ(sorted[i], i + 1);
    const auto entry = [&](uint64_t id) -> const WaitingEntry& { return s.waiting[id - 1]; };
    uint64_t last_other = 0, last_sharing = 0;
    for (const uint64_t id : named) {
      const bool aged = s.step - entry(id).since_step >= s.limits.grouping_delay_steps;
      uint64_t* const last = entry(id).shares_running && !aged ? &last_sharing : &last_other;
      ASSERT_GT(id, aged ? std::max(last_other, last_sharing) : *last) << "round " << round;
      *last = id;
    }
    passing += std::is_sorted(named.begin(), named.end()) ? 0 : 1;
  }
  EXPECT_GT(passing, 50);
}

// Those that share come first only among the first 256 that have not aged.
TEST(AdmissionOrderTest, WhoSharesPassesNoMoreThanAWindow) {
  SchedulerSnapshot s = Snapshot(100'000);
  s.limits.max_sequences = s.limits.step_token_budget = 10'000;
  for (uint64_t id = 1; id <= 300; ++id) s.waiting.push_back(Waiting(id, 0, 1));
  s.waiting[255].shares_running = s.waiting[256].shares_running = true;
  const std::vector<uint64_t> named = Named(s);
  EXPECT_EQ(named[0], 256u);
  EXPECT_EQ(named[1], 1u);
  EXPECT_EQ(named[256], 257u) << "in its own place";
}

// As if the others did not wait.
TEST(AdmissionOrderTest, SomeAreOrderedAsIfTheyWereAll) {
  std::mt19937 random(3);
  for (const Policy policy : {Policy::kFcfs, Policy::kPriority, Policy::kLongestPrefix}) {
    for (int round = 0; round < 100; ++round) {
      const SchedulerSnapshot s = RandomSnapshot(&random, policy, random() % 300);
      SchedulerSnapshot few = s;
      few.waiting.clear();
      std::vector<const WaitingEntry*> some;
      for (const WaitingEntry& entry : s.waiting) {
        if (random() % 3 != 0) continue;
        some.push_back(&entry);
        few.waiting.push_back(entry);
      }
      ASSERT_EQ(Named(s, &some), Named(few)) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace refrain::engine
