// What it costs AwaitingPolicy that sequences wait in many lines (API keys).

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
