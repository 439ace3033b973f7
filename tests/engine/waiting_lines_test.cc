#include "engine/waiting_lines.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/cpu_time.h"
#include "tests/support/random_steps.h"
#include "tests/support/slow_build.h"

namespace refrain::engine {
namespace {

SequenceId S(uint64_t id) { return SequenceId{id}; }

class WaitingLinesTest : public ::testing::Test {
 protected:
  // One tenant of each weight; nobody has been served.
  std::vector<int32_t> Tenants(const std::vector<double>& weights) {
    std::vector<int32_t> indexes;
    for (size_t i = 0; i < weights.size(); ++i) {
      indexes.push_back(shares_.Enter(std::to_string(i), weights[i]));
    }
    return indexes;
  }
  void Wait(uint64_t id, int32_t tenant, int64_t rank = 0, int32_t tokens = 100) {
    places_[id] = lines_.Place(S(id), tenant, rank, tokens);
  }
  void Leave(uint64_t id) {
    lines_.Remove(S(id));
    places_.erase(id);
  }
  int64_t TurnOf(uint64_t id) const {
    const kvcache::WaitingPlace& place = places_.at(id);
    return place.line->TurnOf(place.rank, S(id));
  }
  // Of all that wait, by turn.
  std::vector<uint64_t> Order() const {
    std::vector<std::pair<int64_t, uint64_t>> turns;
    for (const auto& [id, place] : places_) turns.emplace_back(TurnOf(id), id);
    std::sort(turns.begin(), turns.end());
    std::vector<uint64_t> order;
    for (const auto& [turn, id] : turns) order.push_back(id);
    return order;
  }

  FairShares shares_;
  WaitingLines lines_{&shares_};
  std::map<uint64_t, kvcache::WaitingPlace> places_;
};

TEST_F(WaitingLinesTest, InALineRankComesBeforeAge) {
  const int32_t a = Tenants({1})[0];
  for (const uint64_t id : {1, 2, 3, 4}) Wait(id, a);
  Wait(5, a, INT64_MIN);
  Wait(3, a, INT32_MAX + int64_t{1});
  EXPECT_EQ(Order(), (std::vector<uint64_t>{5, 1, 2, 4, 3}));
  Leave(1);
  lines_.Remove(S(77));
  EXPECT_EQ(Order(), (std::vector<uint64_t>{5, 2, 4, 3}));
}

// The choices of a request, some of which have aged; another stands between them.
TEST_F(WaitingLinesTest, SeveralLeaveAtOnce) {
  const int32_t a = Tenants({1})[0];
  for (uint64_t id = 1; id <= 9; ++id) Wait(id, a, id % 2 == 0 ? -1 : 0);
  const std::vector<SequenceId> gone = {S(3), S(8), S(77), S(7), S(6)};
  lines_.Remove(gone);
  for (const SequenceId id : gone) places_.erase(static_cast<uint64_t>(id));
  EXPECT_EQ(Order(), (std::vector<uint64_t>{2, 4, 1, 5, 9}));
  EXPECT_EQ(TurnOf(9), TenantEntry{}.CostOf(400));
  lines_.Remove(std::vector<SequenceId>{S(1), S(2), S(4), S(5)});
  EXPECT_EQ(TurnOf(9), 0);
}

// Of two tenants with equal shares, one with many requests and one with three.
TEST_F(WaitingLinesTest, LinesTakeTurns) {
  const std::vector<int32_t> tenants = Tenants({1, 1});
  const int32_t a = tenants[0], b = tenants[1];
  for (uint64_t id = 1; id <= 5; ++id) Wait(id, a);
  for (uint64_t id = 11; id <= 13; ++id) Wait(id, b);
  EXPECT_EQ(Order(), (std::vector<uint64_t>{1, 11, 2, 12, 3, 13, 4, 5}));
  shares_.Charge(b, 250);
  EXPECT_EQ(Order().front(), 1u);
  EXPECT_EQ(Order()[3], 11u);
}

// What weighs twice as much, and takes twice as much, has its turns as often.
TEST_F(WaitingLinesTest, WeightsAndTokensDecideHowSoonTurnsCome) {
  const std::vector<int32_t> tenants = Tenants({1, 2});
  for (uint64_t id = 1; id <= 4; ++id) {
    Wait(id, tenants[0], 0, id % 2 == 0 ? 90 : 110);
    Wait(10 + id, tenants[1], 0, 200);
    Wait(20 + id, tenants[1], 1, 200);
  }
  for (const uint64_t line : {0, 10}) {
    EXPECT_EQ(TurnOf(line + 1), 0);
    EXPECT_EQ(TurnOf(line + 4), TenantEntry{}.CostOf(300));
  }
  EXPECT_EQ(TurnOf(24), TenantEntry{}.CostOf(700));
}

// Tenants of random weights whose sequences take about what was said, served as plans do: always
// the one that was served least. Who was to come last is among the last half that came.
TEST_F(WaitingLinesTest, WhoComesLastIsForeseen) {
  std::mt19937 random(testing::RandomSeed(1));
  std::vector<int32_t> tenants;
  std::vector<std::vector<uint64_t>> waiting;
  uint64_t next_id = 1;
  for (int i = 0; i < 8; ++i) {
    tenants.push_back(shares_.Enter(std::to_string(i), 0.5 * (1 + random() % 6)));
    waiting.emplace_back();
  }
  std::vector<int32_t> means;
  for (size_t i = 0; i < tenants.size(); ++i)
    means.push_back(static_cast<int32_t>(100 + random() % 1000));
  const auto serve_next = [&]() -> uint64_t {  // 0: nobody waits
    size_t least = tenants.size();
    for (size_t i = 0; i < tenants.size(); ++i) {
      if (waiting[i].empty()) continue;
      if (least == tenants.size() ||
          shares_.ServedAfter(tenants[i], 0) < shares_.ServedAfter(tenants[least], 0)) {
        least = i;
      }
    }
    if (least == tenants.size()) return 0;
    const uint64_t id = waiting[least].front();
    waiting[least].erase(waiting[least].begin());
    Leave(id);
    shares_.Charge(tenants[least],
                   means[least] / 2 + static_cast<int32_t>(random() % means[least]));
    return id;
  };
  const auto come = [&](int requests) {
    for (int k = 0; k < requests; ++k) {
      const size_t i = random() % tenants.size();
      waiting[i].push_back(next_id);
      Wait(next_id++, tenants[i], 0, means[i]);
    }
  };
  for (int round = 0; round < 20; ++round) {
    come(400);
    for (int k = 0; k < 100; ++k) serve_next();
    const std::vector<uint64_t> foreseen = Order();
    std::vector<uint64_t> came;
    while (const uint64_t id = serve_next()) came.push_back(id);
    ASSERT_EQ(came.size(), foreseen.size());
    const auto half = static_cast<ptrdiff_t>(came.size() / 2);
    for (size_t i = came.size() * 9 / 10; i < came.size(); ++i) {
      EXPECT_GE(std::find(came.begin(), came.end(), foreseen[i]) - came.begin(), half) << round;
    }
  }
}

// Under priorities places are taken and left anywhere.
TEST_F(WaitingLinesTest, AThousandTurnsInALongLineTakeNoTime) {
  const int32_t a = Tenants({1})[0];
  std::mt19937 random(1);
  for (uint64_t id = 1; id <= 10'000; ++id) Wait(id, a, static_cast<int32_t>(random() % 1000));
  const std::chrono::nanoseconds begin = testing::ThreadCpuTime();
  int64_t sum = 0;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t id = 1 + random() % 10'000;
    lines_.Remove(S(id));
    Wait(id, a, static_cast<int32_t>(random() % 1000));
    sum += TurnOf(id);
  }
  EXPECT_GT(sum, 0);
  EXPECT_LT(testing::ThreadCpuTime() - begin,
            std::chrono::milliseconds(500) * testing::kSlowBuildFactor);
}

}  // namespace
}  // namespace refrain::engine
