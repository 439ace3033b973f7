// How much sequences may await (AwaitingPolicy), and what it costs that they wait in many lines
// (API keys).

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "kvcache/eviction_policy.h"
#include "tests/kvcache/steady_line.h"

namespace refrain::kvcache {
namespace {

using ::refrain::testing::SteadyLine;

NodeId N(int32_t id) { return NodeId{id}; }
SequenceId S(int32_t id) { return SequenceId{static_cast<uint64_t>(id)}; }

// Six chunks may be awaited.
class AwaitedChunksTest : public ::testing::Test {
 protected:
  // The chunks first, first + 1, ..., each the child of the one before.
  void InsertLineage(int32_t first, int32_t last) {
    for (int32_t id = first; id <= last; ++id) {
      policy_->Inserted(N(id), {.tokens = 64, .parent = N(id == first ? 100 : id - 1)});
    }
    policy_->Idle(N(last));
  }

  const std::unique_ptr<EvictionPolicy> policy_ = *MakeEvictionPolicy("lru", 8);
};

// Three of who comes second, and four of who comes first.
TEST_F(AwaitedChunksTest, OneTooManyIsTooMany) {
  InsertLineage(1, 3);
  InsertLineage(4, 7);
  InsertLineage(10, 10);
  policy_->Await(S(2), {}, N(3));
  policy_->Await(S(1), {}, N(7));
  EXPECT_EQ(policy_->Victim(), N(3)) << "older than 10, and awaited no more";
}

// The third in the queue finds no room. Then what the fourth awaits becomes idle, so that it gives
// up for the third.
TEST_F(AwaitedChunksTest, WhoComesLastIsNotWhoWasBeforeOthersCame) {
  InsertLineage(1, 3);
  InsertLineage(4, 5);
  InsertLineage(6, 7);
  InsertLineage(10, 10);
  policy_->Await(S(1), {}, N(3));
  policy_->Busy(N(5));
  policy_->Await(S(4), {}, N(5));
  policy_->Await(S(3), {}, N(7));
  policy_->Idle(N(5));
  policy_->Await(S(3), {}, N(7));
  EXPECT_EQ(policy_->Victim(), N(5)) << "older than 10, and awaited no more";
}

// Many lines have filled what may be awaited, and as many sequences more come to wait behind them,
// and ask again in every plan.
TEST(AwaitingPolicyLinesTest, ThoseForWhomThereIsNoRoomAskNotEveryLine) {
  constexpr int32_t kLines = 900;
  const auto policy = MakeEvictionPolicy("lru", kLines / 3 * 4);
  ASSERT_TRUE(policy.ok());
  std::deque<SteadyLine> lines;
  for (int32_t i = 0; i < 2 * kLines; ++i) {
    const SteadyLine& line = lines.emplace_back(i, 1);
    (*policy)->Inserted(N(i), {.tokens = 64, .parent = N(5000)});
    (*policy)->Idle(N(i));
    if (i < kLines) (*policy)->Await(S(i), {.line = &line}, N(i));
  }
  for (const SteadyLine& line : lines) line.questions = 0;
  for (int plan = 0; plan < 3; ++plan) {
    (*policy)->RequestJoined();
    for (int32_t i = kLines; i < 2 * kLines; ++i) {
      const SteadyLine& line = lines[static_cast<size_t>(i)];
      (*policy)->Await(S(i), {.line = &line}, N(i));
    }
  }
  int64_t questions = 0;
  for (const SteadyLine& line : lines) questions += line.questions;
  EXPECT_LT(questions, 3 * 4 * kLines);
  // Once turns have changed, those that wait are told from those that come later.
  lines[0].Delay(10 * kLines);
  (*policy)->RequestJoined();
  (*policy)->Await(S(kLines), {.line = &lines[kLines]}, N(kLines));
  std::vector<int32_t> order;
  while (const auto victim = (*policy)->Victim()) {
    order.push_back(static_cast<int32_t>(*victim));
    (*policy)->Evicted(*victim);
  }
  ASSERT_EQ(order.size(), size_t{2 * kLines});
  EXPECT_EQ(order[kLines], kLines);  // the only one of the others that is awaited
  EXPECT_NE(std::find(order.begin(), order.begin() + kLines, 0), order.begin() + kLines);
}

}  // namespace
}  // namespace refrain::kvcache
