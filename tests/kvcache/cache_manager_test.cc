#include "kvcache/cache_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include "tests/support/fake_chunk_mover.h"
#include "tests/support/random_steps.h"

namespace refrain::kvcache {
namespace {

using ::refrain::testing::FakeChunkMover;
using ::refrain::testing::FakeKvCell;
using ::testing::HasSubstr;

constexpr int32_t kChunkTokens = 16;

// A manager over fake memory, and beside it what each sequence should hold, as plain lists.
struct Harness {
  explicit Harness(int32_t num_chunks, int32_t max_slots = 8)
      : mover(num_chunks, kChunkTokens),
        cache(*CacheManager::Create({num_chunks, kChunkTokens, max_slots}, &mover)) {}

  absl::Status Grow(SequenceId id, const std::vector<FakeKvCell>& cells) {
    const absl::Status status = cache->Reserve(id, static_cast<int32_t>(cells.size()));
    if (!status.ok()) return status;
    std::vector<int32_t> positions;
    std::vector<TokenId> ids;
    for (const FakeKvCell& cell : cells) {
      positions.push_back(cell.position);
      ids.push_back(TokenId{cell.token});
    }
    std::vector<TokenPlace> places;
    cache->Append(id, positions, &places);
    for (size_t i = 0; i < cells.size(); ++i) {
      mover.cell(static_cast<int32_t>(places[i].chunk), places[i].offset) = cells[i];
    }
    cache->Publish(id, ids);
    auto& all = expected[id];
    all.insert(all.end(), cells.begin(), cells.end());
    return absl::OkStatus();
  }

  absl::Status Grow(SequenceId id, int32_t num_tokens) {
    std::vector<FakeKvCell> cells;
    for (int32_t i = 0; i < num_tokens; ++i) {
      cells.push_back({next_token++, static_cast<int32_t>(expected[id].size()) + i});
    }
    return Grow(id, cells);
  }

  absl::Status Fork(SequenceId id, SequenceId source, int32_t num_tokens) {
    const auto slot = cache->Fork(id, source, num_tokens);
    if (!slot.ok()) return slot.status();
    const auto& from = expected[source];
    expected[id].assign(from.begin(), from.begin() + num_tokens);
    return absl::OkStatus();
  }

  void Leave(SequenceId id) {
    cache->Leave(id);
    expected.erase(id);
  }

  // What a kernel would read for the sequence.
  std::vector<FakeKvCell> Read(SequenceId id) {
    std::vector<FakeKvCell> cells;
    const auto plan = cache->Plan();
    const size_t length = expected[id].size();
    for (const PlanRun& run : plan->runs) {
      for (int32_t s = run.slot_begin; s < run.slot_end; ++s) {
        const PlanSlot& slot = plan->slots[static_cast<size_t>(s)];
        if (slot.slot != cache->slot(id)) continue;
        EXPECT_EQ(static_cast<size_t>(slot.key_begin), cells.size());
        for (int32_t k = run.chunk_begin; k < run.chunk_end; ++k) {
          const PlanChunk& chunk = plan->chunks[static_cast<size_t>(k)];
          EXPECT_EQ(slot.key_begin + chunk.token_begin, static_cast<int32_t>(cells.size()));
          for (int32_t i = 0; i < kChunkTokens && cells.size() < length; ++i) {
            const size_t place = ToIndex(chunk.chunk) * kChunkTokens + static_cast<size_t>(i);
            FakeKvCell cell = mover.cell(static_cast<int32_t>(chunk.chunk), i);
            EXPECT_EQ(cache->positions()[place], cell.position);
            cells.push_back(cell);
          }
        }
      }
    }
    return cells;
  }

  void CheckAll() {
    ASSERT_EQ(cache->CheckInvariants(), absl::OkStatus());
    for (const auto& [id, cells] : expected) {
      ASSERT_EQ(Read(id), cells) << "sequence " << static_cast<uint64_t>(id);
    }
  }

  FakeChunkMover mover;
  std::unique_ptr<CacheManager> cache;
  std::map<SequenceId, std::vector<FakeKvCell>> expected;
  int32_t next_token = 1;
};

TEST(CacheManagerTest, RefusesSizesThatCannotWork) {
  FakeChunkMover mover(1, 16);
  EXPECT_THAT(CacheManager::Create({0, 16, 1}, &mover).status().message(),
              HasSubstr("num_chunks is 0"));
  EXPECT_THAT(CacheManager::Create({1, 20, 1}, &mover).status().message(),
              HasSubstr("chunk_tokens is 20"));
  EXPECT_THAT(CacheManager::Create({1, 16, 0}, &mover).status().message(),
              HasSubstr("max_slots is 0"));
}

// Tokens go into chunks in order, chunk by chunk, with the positions given.
TEST(CacheManagerTest, KeepsTokensAndPositionsInOrder) {
  Harness h(8);
  ASSERT_TRUE(h.cache->Join(SequenceId{1}, {}, {}).ok());
  ASSERT_TRUE(h.Grow(SequenceId{1}, {{7, 100}, {8, 3}, {9, 3}}).ok());
  ASSERT_TRUE(h.Grow(SequenceId{1}, 40).ok());
  EXPECT_EQ(h.cache->stats().used_chunks, 3);
  h.CheckAll();
}

// The plan stays while sequences grow inside their chunks, and changes when one enters a new chunk.
TEST(CacheManagerTest, PlanChangesOnlyWithTheStructure) {
  Harness h(8);
  ASSERT_TRUE(h.cache->Join(SequenceId{1}, {}, {}).ok());
  ASSERT_TRUE(h.Grow(SequenceId{1}, 1).ok());
  const auto before = h.cache->Plan();
  for (int i = 1; i < kChunkTokens; ++i) ASSERT_TRUE(h.Grow(SequenceId{1}, 1).ok());
  EXPECT_EQ(h.cache->Plan(), before);
  ASSERT_TRUE(h.cache->Reserve(SequenceId{1}, 1).ok());
  EXPECT_EQ(h.cache->Plan(), before);
  ASSERT_TRUE(h.Grow(SequenceId{1}, 1).ok());
  EXPECT_NE(h.cache->Plan(), before);
  EXPECT_NE(h.cache->Plan()->generation, before->generation);
}

TEST(CacheManagerTest, SlotsAreStableAndReused) {
  Harness h(8, /*max_slots=*/2);
  const SlotId a = *h.cache->Join(SequenceId{1}, {}, {});
  const SlotId b = *h.cache->Join(SequenceId{2}, {}, {});
  EXPECT_NE(a, b);
  EXPECT_THAT(h.cache->Join(SequenceId{3}, {}, {}).status().message(),
              HasSubstr("all 2 sequence slots"));
  h.cache->Leave(SequenceId{1});
  EXPECT_EQ(*h.cache->Join(SequenceId{3}, {}, {}), a);
  EXPECT_EQ(h.cache->slot(SequenceId{2}), b);
}

// Two forks of a prompt of 2.5 chunks: two chunks shared by three, the half one copied twice.
TEST(CacheManagerTest, ForksShareFullChunksAndCopyThePartFullOne) {
  Harness h(16);
  ASSERT_TRUE(h.cache->Join(SequenceId{1}, {}, {}).ok());
  ASSERT_TRUE(h.Grow(SequenceId{1}, 40).ok());
  ASSERT_TRUE(h.Fork(SequenceId{2}, SequenceId{1}, 39).ok());
  ASSERT_TRUE(h.Fork(SequenceId{3}, SequenceId{1}, 39).ok());
  EXPECT_EQ(h.mover.copies, 2);
  EXPECT_EQ(h.cache->stats().used_chunks, 5);
  EXPECT_EQ(h.cache->ExclusiveChunks(SequenceId{2}), 1);
  for (uint64_t id = 1; id <= 3; ++id) ASSERT_TRUE(h.Grow(SequenceId{id}, 20).ok());
  h.CheckAll();

  const auto plan = h.cache->Plan();
  ASSERT_EQ(plan->runs.size(), 4u);
  EXPECT_EQ(plan->runs[0].chunk_end - plan->runs[0].chunk_begin, 2);
  EXPECT_EQ(plan->runs[0].slot_end - plan->runs[0].slot_begin, 3);
  for (size_t i = 1; i < 4; ++i) {
    EXPECT_EQ(plan->runs[i].slot_end - plan->runs[i].slot_begin, 1);
    EXPECT_EQ(plan->slots[static_cast<size_t>(plan->runs[i].slot_begin)].key_begin, 32);
  }

  h.Leave(SequenceId{1});
  h.CheckAll();
  h.Leave(SequenceId{3});
  h.Leave(SequenceId{2});
  EXPECT_EQ(h.cache->stats().free_chunks, 16);
}

// A fork of a fork: three levels in the plan.
TEST(CacheManagerTest, PlanFollowsNestedForks) {
  Harness h(32);
  ASSERT_TRUE(h.cache->Join(SequenceId{1}, {}, {}).ok());
  ASSERT_TRUE(h.Grow(SequenceId{1}, 16).ok());
  ASSERT_TRUE(h.Fork(SequenceId{2}, SequenceId{1}, 16).ok());
  ASSERT_TRUE(h.Grow(SequenceId{1}, 32).ok());
  ASSERT_TRUE(h.Grow(SequenceId{2}, 16).ok());
  ASSERT_TRUE(h.Fork(SequenceId{3}, SequenceId{1}, 48).ok());
  ASSERT_TRUE(h.Grow(SequenceId{1}, 1).ok());
  ASSERT_TRUE(h.Grow(SequenceId{3}, 1).ok());
  h.CheckAll();
  EXPECT_EQ(h.cache->Plan()->runs.size(), 5u);  // {1,3,2} {1,3} {1} {3} {2}
}

TEST(CacheManagerTest, ReserveThatDoesNotFitChangesNothing) {
  Harness h(2);
  ASSERT_TRUE(h.cache->Join(SequenceId{1}, {}, {}).ok());
  const absl::Status status = h.cache->Reserve(SequenceId{1}, 33);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("3 more KV chunks for 33 tokens, 2 of 2 are free"));
  EXPECT_EQ(h.cache->stats().free_chunks, 2);
}

TEST(CacheManagerTest, FailedCopyLeavesNoTrace) {
  Harness h(4);
  ASSERT_TRUE(h.cache->Join(SequenceId{1}, {}, {}).ok());
  ASSERT_TRUE(h.Grow(SequenceId{1}, 10).ok());
  h.mover.fail_next_copy = true;
  EXPECT_EQ(h.Fork(SequenceId{2}, SequenceId{1}, 10).code(), absl::StatusCode::kInternal);
  EXPECT_FALSE(h.cache->Contains(SequenceId{2}));
  EXPECT_EQ(h.cache->stats().used_chunks, 1);
  h.CheckAll();
}

// Tokens appended and never published (a stop seen one step late) are gone after Leave.
TEST(CacheManagerTest, UnpublishedTokensAreDroppedByLeave) {
  Harness h(4);
  ASSERT_TRUE(h.cache->Join(SequenceId{1}, {}, {}).ok());
  ASSERT_TRUE(h.cache->Reserve(SequenceId{1}, 1).ok());
  std::vector<TokenPlace> places;
  const int32_t position = 0;
  h.cache->Append(SequenceId{1}, {&position, 1}, &places);
  EXPECT_EQ(h.cache->appended_tokens(SequenceId{1}), 1);
  EXPECT_EQ(h.cache->published_tokens(SequenceId{1}), 0);
  h.cache->Leave(SequenceId{1});
  EXPECT_EQ(h.cache->stats().free_chunks, 4);
}

TEST(CacheManagerTest, RandomOperationsAgreeWithPlainLists) {
  Harness h(/*num_chunks=*/60, /*max_slots=*/12);
  std::mt19937 random(4711);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  uint64_t next_id = 1;
  int64_t refused = 0;
  for (int step = 0; step < testing::RandomSteps(); ++step) {
    const auto pick = [&] {
      return std::next(h.expected.begin(), below(h.expected.size()))->first;
    };
    const size_t action = below(10);
    if (h.expected.empty() || action == 0) {
      const SequenceId id{next_id++};
      if (h.cache->Join(id, {}, {}).ok()) h.expected[id];
    } else if (action == 1) {
      const SequenceId source = pick();
      const auto length = h.expected[source].size();
      const SequenceId id{next_id++};
      refused += h.Fork(id, source, static_cast<int32_t>(below(length + 1))).ok() ? 0 : 1;
    } else if (action == 2 && below(2) == 0) {
      h.Leave(pick());
    } else {
      refused += h.Grow(pick(), static_cast<int32_t>(1 + below(action < 6 ? 3 : 30))).ok() ? 0 : 1;
      if (h.cache->stats().free_chunks < 3) h.Leave(pick());
    }
    ASSERT_NO_FATAL_FAILURE(h.CheckAll()) << "step " << step;
  }
  EXPECT_GT(refused, 50);
  EXPECT_GT(h.mover.copies, 100);
  while (!h.expected.empty()) h.Leave(h.expected.begin()->first);
  EXPECT_EQ(h.cache->stats().free_chunks, 60);
}

}  // namespace
}  // namespace refrain::kvcache
