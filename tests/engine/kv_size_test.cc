#include "engine/kv_size.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

namespace refrain::engine {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;
constexpr int64_t kMiB = int64_t{1} << 20;

KvBudget Budget() {
  return {.available_bytes = 8 * kGiB,
          .chunk_bytes = kMiB,
          .chunk_tokens = 64,
          .context_tokens = 1 << 20,
          .max_sequences = 64};
}

TEST(KvSizeTest, TakesHalfOfWhatIsAvailableOrWhatIsAskedFor) {
  KvBudget budget = Budget();
  EXPECT_EQ(*KvChunksFor(budget), 4096);
  budget.memory_bytes = 100 * kMiB + 5;
  EXPECT_EQ(*KvChunksFor(budget), 100);
}

TEST(KvSizeTest, TakesNoShareThatNobodyCouldFill) {
  KvBudget budget = Budget();
  budget.context_tokens = 100;
  budget.max_sequences = 3;
  EXPECT_EQ(*KvChunksFor(budget), 2 * 3 * 2);
  budget.memory_bytes = kGiB;  // as cache it is of use
  EXPECT_EQ(*KvChunksFor(budget), 1024);
}

// The model was loaded for the positions of the first answer. A pool of more tokens would admit
// requests at positions for which there are no rotation angles.
TEST(KvSizeTest, DoesNotGrowBeyondAnEarlierAnswer) {
  KvBudget budget = Budget();
  budget.available_bytes = 20 * kMiB;
  budget.most_chunks = *KvChunksFor(budget);
  EXPECT_EQ(budget.most_chunks, 10);
  budget.available_bytes = 8 * kGiB;
  EXPECT_EQ(*KvChunksFor(budget), 10);
  budget.available_bytes = 6 * kMiB;
  EXPECT_EQ(*KvChunksFor(budget), 3);
}

// 16 GiB for one request where 100 MiB are to be had.
TEST(KvSizeTest, RefusesLessThanTheContextThatWasAskedForNamingBoth) {
  KvBudget budget = Budget();
  budget.memory_bytes = 100 * kMiB;
  budget.asked_context_tokens = 6400;
  EXPECT_EQ(*KvChunksFor(budget), 100);
  budget.asked_context_tokens = 6401;
  const absl::Status of_asked = KvChunksFor(budget).status();
  EXPECT_EQ(of_asked.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(of_asked.message(),
            "engine.max_context_tokens is 6401, the KV cache holds 6400 tokens in "
            "kv_cache.memory_bytes of 104857600 bytes");
  budget.memory_bytes = 0;
  budget.available_bytes = 200 * kMiB;
  const absl::Status of_free = KvChunksFor(budget).status();
  EXPECT_EQ(of_free.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(of_free.message(),
            "engine.max_context_tokens is 6401, the KV cache holds 6400 tokens in half of the free "
            "memory, 104857600 bytes");
  budget.asked_context_tokens = 0;
  EXPECT_EQ(*KvChunksFor(budget), 100);
}

TEST(KvSizeTest, CountsTokensInThirtyTwoBits) {
  KvBudget budget = Budget();
  budget.memory_bytes = std::numeric_limits<int64_t>::max();
  budget.chunk_bytes = 1;
  const int64_t chunks = *KvChunksFor(budget);
  EXPECT_LE(chunks * budget.chunk_tokens, std::numeric_limits<int32_t>::max());
  EXPECT_GT((chunks + 1) * budget.chunk_tokens, std::numeric_limits<int32_t>::max());
}

TEST(KvSizeTest, RefusesLessThanOneChunkNamingTheSizes) {
  KvBudget budget = Budget();
  budget.memory_bytes = 1000;
  const absl::Status status = KvChunksFor(budget).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "kv_cache.memory_bytes of 1000 bytes does not hold one chunk of 1048576 bytes");
}

// Less than is free now may be meant: others may end, and control groups change.
TEST(KvSizeTest, RefusesMoreThanTheDeviceHasNamingBoth) {
  KvBudget budget = Budget();
  budget.total_bytes = 16 * kGiB;
  budget.memory_bytes = 16 * kGiB;
  EXPECT_EQ(*KvChunksFor(budget), 16384);
  budget.memory_bytes = 16 * kGiB + kMiB;
  const absl::Status status = KvChunksFor(budget).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "kv_cache.memory_bytes of 17180917760 bytes is more than all memory there is, "
            "17179869184 bytes");
  // What is asked for is not taken beyond what can be counted.
  budget.most_chunks = 16384;
  EXPECT_EQ(*KvChunksFor(budget), 16384);
}

// A step takes it before the first chunk is full.
TEST(KvSizeTest, LeavesWhatStepsTake) {
  KvBudget budget = Budget();
  budget.available_bytes = 20 * kMiB;
  budget.step_bytes = 6 * kMiB;
  EXPECT_EQ(*KvChunksFor(budget), 7);
  budget.memory_bytes = 10 * kMiB;  // who asks for it has reckoned
  EXPECT_EQ(*KvChunksFor(budget), 10);
  budget.memory_bytes = 0;
  budget.step_bytes = 30 * kMiB;
  EXPECT_EQ(KvChunksFor(budget).status().message(),
            "no room for the KV cache: one chunk needs 1048576 bytes, and half of the 0 bytes that "
            "are free beside 31457280 for steps may be used");
}

TEST(KvSizeTest, NamesWhatIsFreeWhenThatDoesNotHoldOneChunk) {
  const absl::StatusOr<int32_t> chunks =
      KvChunksFor({.available_bytes = 1500, .chunk_bytes = 1000, .max_sequences = 1});
  EXPECT_EQ(chunks.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(chunks.status().message(),
            "no room for the KV cache: one chunk needs 1000 bytes, and half of the 1500 bytes that "
            "are free may be used");
}

}  // namespace
}  // namespace refrain::engine
