#include "kvcache/retaining_policy.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/kvcache/cache_harness.h"

namespace refrain::kvcache {
namespace {

NodeId N(int32_t id) { return NodeId{id}; }

class RetainingPolicyTest : public ::testing::Test {
 protected:
  // "lru" with a quarter of 8 chunks for retained ones.
  RetainingPolicyTest() : policy_(*MakeEvictionPolicy("lru", 8)) {}

  void InsertInUse(int32_t id, int32_t parent) {
    policy_->Inserted(N(id), {.tokens = 64, .parent = N(parent)});
    policy_->Retain(N(id));
  }

  void InsertIdle(int32_t id, bool retained) {
    policy_->Inserted(N(id), {.tokens = 64});
    if (retained) policy_->Retain(N(id));
    policy_->Idle(N(id));
  }

  std::vector<int32_t> EvictAll() {
    std::vector<int32_t> order;
    while (const auto victim = policy_->Victim()) {
      order.push_back(static_cast<int32_t>(*victim));
      policy_->Evicted(*victim);
    }
    return order;
  }

  std::unique_ptr<EvictionPolicy> policy_;
};

TEST_F(RetainingPolicyTest, EvictsWhatIsRetainedLast) {
  InsertIdle(1, true);
  InsertIdle(2, false);
  InsertIdle(3, true);
  InsertIdle(4, false);
  EXPECT_EQ(EvictAll(), (std::vector<int32_t>{2, 4, 1, 3}));
}

// The hint is worth a quarter of the pool, whoever gives it how often.
TEST_F(RetainingPolicyTest, GivesUpTheOldestBeyondItsShare) {
  for (int32_t id = 1; id <= 4; ++id) InsertIdle(id, true);
  InsertIdle(5, false);
  EXPECT_EQ(EvictAll(), (std::vector<int32_t>{1, 2, 5, 3, 4}));
}

// It has an answer behind it that is still cached: only hits tell that it is used.
TEST_F(RetainingPolicyTest, AHitIsAUseAlsoWhereTheEndOfTheLineageIsNotIdle) {
  InsertInUse(1, 100);
  InsertInUse(2, 100);
  policy_->Hit(N(1));
  InsertInUse(3, 100);
  for (const int32_t id : {1, 2, 3}) policy_->Idle(N(id));
  EXPECT_EQ(EvictAll(), (std::vector<int32_t>{2, 1, 3}));
}

// A chunk with others behind it is never idle, and counts all the same.
TEST_F(RetainingPolicyTest, CountsTheWholeLineageAndGivesItUpFromItsEnd) {
  policy_ = *MakeEvictionPolicy("lru", 16);  // four retained ones
  for (int32_t id = 1; id <= 3; ++id) InsertInUse(id, id == 1 ? 100 : id - 1);
  policy_->Idle(N(3));
  InsertIdle(10, false);
  EXPECT_EQ(policy_->Victim(), N(10));
  for (int32_t id = 4; id <= 6; ++id) InsertInUse(id, id == 4 ? 100 : id - 1);
  policy_->Idle(N(6));
  // Two too many: the older lineage's end is everybody's now, and the chunk before it.
  for (const int32_t id : {3, 2}) {
    EXPECT_EQ(policy_->Victim(), N(id));
    policy_->Evicted(N(id));
    policy_->Idle(N(id - 1));
  }
  EXPECT_EQ(policy_->Victim(), N(10));
}

TEST_F(RetainingPolicyTest, OfALineageLongerThanItsShareTheBeginningIsRetained) {
  for (int32_t id = 1; id <= 4; ++id) InsertInUse(id, id - 1);
  policy_->Idle(N(4));
  InsertIdle(9, false);
  EXPECT_EQ(policy_->Victim(), N(4));
  policy_->Evicted(N(4));
  policy_->Idle(N(3));
  EXPECT_EQ(policy_->Victim(), N(3));
  policy_->Evicted(N(3));
  policy_->Idle(N(2));
  EXPECT_EQ(policy_->Victim(), N(9));
}

// Whoever asks for every prompt to be kept gets a quarter of the pool, and no more than that.
TEST(RetainingPolicyInCacheTest, PromptsOfManyChunksTakeNoMoreThanTheirShare) {
  testing::LetterHarness h(40);
  const auto run = [&h](uint64_t id, char first, int32_t chunks, bool retain) {
    h.Run(id, std::string(1, first) + std::string(static_cast<size_t>(chunks) * 4 - 1, 'x'));
    if (retain) h.cache->Retain(SequenceId{id});
    h.Leave(id);
  };
  for (uint64_t i = 0; i < 6; ++i) run(1 + i, static_cast<char>('a' + i), 5, true);
  run(7, 'A', 5, false);
  const auto cached = [&h](char first) {
    return h.Match(testing::CellsOf(std::string(1, first) + std::string(19, 'x'))).num_tokens;
  };
  run(8, 'B', 10, false);  // five free ones, five others
  EXPECT_EQ(cached('a'), 0);
  run(9, 'C', 5, false);
  EXPECT_EQ(cached('b'), 0);
  run(10, 'D', 10, false);
  EXPECT_EQ(cached('c'), 0);
  EXPECT_EQ(cached('d'), 0);
  EXPECT_EQ(cached('A'), 20);
  // Among a quarter of the pool the hint counts.
  run(11, 'E', 10, false);
  EXPECT_EQ(cached('A'), 0);
  EXPECT_EQ(cached('e'), 20);
  EXPECT_EQ(cached('f'), 20);
  h.CheckAll();
}

TEST_F(RetainingPolicyTest, AChunkThatIsUsedAgainBecomesTheYoungest) {
  InsertIdle(1, true);
  InsertIdle(2, true);
  policy_->Busy(N(1));
  policy_->Idle(N(1));
  InsertIdle(3, false);
  EXPECT_EQ(EvictAll(), (std::vector<int32_t>{3, 2, 1}));
}

TEST_F(RetainingPolicyTest, ForgetsTheHintWithTheChunk) {
  InsertIdle(1, true);
  policy_->Dropped(N(1));
  InsertIdle(1, false);  // node ids are used again
  InsertIdle(2, false);
  EXPECT_EQ(EvictAll(), (std::vector<int32_t>{1, 2}));
}

// An operator drops a prompt: its chunks go although no policy named them.
TEST_F(RetainingPolicyTest, LetsARetainedChunkGoThatItDidNotName) {
  for (const char* inner : {"lru", "s3fifo", "reuse_rate"}) {
    policy_ = *MakeEvictionPolicy(inner, 8);
    policy_->RequestJoined();
    InsertIdle(1, true);
    InsertIdle(2, true);
    InsertIdle(3, false);
    policy_->Evicted(N(2));
    EXPECT_EQ(EvictAll(), (std::vector<int32_t>{3, 1})) << inner;
    InsertIdle(2, false);  // node ids are used again
    EXPECT_EQ(EvictAll(), (std::vector<int32_t>{2})) << inner;
  }
}

}  // namespace
}  // namespace refrain::kvcache
