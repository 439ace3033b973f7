#include "kvcache/cache_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kvcache/cache_harness.h"
#include "tests/support/evict_all.h"

namespace refrain::kvcache {
namespace {

using ::refrain::testing::CacheHarness;
using ::refrain::testing::Cells;
using ::refrain::testing::CellsOf;
using ::refrain::testing::FakeChunkMover;
using ::refrain::testing::LetterHarness;
using ::refrain::testing::SpanOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(CacheManagerTest, RefusesSizesThatCannotWork) {
  FakeChunkMover mover(1, 16);
  const auto refusal = [&](const CacheOptions& options) {
    return std::string(CacheManager::Create(options, &mover).status().message());
  };
  EXPECT_THAT(refusal({.num_chunks = 0}), HasSubstr("num_chunks is 0"));
  EXPECT_THAT(refusal({.num_chunks = 1, .chunk_tokens = 0}), HasSubstr("chunk_tokens is 0"));
  EXPECT_THAT(refusal({.num_chunks = 1, .max_slots = 0}), HasSubstr("max_slots is 0"));
  EXPECT_THAT(refusal({.num_chunks = 1, .eviction = "fifo"}), HasSubstr("\"fifo\""));
}

// --- a sequence alone ---

TEST(CacheManagerTest, KeepsTokensAndPositionsInOrder) {
  LetterHarness h;
  h.Join(1);
  ASSERT_TRUE(h.Grow(1, {{7, 100}, {8, 3}, {9, 3}}).ok());
  ASSERT_TRUE(h.Grow(1, "abcdefgh").ok());
  EXPECT_EQ(h.cache->stats().used_chunks, 3);
  h.CheckAll();
}

// The plan stays while sequences grow inside their chunks, and changes when one enters a new chunk.
TEST(CacheManagerTest, PlanChangesOnlyWithTheStructure) {
  LetterHarness h;
  h.Join(1);
  ASSERT_TRUE(h.Grow(1, "a").ok());
  const auto before = h.cache->Plan();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(h.Grow(1, "x").ok());
  EXPECT_EQ(h.cache->Plan(), before);
  ASSERT_TRUE(h.cache->Reserve(SequenceId{1}, 1).ok());
  EXPECT_EQ(h.cache->Plan(), before);
  ASSERT_TRUE(h.Append(1, CellsOf("y", 4)).ok());
  const auto entered = h.cache->Plan();
  EXPECT_NE(entered, before);
  EXPECT_NE(entered->generation, before->generation);
  h.Publish(1, 1);
  EXPECT_EQ(h.cache->Plan(), entered);
}

// Sequences 1 and 3 have a chunk in common, 2 and 4 another, and all of them the first: already in
// the first plan those that share the second one stand together in the slots of the first.
TEST(CacheManagerTest, TheFirstPlanOfInterleavedSequencesIsDepthFirst) {
  LetterHarness h;
  for (const auto& [id, text] :
       {std::pair{1, "rootXXXXa"}, {2, "rootYYYYb"}, {3, "rootXXXXc"}, {4, "rootYYYYd"}}) {
    h.Run(static_cast<uint64_t>(id), text);
  }
  const auto plan = h.cache->Plan();
  std::vector<std::vector<int32_t>> slots;  // of each run
  for (const PlanRun& run : plan->runs) {
    slots.emplace_back();
    for (int32_t s = run.slot_begin; s < run.slot_end; ++s) {
      slots.back().push_back(static_cast<int32_t>(plan->slots[static_cast<size_t>(s)].slot));
    }
  }
  EXPECT_THAT(
      slots, ElementsAre(ElementsAre(0, 2, 1, 3), ElementsAre(0, 2), ElementsAre(0), ElementsAre(2),
                         ElementsAre(1, 3), ElementsAre(1), ElementsAre(3)));
  h.CheckAll();
}

TEST(CacheManagerTest, SlotsAreStableAndReused) {
  LetterHarness h(8, /*max_slots=*/2);
  h.Join(1);
  h.Join(2);
  const SlotId a = h.cache->slot(SequenceId{1});
  const SlotId b = h.cache->slot(SequenceId{2});
  EXPECT_NE(a, b);
  EXPECT_THAT(h.cache->Join(SequenceId{3}, {}, {}, 0).status().message(),
              HasSubstr("all 2 sequence slots"));
  EXPECT_THAT(h.Fork(3, 1, 0).message(), HasSubstr("all 2 sequence slots"));
  h.Leave(1);
  h.Join(3);
  EXPECT_EQ(h.cache->slot(SequenceId{3}), a);
  EXPECT_EQ(h.cache->slot(SequenceId{2}), b);
}

TEST(CacheManagerTest, ReserveThatDoesNotFitChangesNothing) {
  LetterHarness h(2);
  h.Join(1);
  const absl::Status status = h.cache->Reserve(SequenceId{1}, 9);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("3 more KV chunks for 9 tokens, 2 of 2 are free"));
  EXPECT_EQ(h.cache->stats().free_chunks, 2);
  EXPECT_EQ(h.cache->reserved_tokens(SequenceId{1}), 0);
}

// Two steps in flight, the first one collected, then a stop is seen.
TEST(CacheManagerTest, UnpublishedTokensAreDroppedByLeave) {
  LetterHarness h;
  h.Join(1);
  ASSERT_TRUE(h.Append(1, CellsOf("abc")).ok());
  ASSERT_TRUE(h.Append(1, CellsOf("de", 3)).ok());
  EXPECT_EQ(h.cache->published_tokens(SequenceId{1}), 0);
  h.CheckAll();
  h.Publish(1, 3);
  EXPECT_EQ(h.cache->published_tokens(SequenceId{1}), 3);
  EXPECT_EQ(h.cache->appended_tokens(SequenceId{1}), 5);
  EXPECT_EQ(h.cache->stats().logical_tokens, 5);
  h.Leave(1);
  EXPECT_EQ(h.cache->stats().cached_chunks, 1);
  EXPECT_EQ(h.cache->stats().free_chunks, 31);
  EXPECT_EQ(h.cache->stats().logical_tokens, 0);
  EXPECT_EQ(h.Match(CellsOf("abcde")).num_tokens, 3);
}

// --- matching ---

TEST(CacheManagerTest, FinishedSequencesStayAndAreMatchedTokenByToken) {
  LetterHarness h;
  h.Run(1, "abcdefghij");
  h.Leave(1);
  EXPECT_EQ(h.cache->stats().cached_chunks, 3);
  for (const auto& [prompt, matched] :
       std::vector<std::pair<std::string, int>>{{"", 0},
                                                {"x", 0},
                                                {"a", 1},
                                                {"abcx", 3},
                                                {"abcd", 4},
                                                {"abcdefx", 6},
                                                {"abcdefghij", 10},
                                                {"abcdefghijklmn", 10},
                                                {"abcdefghix", 9}}) {
    EXPECT_EQ(h.Match(CellsOf(prompt)).num_tokens, matched) << prompt;
  }
}

TEST(CacheManagerTest, MatchesOnlyWhereIdsAndPositionsAreEqual) {
  LetterHarness h;
  h.Run(1, "abcdef");
  EXPECT_EQ(h.Match(CellsOf("abcdef", 1)).num_tokens, 0);
  Cells gap = CellsOf("abcdef");
  gap[5].position = 9;
  EXPECT_EQ(h.Match(gap).num_tokens, 5);
  gap[2].position = 9;
  EXPECT_EQ(h.Match(gap).num_tokens, 2);

  h.Join(2, CellsOf("abcdef", 7));
  ASSERT_TRUE(h.Grow(2, CellsOf("abcdef", 7)).ok());
  EXPECT_EQ(h.Match(CellsOf("abcdef", 7)).num_tokens, 6);
  EXPECT_EQ(h.Match(CellsOf("abcdef")).num_tokens, 6);
  h.CheckAll();
}

// Positions 0, 1, 2, ... written out are the same as no positions.
TEST(CacheManagerTest, AbsentPositionsCountFromZero) {
  LetterHarness h;
  h.Run(1, "abcdef");
  const SpanOf prompt(CellsOf("abcdef"));
  EXPECT_EQ(h.cache->Match({}, {prompt.ids, {}}).num_tokens, 6);
}

TEST(CacheManagerTest, NothingIsSharedAcrossNamespaces) {
  LetterHarness h;
  h.Run(1, "abcdef");
  EXPECT_EQ(h.Match(CellsOf("abcdef"), "salt").num_tokens, 0);
  EXPECT_EQ(h.cache->Match({"tenant", ""}, SpanOf(CellsOf("abcdef")).span()).num_tokens, 0);
  EXPECT_EQ(h.Run(2, "abcdef", "salt"), 0);
  EXPECT_EQ(h.cache->stats().used_chunks, 4);
  h.CheckAll();
}

TEST(CacheManagerTest, OnlyPublishedTokensAreOffered) {
  LetterHarness h;
  h.Join(1);
  ASSERT_TRUE(h.Append(1, CellsOf("abcdef")).ok());
  EXPECT_EQ(h.Match(CellsOf("abcdef")).num_tokens, 0);
  h.Publish(1, 5);
  EXPECT_EQ(h.Match(CellsOf("abcdef")).num_tokens, 5);
}

TEST(CacheManagerTest, WithPrefixCacheOffNothingIsMatchedAndNothingStays) {
  CacheHarness h({.num_chunks = 8, .chunk_tokens = 4, .max_slots = 8, .prefix_cache = false});
  h.Run(1, "abcdef");
  EXPECT_EQ(h.Run(2, "abcdef"), 0);
  EXPECT_EQ(h.cache->stats().used_chunks, 4);
  ASSERT_TRUE(h.Fork(3, 1, 6).ok());
  EXPECT_EQ(h.cache->stats().used_chunks, 4);  // forks share
  ASSERT_TRUE(h.Grow(3, "x").ok());
  EXPECT_EQ(h.cache->stats().used_chunks, 5);
  h.CheckAll();
  h.Leave(1);
  EXPECT_EQ(h.cache->stats().free_chunks, 4);
  h.Leave(2);
  h.Leave(3);
  EXPECT_EQ(h.cache->stats().free_chunks, 8);
}

// --- joining ---

TEST(CacheManagerTest, JoinHoldsTheMatchAndTakesNoChunk) {
  LetterHarness h;
  h.Run(1, "abcdefghij");
  h.Leave(1);
  MatchResult match = h.Match(CellsOf("abcdefx"));
  EXPECT_EQ(match.num_tokens, 6);
  EXPECT_EQ(match.idle_chunks, 2);
  h.Join(2, CellsOf("abcdefx"));
  h.cache->CountIdleAgain(&match);
  EXPECT_EQ(match.idle_chunks, 0);
  EXPECT_EQ(h.cache->stats().used_chunks, 2);
  EXPECT_EQ(h.cache->stats().cached_chunks, 1);
  EXPECT_EQ(h.cache->stats().matched_tokens_total, 6);
  EXPECT_EQ(h.cache->published_tokens(SequenceId{2}), 6);
  EXPECT_EQ(h.cache->reserved_tokens(SequenceId{2}), 6);
  EXPECT_EQ(h.mover.copies, 0);
  h.CheckAll();
}

TEST(CacheManagerTest, WhoDivergesInsideAChunkGetsACopy) {
  LetterHarness h;
  h.Run(1, "abcdefgh");
  EXPECT_EQ(h.Run(2, "abcdefxyz"), 6);
  EXPECT_EQ(h.mover.copies, 1);
  EXPECT_EQ(h.cache->stats().copied_chunks_total, 1);
  EXPECT_EQ(h.cache->stats().used_chunks, 4);
  h.CheckAll();
}

// A sequence is writing "ab" when another joins with "ab": it may not write behind it.
TEST(CacheManagerTest, ALeafBeingWrittenIsCopied) {
  LetterHarness h;
  h.Run(1, "ab");
  EXPECT_EQ(h.Join(2, CellsOf("abx")), 2);
  ASSERT_TRUE(h.Grow(1, "cd").ok());
  ASSERT_TRUE(h.Grow(2, "x").ok());
  EXPECT_EQ(h.mover.copies, 1);
  h.CheckAll();
}

TEST(CacheManagerTest, ALeafThatNobodyWritesIsTakenOverWithoutACopy) {
  LetterHarness h;
  h.Run(1, "abcdef");
  h.Leave(1);
  EXPECT_EQ(h.Run(2, "abcdefgh"), 6);
  EXPECT_EQ(h.mover.copies, 0);
  EXPECT_EQ(h.cache->stats().used_chunks, 2);
  h.CheckAll();
}

// Two joined with the whole leaf; the first to go on gets a copy, the last one the leaf itself.
TEST(CacheManagerTest, ALeafHeldByTwoIsCopiedOnce) {
  LetterHarness h;
  h.Run(1, "ab");
  h.Leave(1);
  h.Join(2, CellsOf("abx"));
  h.Join(3, CellsOf("aby"));
  ASSERT_TRUE(h.Grow(2, "x").ok());
  EXPECT_EQ(h.mover.copies, 1);
  ASSERT_TRUE(h.Grow(3, "y").ok());
  EXPECT_EQ(h.mover.copies, 1);
  EXPECT_EQ(h.cache->stats().used_chunks, 2);
  h.CheckAll();
}

TEST(CacheManagerTest, FailedCopyLeavesNoTrace) {
  LetterHarness h;
  h.Run(1, "ab");
  h.Join(2, CellsOf("abx"));
  h.mover.fail_next_copy = true;
  EXPECT_EQ(h.cache->Reserve(SequenceId{2}, 1).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(h.cache->stats().used_chunks, 1);
  h.CheckAll();
  ASSERT_TRUE(h.Grow(2, "x").ok());
  h.CheckAll();
}

// A pool of two chunks is full with "abcd|efgh"; whoever goes on from "abcdef" can have neither a
// third chunk nor keep "gh".
TEST(CacheManagerTest, WithoutRoomForACopyTheRestOfTheChunkGoes) {
  LetterHarness h(2);
  h.Run(1, "abcdefgh");
  h.Leave(1);
  EXPECT_EQ(h.Run(2, "abcdefxy"), 6);
  EXPECT_EQ(h.mover.copies, 0);
  EXPECT_EQ(h.Match(CellsOf("abcdefgh")).num_tokens, 6);
  h.CheckAll();
}

TEST(CacheManagerTest, WithoutRoomForACopyAnothersChunkIsLeftAlone) {
  LetterHarness h(2);
  h.Run(1, "abcdefgh");
  EXPECT_EQ(h.Join(2, CellsOf("abcdefxy")), 6);
  EXPECT_EQ(h.cache->Reserve(SequenceId{2}, 1).code(), absl::StatusCode::kResourceExhausted);
  h.CheckAll();
}

// --- forks ---

// Two forks of a prompt of 2.5 chunks: two chunks shared by three, the half one copied twice.
TEST(CacheManagerTest, ForksShareFullChunksAndCopyThePartFullOne) {
  LetterHarness h;
  h.Run(1, "abcdefghij");
  ASSERT_TRUE(h.Fork(2, 1, 9).ok());
  ASSERT_TRUE(h.Fork(3, 1, 10).ok());
  EXPECT_EQ(h.cache->stats().used_chunks, 3);
  for (const uint64_t id : {1, 2, 3}) {
    ASSERT_TRUE(h.Grow(id, std::string(5, static_cast<char>('0' + id))).ok());
  }
  EXPECT_EQ(h.mover.copies, 2);
  EXPECT_EQ(h.cache->ExclusiveChunks(SequenceId{2}), 2);
  h.CheckAll();

  const auto plan = h.cache->Plan();
  ASSERT_EQ(plan->runs.size(), 4u);
  EXPECT_EQ(plan->runs[0].chunk_end - plan->runs[0].chunk_begin, 2);
  EXPECT_EQ(plan->runs[0].slot_end - plan->runs[0].slot_begin, 3);
  for (size_t i = 1; i < 4; ++i) {
    EXPECT_EQ(plan->runs[i].slot_end - plan->runs[i].slot_begin, 1);
    EXPECT_EQ(plan->slots[static_cast<size_t>(plan->runs[i].slot_begin)].key_begin, 8);
  }
}

// A beam that is forked and dropped hands its chunk on.
TEST(CacheManagerTest, TheLastForkOfALeaverNeedsNoCopy) {
  LetterHarness h;
  h.Run(1, "abcdef");
  ASSERT_TRUE(h.Fork(2, 1, 6).ok());
  h.Leave(1);
  ASSERT_TRUE(h.Grow(2, "g").ok());
  EXPECT_EQ(h.mover.copies, 0);
  EXPECT_EQ(h.cache->stats().used_chunks, 2);
  h.CheckAll();
}

TEST(CacheManagerTest, WhatIsHandedOverTakesNeitherSlotNorChunk) {
  LetterHarness h(/*num_chunks=*/3, /*max_slots=*/1);
  h.Run(1, "abcdefghijkl");
  h.cache->HandOver(SequenceId{2}, SequenceId{1}, 6);
  h.expected.erase(1);
  h.expected[2] = CellsOf("abcdef");
  EXPECT_EQ(h.cache->stats().sequences, 1);
  EXPECT_FALSE(h.Fork(3, 2, 6).ok()) << "the slot is taken";
  ASSERT_TRUE(h.Grow(2, "xyz").ok());
  h.CheckAll();
}

TEST(CacheManagerTest, AForkWithTokensInFlightHasThePublishedOnesOnly) {
  LetterHarness h;
  h.Run(1, "abc");
  ASSERT_TRUE(h.Append(1, CellsOf("de", 3)).ok());
  ASSERT_TRUE(h.Fork(2, 1, 3).ok());
  ASSERT_TRUE(h.Grow(2, "xyz").ok());
  h.Publish(1, 2);
  h.CheckAll();
}

// A fork of a fork: three levels in the plan.
TEST(CacheManagerTest, PlanFollowsNestedForks) {
  LetterHarness h;
  h.Run(1, "abcd");
  ASSERT_TRUE(h.Fork(2, 1, 4).ok());
  ASSERT_TRUE(h.Grow(1, "efghijkl").ok());
  ASSERT_TRUE(h.Grow(2, "xxxx").ok());
  ASSERT_TRUE(h.Fork(3, 1, 12).ok());
  ASSERT_TRUE(h.Grow(1, "1").ok());
  ASSERT_TRUE(h.Grow(3, "3").ok());
  h.CheckAll();
  EXPECT_EQ(h.cache->Plan()->runs.size(), 5u);  // {1,3,2} {1,3} {1} {3} {2}
}

// --- equal and covered chunks ---

// Two compute the same prompt at once, not knowing of each other; at the end of each chunk the
// later one goes over to the earlier one's.
TEST(CacheManagerTest, AFullChunkThatEqualsItsSiblingIsMerged) {
  LetterHarness h;
  h.Join(1);
  h.Join(2);
  ASSERT_TRUE(h.Grow(1, "abcdefghi").ok());
  ASSERT_TRUE(h.Grow(2, "abc").ok());
  EXPECT_EQ(h.cache->stats().used_chunks, 4);
  ASSERT_TRUE(h.Grow(2, "de").ok());
  EXPECT_EQ(h.cache->stats().used_chunks, 4);
  h.CheckAll();
  ASSERT_TRUE(h.Append(2, CellsOf("fghi", 5)).ok());
  h.Publish(2, 3);
  h.CheckAll();  // one token is still in flight
  EXPECT_EQ(h.cache->stats().merged_chunks_total, 2);
  EXPECT_EQ(h.cache->Plan()->runs[0].slot_end, 2);
}

// The same with chunks that are published whole.
TEST(CacheManagerTest, AWholeChunkThatEqualsASiblingIsNeverAdded) {
  LetterHarness h;
  h.Run(1, "abcdefgh");
  h.Join(2);
  ASSERT_TRUE(h.Grow(2, "abcdefghi").ok());
  EXPECT_EQ(h.cache->stats().merged_chunks_total, 2);
  EXPECT_EQ(h.cache->stats().used_chunks, 3);
  h.CheckAll();
  h.Leave(1);
  EXPECT_EQ(h.cache->stats().used_chunks, 3);
  h.CheckAll();
}

// 3 holds a part of 2's chunk when that is merged into 1's.
TEST(CacheManagerTest, WhoHoldsAMergedChunkGoesOverToo) {
  LetterHarness h;
  h.Join(1);
  h.Join(2);
  ASSERT_TRUE(h.Grow(2, "abc").ok());
  ASSERT_TRUE(h.Fork(3, 2, 2).ok());
  ASSERT_TRUE(h.Grow(1, "abcd").ok());
  ASSERT_TRUE(h.Grow(2, "d").ok());
  EXPECT_EQ(h.cache->stats().used_chunks, 1);
  h.CheckAll();
  ASSERT_TRUE(h.Grow(3, "x").ok());
  h.CheckAll();
}

// 1 leaves "ab" behind while 2 goes on from its copy of it.
TEST(CacheManagerTest, ALeaverWhoseTokensASiblingHasLeavesNothing) {
  LetterHarness h;
  h.Run(1, "ab");
  h.Run(2, "abc");
  h.Leave(1);
  EXPECT_EQ(h.cache->stats().cached_chunks, 0);
  EXPECT_EQ(h.cache->stats().free_chunks, 31);
  h.CheckAll();
}

// 1 leaves "abc" behind, 2 has only "ab" of it at the time and computes the rest again.
TEST(CacheManagerTest, ACachedChunkGoesWhenASiblingGrowsPastIt) {
  LetterHarness h;
  h.Join(2);
  ASSERT_TRUE(h.Grow(2, "ab").ok());
  h.Join(1);
  ASSERT_TRUE(h.Grow(1, "abc").ok());
  h.Leave(1);
  EXPECT_EQ(h.cache->stats().cached_chunks, 1);
  ASSERT_TRUE(h.Grow(2, "c").ok());
  EXPECT_EQ(h.cache->stats().cached_chunks, 0);
  h.CheckAll();
}

// --- eviction ---

TEST(CacheManagerTest, EvictsLeavesBeforeParentsAndTheOldestFirst) {
  LetterHarness h(6);
  h.Run(1, "abcdefgh");
  h.Leave(1);
  h.Run(2, "ABCDEFGH");
  h.Leave(2);
  h.Join(3);
  ASSERT_TRUE(h.Grow(3, "123456789").ok());  // three chunks, two are free
  EXPECT_EQ(h.cache->stats().evicted_chunks_total, 1);
  EXPECT_EQ(h.Match(CellsOf("abcdefgh")).num_tokens, 4);
  ASSERT_TRUE(h.Grow(3, "0000").ok());
  EXPECT_EQ(h.Match(CellsOf("abcdefgh")).num_tokens, 0);
  ASSERT_TRUE(h.Grow(3, "0000").ok());
  EXPECT_EQ(h.Match(CellsOf("ABCDEFGH")).num_tokens, 4);
  h.CheckAll();
}

TEST(CacheManagerTest, AMatchMakesAChunkRecent) {
  LetterHarness h(2);
  h.Run(1, "abcd");
  h.Leave(1);
  h.Run(2, "ABCD");
  h.Leave(2);
  h.Join(3, CellsOf("abcd"));
  h.Leave(3);
  h.Run(4, "0");
  EXPECT_EQ(h.Match(CellsOf("abcd")).num_tokens, 4);
  EXPECT_EQ(h.Match(CellsOf("ABCD")).num_tokens, 0);
}

TEST(CacheManagerTest, NeverEvictsWhatARunningSequenceHolds) {
  LetterHarness h(4);
  h.Run(1, "abcdefgh");
  h.Run(2, "abcdefxx");
  h.Leave(1);
  EXPECT_EQ(h.cache->stats().available_chunks(), 2);
  h.Join(3);
  EXPECT_FALSE(h.Grow(3, "123456789").ok());
  ASSERT_TRUE(h.Grow(3, "12345678").ok());
  h.CheckAll();
}

TEST(CacheManagerTest, EvictAllLeavesOnlyRunningSequences) {
  LetterHarness h;
  h.Run(1, "abcdefgh");
  h.Leave(1);
  h.Run(2, "abcdxxxx");
  h.Run(3, "abcdefgh", "salt");
  h.Leave(3);
  EXPECT_EQ(testing::EvictAll(h.cache.get()), 3);
  EXPECT_EQ(h.cache->stats().cached_chunks, 0);
  EXPECT_EQ(h.cache->stats().used_chunks, 2);
  EXPECT_EQ(h.cache->tree().roots().size(), 1u);
  h.CheckAll();
}

}  // namespace
}  // namespace refrain::kvcache
