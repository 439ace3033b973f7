// What running sequences share; cache_random_test checks what comes free when they leave.

#include "kvcache/shared_runs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <string>
#include <vector>

#include "tests/kvcache/cache_harness.h"

namespace refrain::kvcache {
namespace {

using ::refrain::testing::LetterHarness;

// Two prompts that begin alike; one of them has a fork.
TEST(SharedRunsTest, SharedRunsAreWhatTheSameSequencesHold) {
  LetterHarness h;
  h.Run(1, "abcdefghijklmn");  // its third chunk and the rest of the prompt are its fork's, too
  ASSERT_TRUE(h.Fork(2, 1, 14).ok());
  h.Run(3, "abcdefghxy");
  h.Run(4, "other");
  const std::vector<SequenceId> all = {SequenceId{2}, SequenceId{4}, SequenceId{3}, SequenceId{1}};
  const SharedRuns shared = h.cache->FindSharedRuns(all);
  EXPECT_EQ(shared.last_runs, (std::vector<int32_t>{0, -1, 1, 0}));
  ASSERT_EQ(shared.runs.size(), 2u);
  EXPECT_EQ(shared.runs[0].chunks, 2);  // "ijkl", "mn"
  EXPECT_EQ(shared.runs[0].holders, 2);
  EXPECT_EQ(shared.runs[0].parent, 1);
  EXPECT_EQ(shared.runs[1].chunks, 2);  // "abcd", "efgh"
  EXPECT_EQ(shared.runs[1].holders, 3);
  EXPECT_EQ(shared.runs[1].parent, -1);
}

// Pins end inside what is shared, then at its end, then inside what one has alone.
TEST(SharedRunsTest, PinnedChunksComeFreeForNobody) {
  LetterHarness h;
  h.Run(1, "abcdefghijklmnop");
  ASSERT_TRUE(h.Fork(2, 1, 8).ok());
  ASSERT_TRUE(h.Grow(2, "other").ok());
  struct Expected {
    std::string pinned;
    int32_t shared_chunks;
    int32_t own_chunks;  // of 1
  };
  for (const Expected& e : {Expected{"abcd", 1, 2}, {"abcdefgh", 0, 2}, {"abcdefghijkl", 0, 1}}) {
    const testing::SpanOf range(testing::CellsOf(e.pinned));
    const int32_t pinned_tokens = h.cache->Pin({}, range.span());
    const std::vector<SequenceId> both = {SequenceId{1}, SequenceId{2}};
    const SharedRuns shared = h.cache->FindSharedRuns(both);
    ASSERT_EQ(shared.runs.size(), 1u) << e.pinned;
    EXPECT_EQ(shared.runs[0].chunks, e.shared_chunks) << e.pinned;
    EXPECT_EQ(shared.runs[0].holders, 2) << e.pinned;
    EXPECT_EQ(h.cache->ExclusiveChunks(SequenceId{1}), e.own_chunks) << e.pinned;
    EXPECT_EQ(h.cache->ExclusiveChunks(SequenceId{2}), 2) << e.pinned;
    h.cache->Unpin({}, range.span(), pinned_tokens);
  }
}

// Eight sequences: so many chunks that all have, then as many of its own for each.
struct LongSequences {
  explicit LongSequences(int32_t chunks) : h(9 * chunks, 8) {
    h.Join(1);
    Grow(1, chunks, TokenId{0});
    for (uint64_t id = 2; id <= 8; ++id) {
      EXPECT_TRUE(h.cache->Fork(SequenceId{id}, SequenceId{1}, 4 * chunks).ok());
    }
    for (uint64_t id = 1; id <= 8; ++id) {
      Grow(id, chunks, TokenId{static_cast<int32_t>(id)});
      ids.push_back(SequenceId{id});
    }
  }

  void Grow(uint64_t id, int32_t chunks, TokenId token) {
    const size_t count = 4 * static_cast<size_t>(chunks);
    std::vector<int32_t> positions(count);
    std::iota(positions.begin(), positions.end(), h.cache->appended_tokens(SequenceId{id}));
    ASSERT_TRUE(h.cache->Reserve(SequenceId{id}, 4 * chunks).ok());
    std::vector<TokenPlace> places;
    h.cache->Append(SequenceId{id}, positions, &places);
    h.cache->Publish(SequenceId{id}, std::vector<TokenId>(count, token));
  }

  // The best of several times, for the machine is shared.
  double Seconds() const {
    double best_s = 1e9;
    for (int i = 0; i < 100; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      for (const SequenceId id : ids) chunks_found += h.cache->ExclusiveChunks(id);
      chunks_found += h.cache->FindSharedRuns(ids).runs[0].chunks;
      const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
      best_s = std::min(best_s, time.count());
    }
    return best_s;
  }

  LetterHarness h;
  std::vector<SequenceId> ids;
  mutable int64_t chunks_found = 0;
};

// Each step may ask, while 256 sequences hold a quarter of a million chunks.
TEST(SharedRunsTest, LongSequencesCostLittleMoreThanShortOnes) {
  const LongSequences few(32), many(4096);
  EXPECT_LT(many.Seconds(), 5 * few.Seconds());
  EXPECT_EQ(few.chunks_found, 100 * 9 * 32);
  EXPECT_EQ(many.chunks_found, 100 * 9 * 4096);
}

}  // namespace
}  // namespace refrain::kvcache
