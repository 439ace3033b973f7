#include <gtest/gtest.h>

#include "tests/kvcache/cache_harness.h"
#include "tests/support/evict_all.h"

namespace refrain::kvcache {
namespace {

using ::refrain::testing::CellsOf;
using ::refrain::testing::LetterHarness;
using ::refrain::testing::SpanOf;

// --- currency ---

TEST(CacheMatchTest, AMatchIsCurrentUntilItCouldBeBetter) {
  LetterHarness h;
  h.Run(1, "abcdef");
  const MatchResult inside = h.Match(CellsOf("abcdex"));
  const MatchResult above = h.Match(CellsOf("abcd"));
  const MatchResult unknown = h.Match(CellsOf("abc"), "salt");
  EXPECT_TRUE(h.cache->IsCurrent(inside) && h.cache->IsCurrent(above));
  EXPECT_TRUE(h.cache->IsCurrent(unknown));
  EXPECT_FALSE(h.cache->IsCurrent(MatchResult{}));
  h.Run(2, "abcdex");
  EXPECT_FALSE(h.cache->IsCurrent(inside));
  EXPECT_EQ(h.Match(CellsOf("abcdex")).num_tokens, 6);
  h.Run(3, "a", "salt");
  EXPECT_FALSE(h.cache->IsCurrent(unknown));
}

// 1 writes "ab", a prefix of the cached "abcx" that the match ended in; then it grows past it.
TEST(CacheMatchTest, AMatchIsNotCurrentWhenASiblingGrowsPastIt) {
  LetterHarness h;
  h.Run(1, "ab");
  h.Run(2, "abcx");
  const MatchResult match = h.Match(CellsOf("abcd"));
  EXPECT_EQ(match.num_tokens, 3);
  ASSERT_TRUE(h.Grow(1, "cd").ok());
  EXPECT_FALSE(h.cache->IsCurrent(match));
  EXPECT_EQ(h.Match(CellsOf("abcd")).num_tokens, 4);
}

TEST(CacheMatchTest, AMatchIsNotCurrentWhenItsChunkGrows) {
  LetterHarness h;
  h.Run(1, "ab");
  const MatchResult match = h.Match(CellsOf("abcd"));
  ASSERT_TRUE(h.Grow(1, "c").ok());
  EXPECT_FALSE(h.cache->IsCurrent(match));
}

TEST(CacheMatchTest, AMatchIsNotCurrentWhenItsLastChunkGetsAChild) {
  LetterHarness h;
  h.Run(1, "abcd");
  const MatchResult match = h.Match(CellsOf("abcdef"));
  ASSERT_TRUE(h.Grow(1, "e").ok());
  EXPECT_FALSE(h.cache->IsCurrent(match));
}

TEST(CacheMatchTest, AMatchStaysCurrentWhileOthersGrowElsewhere) {
  LetterHarness h;
  h.Run(1, "abcdef");
  h.Run(2, "abcdxx");
  const MatchResult match = h.Match(CellsOf("abcdy"));
  ASSERT_TRUE(h.Grow(1, "gg").ok());
  ASSERT_TRUE(h.Grow(2, "xxxxx").ok());
  EXPECT_TRUE(h.cache->IsCurrent(match));
}

TEST(CacheMatchTest, AMatchOfAnEvictedChunkIsNotCurrent) {
  LetterHarness h;
  h.Run(1, "abcdef");
  h.Leave(1);
  const MatchResult match = h.Match(CellsOf("abcdef"));
  testing::EvictAll(h.cache.get());
  EXPECT_FALSE(h.cache->IsCurrent(match));
  h.Run(2, "abcdef");
  EXPECT_FALSE(h.cache->IsCurrent(match));
}

// 1 decodes behind the prompt that others wait with: they have all they want.
TEST(CacheMatchTest, AMatchOfAllThatIsWantedStaysCurrentWhileOthersGoOn) {
  LetterHarness h;
  h.Run(1, "abcdef");
  const MatchResult match = h.Match(CellsOf("abcdef"));
  ASSERT_TRUE(h.Grow(1, "g").ok());
  EXPECT_TRUE(h.cache->IsCurrent(match));
  h.Run(2, "abcdefx");  // a copy beside it
  EXPECT_TRUE(h.cache->IsCurrent(match));
  ASSERT_TRUE(h.Grow(1, "hijk").ok());
  EXPECT_TRUE(h.cache->IsCurrent(match));
  h.Run(3, "abcdef");
  h.CheckAll();
}

TEST(CacheMatchTest, AMatchThatPartedInsideAChunkStaysCurrentWhileThatGrows) {
  LetterHarness h;
  h.Run(1, "abcdef");
  const MatchResult match = h.Match(CellsOf("abcdexy"));
  EXPECT_EQ(match.num_tokens, 5);
  ASSERT_TRUE(h.Grow(1, "g").ok());
  EXPECT_TRUE(h.cache->IsCurrent(match));
  h.Run(2, "abcdex");
  EXPECT_FALSE(h.cache->IsCurrent(match));
}

TEST(CacheMatchTest, AMatchOfAllThatIsWantedIsNotCurrentOnceItsChunkIsCut) {
  LetterHarness h(2);
  h.Run(1, "abcdefgh");
  h.Leave(1);
  const MatchResult match = h.Match(CellsOf("abcdefg"));
  EXPECT_EQ(h.Run(2, "abcdefx"), 6);  // no room for a copy: what is behind goes
  EXPECT_FALSE(h.cache->IsCurrent(match));
  EXPECT_EQ(h.Match(CellsOf("abcdefg")).num_tokens, 6);
}

// It ended where 1 stopped for now, so that both growing and a sibling may take it further.
TEST(CacheMatchTest, AMatchThatEndedWithItsChunkIsNotCurrentOnceThatGrewBesideANewOne) {
  LetterHarness h;
  h.Run(1, "ab");
  h.Run(2, "x");
  const MatchResult match = h.Match(CellsOf("abcd"));
  ASSERT_TRUE(h.Grow(1, "c").ok());
  EXPECT_FALSE(h.cache->IsCurrent(match));
}

// --- matching again ---

TEST(CacheMatchTest, MatchingAgainFindsWhatCameBehindAndWhatIsLeft) {
  LetterHarness h;
  h.Run(1, "abcdefgh");
  const MatchResult match = h.Match(CellsOf("abcdefghijkl"));
  const auto again = [&] { return h.MatchAgain(match, CellsOf("abcdefghijkl")).num_tokens; };
  EXPECT_EQ(match.num_tokens, 8);
  ASSERT_TRUE(h.Grow(1, "ijx").ok());
  EXPECT_EQ(again(), 10);
  h.Leave(1);
  EXPECT_EQ(again(), 10);
  testing::EvictAll(h.cache.get());
  EXPECT_EQ(again(), 0);
  h.Run(2, "abcdXXXX");  // the nodes have the ids of those that are gone
  EXPECT_EQ(again(), 4);
}

// --- joining again ---

// 1 made way and comes back before it ends: it is as old as it was.
TEST(CacheMatchTest, ASequenceThatComesBackFindsNothingAndIsNoNewer) {
  LetterHarness h(2);
  h.Run(1, "abcd");
  h.Leave(1);
  h.Run(2, "ABCD");
  h.Leave(2);
  const MatchResult match = h.Match(CellsOf("abcd"));
  ASSERT_TRUE(h.cache->Rejoin(SequenceId{1}, {}, match, 4).ok());
  h.expected[1] = CellsOf("abcd");
  h.salts[1] = "";
  h.CheckAll();
  EXPECT_EQ(h.cache->tree().node(match.node).use.hits, 0);
  EXPECT_EQ(h.cache->stats().matched_tokens_total, 0);
  EXPECT_EQ(h.cache->stats().logical_tokens, 4);
  h.Leave(1);
  h.Run(3, "wxyz");
  EXPECT_EQ(h.Match(CellsOf("abcd")).num_tokens, 0);
  EXPECT_EQ(h.Match(CellsOf("ABCD")).num_tokens, 4);
  h.CheckAll();
}

// --- idle chunks ---

TEST(CacheMatchTest, IdleChunksAreCountedAgainOnlyWhenChunksBecomeUsedOrUnused) {
  LetterHarness h;
  h.Run(1, "abcdefgh");
  h.Leave(1);
  h.Run(2, "ABCD");
  MatchResult match = h.Match(CellsOf("abcdefgh"));
  const auto counts_again = [&] {
    const uint64_t stamp = match.use_stamp;
    h.cache->CountIdleAgain(&match);
    return match.use_stamp != stamp;
  };
  ASSERT_TRUE(h.Grow(2, "EFGHIJ").ok());  // two chunks more
  h.Run(3, "uvw");
  EXPECT_FALSE(counts_again());
  EXPECT_EQ(match.idle_chunks, 2);
  h.Join(4, CellsOf("abcd"));
  EXPECT_TRUE(counts_again());
  EXPECT_EQ(match.idle_chunks, 1);
  EXPECT_EQ(match.unused_chunks, 1);
  EXPECT_EQ(h.cache->Pin({}, SpanOf(CellsOf("abcdefgh")).span()), 8);
  EXPECT_TRUE(counts_again());
  EXPECT_EQ(match.idle_chunks, 0);
  EXPECT_EQ(match.unused_chunks, 1);
  h.Leave(4);  // the pin keeps it, for nobody
  EXPECT_TRUE(counts_again());
  EXPECT_EQ(match.idle_chunks, 0);
  EXPECT_EQ(match.unused_chunks, 2);
  h.Join(4, CellsOf("abcd"));
  EXPECT_TRUE(counts_again());
  EXPECT_EQ(match.unused_chunks, 1);
  h.Leave(4);
  h.cache->Unpin({}, SpanOf(CellsOf("abcdefgh")).span(), 8);
  EXPECT_TRUE(counts_again());
  EXPECT_EQ(match.idle_chunks, 2);
  EXPECT_EQ(match.unused_chunks, 2);
}

}  // namespace
}  // namespace refrain::kvcache
