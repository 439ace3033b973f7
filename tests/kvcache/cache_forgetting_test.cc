// What a cache gives up: what nobody will ask for, and everything at once.

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <numeric>
#include <string>
#include <vector>

#include "kvcache/cache_manager.h"
#include "tests/kvcache/cache_harness.h"
#include "tests/support/evict_all.h"
#include "tests/support/slow_build.h"

namespace refrain::kvcache {
namespace {

using ::refrain::testing::Cells;
using ::refrain::testing::CellsOf;
using ::refrain::testing::LetterHarness;
using ::refrain::testing::SpanOf;

// The prompt is "abcdef" in each; what was generated behind it nobody saw.
TEST(CacheForgettingTest, WhoLeavesForGoodLeavesItsPrompt) {
  LetterHarness h;
  h.Run(1, "abcdef");
  ASSERT_TRUE(h.Fork(2, 1, 6).ok());
  ASSERT_TRUE(h.Grow(1, "gh12345").ok());
  ASSERT_TRUE(h.Grow(2, "xyzuvwst").ok());
  EXPECT_EQ(h.cache->stats().used_chunks, 1 + 3 + 3);
  h.LeaveForGood(2, 6);  // the other one has the prompt
  EXPECT_EQ(h.cache->stats().cached_chunks, 0);
  ASSERT_NO_FATAL_FAILURE(h.CheckAll());
  h.LeaveForGood(1, 6);
  EXPECT_EQ(h.cache->stats().cached_chunks, 2);
  ASSERT_NO_FATAL_FAILURE(h.CheckAll());
  EXPECT_EQ(h.Run(3, "abcdefgh"), 6);
  h.LeaveForGood(3, 8);
  EXPECT_EQ(h.Run(4, "abcdefghij"), 8);  // all of it was kept
  h.LeaveForGood(4, 0);
  EXPECT_EQ(h.cache->stats().cached_chunks, 2);  // the third may come back for them
  EXPECT_EQ(h.cache->stats().evicted_chunks_total, 0);
}

TEST(CacheForgettingTest, WhatOthersHaveOrPinnedIsNotForgotten) {
  LetterHarness h;
  h.Run(1, "abcdefgh");
  EXPECT_EQ(h.cache->Pin({}, SpanOf(CellsOf("abcd")).span()), 4);
  h.Run(2, "abcdefghijkl");
  h.Run(3, "abcdefghijxx");
  h.LeaveForGood(3, 0);
  ASSERT_NO_FATAL_FAILURE(h.CheckAll());
  h.LeaveForGood(2, 0);
  EXPECT_EQ(h.Match(CellsOf("abcdefghijkl")).num_tokens, 8);
  h.LeaveForGood(1, 0);
  EXPECT_EQ(h.Match(CellsOf("abcdefgh")).num_tokens, 4);
  h.cache->Unpin({}, SpanOf(CellsOf("abcd")).span(), 4);
  EXPECT_EQ(h.cache->stats().cached_chunks, 1);
}

// An earlier conversation was answered what somebody now generates, and is not shown: in whole
// chunks, in a chunk that goes on with more, and where that somebody has the first tokens of its
// last chunk only.
TEST(CacheForgettingTest, WhatIsLeftToBeContinuedStaysWhoeverComesAfterIt) {
  for (const char* generated : {"efghij", "efghijk", "efghijklmn", "ef"}) {
    LetterHarness h;
    h.Run(1, "abcdefghij");
    h.Leave(1);
    h.Run(2, "abcd");
    for (const char* letter = generated; *letter != 0; ++letter) {
      ASSERT_TRUE(h.Grow(2, std::string(1, *letter)).ok());
    }
    h.LeaveForGood(2, 4);
    EXPECT_EQ(h.Match(CellsOf("abcdefghijklmn")).num_tokens, 10) << generated;
    EXPECT_EQ(h.cache->stats().cached_chunks, 3) << generated;
    ASSERT_NO_FATAL_FAILURE(h.CheckAll());
    h.Run(3, "abcdefghi");  // matched, nothing of its own
    h.LeaveForGood(3, 4);
    EXPECT_EQ(h.Match(CellsOf("abcdefghijklmn")).num_tokens, 10) << generated;
    h.Run(4, "abcd");
    h.LeaveForGood(4, kForgetAll);  // it may be wrong
    h.Run(5, "abcdefghij");
    h.LeaveForGood(5, kForgetAll);
    EXPECT_EQ(h.cache->stats().cached_chunks, 0) << generated;
  }
}

TEST(CacheForgettingTest, WhoLeavesForNowIsKeptOrForgottenLater) {
  LetterHarness h;
  const Cells answers[] = {CellsOf("abcdefgh"), CellsOf("abcdxyzu"), CellsOf("abcd12")};
  for (uint64_t id = 0; id < 3; ++id) {
    h.Join(id, answers[id]);
    ASSERT_TRUE(h.Grow(id, Cells(answers[id].begin() + h.cache->published_tokens(SequenceId{id}),
                                 answers[id].end()))
                    .ok());
  }
  for (uint64_t id = 0; id < 3; ++id) {
    h.LeaveForNow(id);
  }
  EXPECT_EQ(h.cache->stats().cached_chunks, 4);
  h.cache->Keep({}, {}, SpanOf(answers[1]).span(), AnswerEnd::kOther);
  for (const Cells& answer : answers) h.cache->Forget({}, {}, SpanOf(answer).span(), 2);
  EXPECT_EQ(h.cache->stats().cached_chunks, 2);
  EXPECT_EQ(h.Match(answers[1]).num_tokens, 8);
  EXPECT_EQ(h.Match(answers[0]).num_tokens, 4);
  ASSERT_NO_FATAL_FAILURE(h.CheckAll());
}

// What is left of an answer, whose last chunk was evicted, are the first tokens of another's.
TEST(CacheForgettingTest, WhatIsKeptMayBeAnothers) {
  LetterHarness h;
  for (const char* text : {"abcdefgh", "abcdefxy"}) {
    h.Run(1, text);
    h.LeaveForNow(1);
  }
  EXPECT_EQ(h.cache->Drop({}, SpanOf(CellsOf("abcdefgh")).span()), 1);
  h.cache->Keep({}, {}, SpanOf(CellsOf("abcdefgh")).span(), AnswerEnd::kOther);
  h.cache->Forget({}, {}, SpanOf(CellsOf("abcdefxy")).span(), 2);
  EXPECT_EQ(h.Match(CellsOf("abcdefgh")).num_tokens, 6);
  EXPECT_EQ(h.Match(CellsOf("abcdefxy")).num_tokens, 6);
  ASSERT_NO_FATAL_FAILURE(h.CheckAll());
}

// Where the other one's answer is not known yet to be asked for, too.
TEST(CacheForgettingTest, WhoHoldsTheFirstTokensOfAChunkLeavesItAlone) {
  for (const int32_t kept : {0, 5, 7}) {
    LetterHarness h;
    h.Run(1, "abcdefgh");
    h.LeaveForNow(1);
    EXPECT_EQ(h.Join(2, CellsOf("abcdefx")), 6);
    h.LeaveForGood(2, kept);
    EXPECT_EQ(h.Match(CellsOf("abcdefgh")).num_tokens, 8) << kept;
    h.Run(3, "abcdefgxyz");
    h.LeaveForGood(3, 0);
    // What the second one had stays, and no token more.
    EXPECT_EQ(h.Match(CellsOf("abcdefgh")).num_tokens, 8) << kept;
    h.cache->Forget({}, {}, SpanOf(CellsOf("abcdefgh")).span(), 0);
    EXPECT_EQ(h.Match(CellsOf("abcdefgh")).num_tokens, std::min(kept, 6)) << kept;
    ASSERT_NO_FATAL_FAILURE(h.CheckAll());
  }
}

// From what is known of the first tokens, whether it is there yet or not.
TEST(CacheForgettingTest, WhatWasFoundBeforeIsNotLookedForAgain) {
  for (const size_t found_tokens : {0, 3, 4, 6, 8, 9}) {
    for (const bool evicted : {false, true}) {
      LetterHarness h;
      h.Run(1, "abcdefghij");
      h.LeaveForNow(1);
      const MatchResult before = h.Match(CellsOf(std::string("abcdefghi").substr(0, found_tokens)));
      if (evicted) {
        testing::EvictAll(h.cache.get());
        h.Run(2, "abcdefghij");
        h.LeaveForNow(2);
      }
      h.cache->Keep(before, {}, SpanOf(CellsOf("abcdefghij")).span(), AnswerEnd::kOther);
      h.cache->Forget(before, {}, SpanOf(CellsOf("abcdefghij")).span(), 0);
      EXPECT_EQ(h.Match(CellsOf("abcdefghij")).num_tokens, 10);
      h.cache->Forget(before, {}, SpanOf(CellsOf("abcdefghij")).span(), kForgetAll);
      EXPECT_EQ(h.cache->stats().cached_chunks, 0);
      ASSERT_NO_FATAL_FAILURE(h.CheckAll());
    }
  }
}

// The same of who left before it was known that nobody would come back.
TEST(CacheForgettingTest, ForgetsWhatWasCachedBehindAPrompt) {
  LetterHarness h;
  for (const char* text : {"abcdef1234567", "abcdef12zzzzz", "abcdq"}) {
    h.Run(1, text);
    h.LeaveForNow(1);
  }
  const auto forget = [&](const std::string& text, int32_t kept) {
    h.cache->Forget({}, {}, SpanOf(CellsOf(text)).span(), kept);
    EXPECT_EQ(h.cache->CheckInvariants(), absl::OkStatus());
  };
  EXPECT_EQ(h.cache->stats().cached_chunks, 1 + 3 + 2 + 1);
  forget("never seen", 2);
  forget("abcdef1234567", 8);  // the last two; "ef12" is the other's, too
  EXPECT_EQ(h.cache->stats().cached_chunks, 1 + 1 + 2 + 1);
  forget("abcdef12zzzzz", 6);
  EXPECT_EQ(h.cache->stats().cached_chunks, 1 + 1 + 1);
  EXPECT_EQ(h.Match(CellsOf("abcdef12")).num_tokens, 6);
  EXPECT_EQ(h.Match(CellsOf("abcdq")).num_tokens, 5);
}

// A pool of so many chunks, full of lineages of so many behind so many requests.
void ExpectToEvictAllSoon(int32_t chunks, int32_t lineage, int32_t requests) {
  constexpr int32_t kChunkTokens = 16;
  class NoCopies final : public ChunkMover {
    absl::Status CopyChunk(ChunkId, ChunkId) override { return absl::OkStatus(); }
  } mover;
  for (const char* policy : {"lru", "s3fifo", "reuse_rate"}) {
    const auto cache = CacheManager::Create(
        {.num_chunks = chunks, .chunk_tokens = kChunkTokens, .max_slots = 1, .eviction = policy},
        &mover);
    ASSERT_TRUE(cache.ok()) << cache.status();
    std::vector<int32_t> positions(lineage * kChunkTokens);
    std::iota(positions.begin(), positions.end(), 0);
    std::vector<TokenPlace> places;
    for (int32_t i = 0; i < requests; ++i) {
      const std::vector<TokenId> tokens(positions.size(), TokenId{i});
      const SequenceId sequence{static_cast<uint64_t>(i)};
      const MatchResult match = (*cache)->Match({}, {tokens, {}});
      const auto num_tokens = static_cast<int32_t>(tokens.size());
      ASSERT_TRUE((*cache)->Join(sequence, {}, match, num_tokens).ok());
      ASSERT_TRUE((*cache)->Reserve(sequence, num_tokens).ok());
      places.clear();
      (*cache)->Append(sequence, positions, &places);
      (*cache)->Publish(sequence, tokens);
      (*cache)->Leave(sequence);
    }
    const std::clock_t begin = std::clock();  // of this process: others take time, too
    EXPECT_GT(testing::EvictAll(cache->get()), chunks - lineage);
    EXPECT_LT(std::clock() - begin, CLOCKS_PER_SEC * testing::kSlowBuildFactor) << policy;
    EXPECT_EQ((*cache)->CheckInvariants(), absl::OkStatus());
  }
}

// Short lineages in ids that have been used before; the policy named some of them again and again.
TEST(CacheForgettingTest, EvictingEverythingTakesTimeInProportion) {
  ExpectToEvictAllSoon(32'000, 3, 2 * 32'000 / 3);
}

// All below one root: to take the first one of those that are left would move all others each time.
TEST(CacheForgettingTest, EvictingManySiblingsTakesTimeInProportion) {
  ExpectToEvictAllSoon(200'000, 1, 200'000);
}

}  // namespace
}  // namespace refrain::kvcache
