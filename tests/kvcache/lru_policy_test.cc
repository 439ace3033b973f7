#include <gtest/gtest.h>

#include "kvcache/eviction_policy.h"

namespace refrain::kvcache {
namespace {

std::unique_ptr<EvictionPolicy> Lru() { return *MakeEvictionPolicy("lru", 8); }

TEST(LruPolicyTest, NamesNobodyWhenNothingIsIdle) {
  const auto policy = Lru();
  policy->Inserted(NodeId{0}, {});
  EXPECT_EQ(policy->Victim(), std::nullopt);
  policy->Idle(NodeId{0});
  EXPECT_EQ(policy->Victim(), NodeId{0});
  policy->Busy(NodeId{0});
  EXPECT_EQ(policy->Victim(), std::nullopt);
}

// Chunk 5 is the older one; then 3 is, for 5 has grown; then 5, for 3 was hit.
TEST(LruPolicyTest, NamesTheChunkWrittenOrHitLongestAgo) {
  const auto policy = Lru();
  const auto victim = [&] {
    for (const int32_t id : {3, 5}) policy->Idle(NodeId{id});
    const std::optional<NodeId> named = policy->Victim();
    for (const int32_t id : {3, 5}) policy->Busy(NodeId{id});
    return named;
  };
  policy->Inserted(NodeId{5}, {});
  policy->Inserted(NodeId{3}, {});
  EXPECT_EQ(victim(), NodeId{5});
  policy->Changed(NodeId{5}, {});
  EXPECT_EQ(victim(), NodeId{3});
  policy->RequestJoined();
  policy->Hit(NodeId{3});
  EXPECT_EQ(victim(), NodeId{5});
}

// An id that comes again is another chunk.
TEST(LruPolicyTest, ForgetsWhatIsGone) {
  const auto policy = Lru();
  for (const int32_t id : {0, 1}) policy->Inserted(NodeId{id}, {});
  for (const int32_t id : {0, 1}) policy->Idle(NodeId{id});
  policy->Evicted(NodeId{0});
  EXPECT_EQ(policy->Victim(), NodeId{1});
  policy->Inserted(NodeId{0}, {});
  policy->Idle(NodeId{0});
  EXPECT_EQ(policy->Victim(), NodeId{1});
  policy->Dropped(NodeId{1});
  EXPECT_EQ(policy->Victim(), NodeId{0});
}

TEST(LruPolicyTest, AnUnknownPolicyIsRefusedByName) {
  EXPECT_NE(MakeEvictionPolicy("fifo", 8).status().message().find("\"fifo\""), std::string::npos);
}

}  // namespace
}  // namespace refrain::kvcache
