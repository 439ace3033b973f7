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

  void InsertInUse(int32_t id, int32_t parent, const char* tenant = "") {
    policy_->Inserted(N(id), {.tokens = 64, .parent = N(parent)});
    policy_->Retain(N(id), tenant);
  }

  void InsertIdle(int32_t id, bool retained, const char* tenant = "") {
    policy_->Inserted(N(id), {.tokens = 64});
    if (retained) policy_->Retain(N(id), tenant);
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

TEST_F(RetainingPolicyTest, WhatIsHitEvenInPartIsNotTheOldest) {
  InsertIdle(1, true);
  InsertIdle(2, true);
  policy_->HitInPart(N(1));
  InsertIdle(3, true);
  InsertIdle(4, false);
  EXPECT_EQ(EvictAll(), (std::vector<int32_t>{2, 4, 1, 3}));
}

TEST_F(RetainingPolicyTest, WhatIsRetainedAgainIsNotTheOldest) {
  InsertInUse(1, 100);
  InsertInUse(2, 101);
  policy_->Retain(N(1), "");
  InsertIdle(3, true);
  for (const int32_t id : {1, 2}) policy_->Idle(N(id));
  InsertIdle(4, false);
  EXPECT_EQ(EvictAll(), (std::vector<int32_t>{2, 4, 1, 3}));
}

TEST_F(RetainingPolicyTest, GivesUpFromTheTenantThatRetainsMost) {
  policy_ = *MakeEvictionPolicy("lru", 16);  // four retained ones
  InsertIdle(1, true, "b");
  for (int32_t id = 2; id <= 9; ++id) InsertIdle(id, true, "a");
  InsertIdle(10, false);
  // Who comes later has its part, too.
  InsertIdle(11, true, "c");
  EXPECT_EQ(EvictAll(), (std::vector<int32_t>{2, 3, 4, 5, 6, 7, 10, 1, 8, 9, 11}));
}

TEST_F(RetainingPolicyTest, OfTenantsThatRetainAsMuchTheOldestGivesUp) {
  policy_ = *MakeEvictionPolicy("lru", 12);  // three retained ones
  InsertIdle(1, true, "b");
  InsertIdle(2, true, "c");
  InsertIdle(3, true, "a");
  policy_->Hit(N(1));
  InsertIdle(4, true, "d");
  InsertIdle(5, false);
  EXPECT_EQ(EvictAll(), (std::vector<int32_t>{2, 5, 3, 1, 4}));
}

// What one tenant retains may go on with what another does: then only the other's has an end.
TEST_F(RetainingPolicyTest, GivesUpAlsoWhereWhoRetainsMostHasNoEnd) {
  policy_ = *MakeEvictionPolicy("lru", 16);  // four retained ones
  for (int32_t id = 1; id <= 3; ++id) InsertInUse(id, id == 1 ? 100 : id - 1, "a");
  policy_->Retain(N(3), "b");  // stays the first one's
  InsertInUse(4, 3, "b");
  policy_->Idle(N(4));
  InsertIdle(9, false);
  InsertIdle(5, true, "c");
  EXPECT_EQ(policy_->Victim(), N(4));
  policy_->Evicted(N(4));
  policy_->Idle(N(3));
  EXPECT_EQ(policy_->Victim(), N(9));
  // Now "a" has one.
  InsertIdle(6, true, "c");
  EXPECT_EQ(policy_->Victim(), N(3));
}

TEST_F(RetainingPolicyTest, AChunkThatTakesAnothersPlaceIsItsTenants) {
  policy_ = *MakeEvictionPolicy("lru", 16);  // four retained ones
  InsertIdle(1, true, "b");
  InsertIdle(2, true, "b");
  InsertIdle(3, true, "a");
  InsertIdle(4, true, "a");
  policy_->Inserted(N(5), {.tokens = 64});
  policy_->Replaced(N(1), N(5));
  policy_->Idle(N(5));
  InsertIdle(6, true, "c");
  InsertIdle(7, false);
  EXPECT_EQ(EvictAll(), (std::vector<int32_t>{2, 7, 3, 4, 5, 6}));
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
    if (retain) h.cache->Retain(SequenceId{id}, "");
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

// The last chunk of "abcdef" has two tokens. Another request's chunk takes its place; what was
// asked for stays asked for.
class RetainedPartOfAChunkTest : public ::testing::Test {
 protected:
  // As the engine does: the last token of a prompt is always computed.
  void StartWithPrompt(uint64_t id) {
    ASSERT_EQ(h_.Join(id, testing::CellsOf("abcde")), id == 1 ? 0 : 5);
    ASSERT_EQ(h_.Grow(id, std::string("abcdef").substr(h_.expected[id].size())), absl::OkStatus());
  }

  void ExpectThatOthersTakeOtherChunks() {
    for (uint64_t i = 10; i < 20; ++i) {
      h_.Run(i, std::string(8, static_cast<char>('A' + i)));
      h_.Leave(i);
    }
    EXPECT_GT(h_.cache->stats().evicted_chunks_total, 0);
    EXPECT_EQ(h_.Match(testing::CellsOf("abcdef")).num_tokens, 6);
    h_.CheckAll();
  }

  testing::LetterHarness h_{12};
};

TEST_F(RetainedPartOfAChunkTest, IsTakenOverByAnEqualOne) {
  StartWithPrompt(1);
  h_.cache->Retain(SequenceId{1}, "");
  h_.Leave(1);
  StartWithPrompt(2);
  h_.Leave(2);
  ExpectThatOthersTakeOtherChunks();
}

TEST_F(RetainedPartOfAChunkTest, IsTakenOverByOneThatGrewWhileItWasInUse) {
  StartWithPrompt(1);
  h_.cache->Retain(SequenceId{1}, "");
  StartWithPrompt(2);
  ASSERT_EQ(h_.Grow(2, "gh"), absl::OkStatus());
  h_.Leave(2);
  h_.Leave(1);
  ExpectThatOthersTakeOtherChunks();
}

TEST_F(RetainedPartOfAChunkTest, IsTakenOverByTheOneThatItIsMergedWith) {
  StartWithPrompt(1);
  ASSERT_EQ(h_.Grow(1, "gh"), absl::OkStatus());
  h_.Leave(1);
  StartWithPrompt(2);
  h_.cache->Retain(SequenceId{2}, "");
  ASSERT_EQ(h_.Grow(2, "gh"), absl::OkStatus());
  h_.Leave(2);
  EXPECT_EQ(h_.cache->stats().merged_chunks_total, 1);
  ExpectThatOthersTakeOtherChunks();
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
