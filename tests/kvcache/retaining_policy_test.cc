#include "kvcache/retaining_policy.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace refrain::kvcache {
namespace {

NodeId N(int32_t id) { return NodeId{id}; }

class RetainingPolicyTest : public ::testing::Test {
 protected:
  // "lru" with a quarter of 8 chunks for retained ones.
  RetainingPolicyTest() : policy_(*MakeEvictionPolicy("lru", 8)) {}

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
