// What operators pin, and drop, in the cache manager.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kvcache/cache_manager.h"
#include "tests/kvcache/cache_harness.h"
#include "tests/support/evict_all.h"

namespace refrain::kvcache {
namespace {

using ::refrain::testing::CellsOf;
using ::refrain::testing::LetterHarness;
using ::refrain::testing::SpanOf;

TEST(CachePinsTest, APinnedRangeIsNotEvictedUntilUnpinned) {
  LetterHarness h(4);
  h.Run(1, "abcdefghij");
  h.Leave(1);
  const SpanOf range(CellsOf("abcdefghij"));
  ASSERT_EQ(h.cache->Pin({}, range.span()), 8);
  ASSERT_EQ(h.cache->Pin({}, range.span()), 8);
  EXPECT_EQ(h.cache->stats().used_chunks, 2);
  EXPECT_EQ(h.cache->stats().available_chunks(), 2);
  EXPECT_EQ(testing::EvictAll(h.cache.get()), 1);
  h.Join(2);
  EXPECT_FALSE(h.Grow(2, "123456789").ok());
  h.cache->Unpin({}, range.span(), 8);
  EXPECT_EQ(testing::EvictAll(h.cache.get()), 0);
  h.CheckAll();
  h.cache->Unpin({}, range.span(), 8);
  ASSERT_TRUE(h.Grow(2, "123456789").ok());
  EXPECT_EQ(h.Match(CellsOf("abcdefghij")).num_tokens, 4);
  h.CheckAll();
}

TEST(CachePinsTest, APinnedChunkIsNotCutForWantOfRoom) {
  LetterHarness h(2);
  h.Run(1, "abcdefgh");
  h.Leave(1);
  ASSERT_EQ(h.cache->Pin({}, SpanOf(CellsOf("abcdefgh")).span()), 8);
  EXPECT_EQ(h.Join(2, CellsOf("abcdefxy")), 6);
  EXPECT_EQ(h.cache->Reserve(SequenceId{2}, 1).code(), absl::StatusCode::kResourceExhausted);
  h.CheckAll();
}

TEST(CachePinsTest, PinsOnlyWhatIsCached) {
  LetterHarness h;
  EXPECT_EQ(h.cache->Pin({}, SpanOf(CellsOf("abcd")).span()), 0);
  h.Run(1, "abcdefgh");
  EXPECT_EQ(h.cache->ExclusiveChunks(SequenceId{1}), 2);
  EXPECT_EQ(h.cache->Pin({}, SpanOf(CellsOf("abcdx")).span()), 4);
  EXPECT_EQ(h.cache->Pin({}, SpanOf(CellsOf("abcdx")).span()), 4);
  EXPECT_EQ(h.cache->ExclusiveChunks(SequenceId{1}), 1);
  h.Leave(1);
  EXPECT_EQ(h.cache->stats().cached_chunks, 1);
  h.CheckAll();
}

// --- dropping ---

TEST(CachePinsTest, DropForgetsAPromptAndWhatContinuesItButNotWhatOthersShare) {
  LetterHarness h(8);
  h.Run(1, "abcdefghij");
  h.Leave(1);
  h.Run(2, "abcdXYZW");
  h.Leave(2);
  EXPECT_EQ(h.cache->Drop({}, SpanOf(CellsOf("abcdefgh")).span()), 2);
  EXPECT_EQ(h.Match(CellsOf("abcdefgh")).num_tokens, 4);
  EXPECT_EQ(h.Match(CellsOf("abcdXYZW")).num_tokens, 8);
  EXPECT_EQ(h.cache->Drop({}, SpanOf(CellsOf("abcdXYZW")).span()), 2);
  EXPECT_EQ(h.cache->stats().cached_chunks, 0);
  h.CheckAll();
}

// Where a prompt ended that another went on from is not known.
TEST(CachePinsTest, DropTakesTheShorterPromptsThatOnlyThisOneContinues) {
  LetterHarness h(8);
  for (const char* text : {"abcd", "abcdefgh"}) {
    h.Run(1, text);
    h.Leave(1);
  }
  EXPECT_EQ(h.cache->Drop({}, SpanOf(CellsOf("abcdefgh")).span()), 2);
  EXPECT_EQ(h.Match(CellsOf("abcd")).num_tokens, 0);
  h.CheckAll();
}

TEST(CachePinsTest, DropOfAPromptThatEndsInsideChunksTakesAllThatContinueIt) {
  LetterHarness h(8);
  for (const char* text : {"abcdef12", "abcdef34", "abcdefgh5678"}) {
    h.Run(1, text);
    h.Leave(1);
  }
  EXPECT_EQ(h.cache->Drop({}, SpanOf(CellsOf("abcdef")).span()), 5);
  h.CheckAll();
}

// What runs may be the first of those that continue it, or any other.
TEST(CachePinsTest, DropOfAPromptThatEndsInsideChunksTakesTheIdleOnesBesideThoseThatRun) {
  for (const std::string running : {"abcdef12", "abcdef34", "abcdefgh5678"}) {
    LetterHarness h(8);
    uint64_t id = 1;
    for (const char* text : {"abcdef12", "abcdef34", "abcdefgh5678"}) {
      h.Run(id, text);
      if (text != running) h.Leave(id);
      ++id;
    }
    EXPECT_EQ(h.cache->Drop({}, SpanOf(CellsOf("abcdef")).span()), running.size() == 8 ? 3 : 2);
    EXPECT_EQ(h.cache->stats().cached_chunks, 0);
    EXPECT_EQ(h.Match(CellsOf(running)).num_tokens, static_cast<int32_t>(running.size()));
    h.CheckAll();
  }
}

TEST(CachePinsTest, DropKeepsWhatRunsAndWhatIsPinned) {
  LetterHarness h(8);
  h.Run(1, "abcdefgh");
  EXPECT_EQ(h.cache->Drop({}, SpanOf(CellsOf("abcdefgh")).span()), 0);
  h.Leave(1);
  ASSERT_EQ(h.cache->Pin({}, SpanOf(CellsOf("abcd")).span()), 4);
  EXPECT_EQ(h.cache->Drop({}, SpanOf(CellsOf("abcdefgh")).span()), 1);
  EXPECT_EQ(h.Match(CellsOf("abcdefgh")).num_tokens, 4);
  h.cache->Unpin({}, SpanOf(CellsOf("abcd")).span(), 4);
  h.CheckAll();
}

TEST(CachePinsTest, DropOfAPromptThatIsCachedInPartSparesOtherPrompts) {
  LetterHarness h(8);
  h.Run(1, "abcdefgh");
  h.Leave(1);
  EXPECT_EQ(h.cache->Drop({}, SpanOf(CellsOf("abcdefzz")).span()), 0);
  EXPECT_EQ(h.cache->Drop({}, SpanOf(CellsOf("abzz")).span()), 0);
  EXPECT_EQ(h.cache->Drop({"", "salt"}, SpanOf(CellsOf("abcdefgh")).span()), 0);
  EXPECT_EQ(h.Match(CellsOf("abcdefgh")).num_tokens, 8);
  EXPECT_EQ(h.cache->Drop({}, SpanOf(CellsOf("abcdefghzz")).span()), 2);
  h.CheckAll();
}

}  // namespace
}  // namespace refrain::kvcache
