#include "engine/seen_prefixes.h"

#include <gtest/gtest.h>

#include <vector>

namespace refrain::engine {
namespace {

// A prompt of 40 tokens in chunks of 10, of which the keys name all but the last chunk.
PromptLookup Lookup(std::span<const uint64_t> keys, int32_t cached_tokens) {
  return {.keys = keys,
          .chunk_tokens = 10,
          .prompt_tokens = 40,
          .cached_tokens = cached_tokens,
          .goes_on = true,
          .prefix_cache = true};
}

const std::vector<uint64_t> kKeys = {11, 12, 13};

TEST(SeenPrefixesTest, TellsAMissOfTheUnknownFromADivergence) {
  SeenPrefixes seen;
  auto miss = ExplainMiss(seen, Lookup(kKeys, 0));
  ASSERT_TRUE(miss.has_value());
  EXPECT_EQ(miss->reason, CacheMissReason::kNeverSeen);
  seen.Add(std::vector<uint64_t>{11, 99});
  miss = ExplainMiss(seen, Lookup(kKeys, 14));
  EXPECT_EQ(miss->reason, CacheMissReason::kDiverged);
  EXPECT_EQ(miss->at_token, 14);
  // What was there has been found to its end: the next turn of a conversation.
  PromptLookup next_turn = Lookup(kKeys, 14);
  next_turn.goes_on = false;
  miss = ExplainMiss(seen, next_turn);
  EXPECT_EQ(miss->reason, CacheMissReason::kNeverSeen);
  EXPECT_EQ(miss->at_token, 14);
}

TEST(SeenPrefixesTest, RemembersWhatTheCacheHasNoMore) {
  SeenPrefixes seen;
  seen.Add(kKeys);
  const auto miss = ExplainMiss(seen, Lookup(kKeys, 10));
  ASSERT_TRUE(miss.has_value());
  EXPECT_EQ(miss->reason, CacheMissReason::kEvicted);
  EXPECT_EQ(miss->at_token, 10);
  EXPECT_EQ(miss->evicted_tokens, 20);
  // All that it remembers is there: what is missing had never been.
  EXPECT_EQ(ExplainMiss(seen, Lookup(kKeys, 30))->reason, CacheMissReason::kDiverged);
}

TEST(SeenPrefixesTest, SaysNothingWhereAllWasFound) {
  EXPECT_FALSE(ExplainMiss(SeenPrefixes(), Lookup(kKeys, 39)).has_value());
  EXPECT_TRUE(ExplainMiss(SeenPrefixes(), Lookup(kKeys, 38)).has_value());
}

TEST(SeenPrefixesTest, NamesTruncationAndAMissingCache) {
  PromptLookup lookup = Lookup(kKeys, 0);
  lookup.truncated = true;
  EXPECT_EQ(ExplainMiss(SeenPrefixes(), lookup)->reason, CacheMissReason::kTruncated);
  lookup.prefix_cache = false;
  EXPECT_EQ(ExplainMiss(SeenPrefixes(), lookup)->reason, CacheMissReason::kDisabled);
}

TEST(SeenPrefixesTest, KeepsTheYoungerHalfOfItsBound) {
  SeenPrefixes seen(8);
  for (uint64_t key = 1; key <= 100; ++key) seen.Add(std::vector<uint64_t>{key});
  int kept = 0;
  for (uint64_t key = 1; key <= 100; ++key) {
    const size_t found = seen.SeenChunks(std::vector<uint64_t>{key});
    if (key > 96) {
      EXPECT_EQ(found, 1u) << key;
    }
    kept += static_cast<int>(found);
  }
  EXPECT_LE(kept, 8);
}

// The first keys of a long prompt may have been dropped before its last ones.
TEST(SeenPrefixesTest, RecognisesAPrefixByItsLastKey) {
  SeenPrefixes seen(8);
  seen.Add(std::vector<uint64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  EXPECT_EQ(seen.SeenChunks(std::vector<uint64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}), 10u);
}

}  // namespace
}  // namespace refrain::engine
