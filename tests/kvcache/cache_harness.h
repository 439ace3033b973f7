#ifndef REFRAIN_TESTS_KVCACHE_CACHE_HARNESS_H_
#define REFRAIN_TESTS_KVCACHE_CACHE_HARNESS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "kvcache/cache_manager.h"
#include "tests/kvcache/cells.h"
#include "tests/kvcache/plan_order.h"
#include "tests/support/fake_chunk_mover.h"

namespace refrain::testing {

// A cache manager over fake memory, and beside it what each sequence should hold, as plain lists.
struct CacheHarness {
  explicit CacheHarness(const kvcache::CacheOptions& options)
      : mover(options.num_chunks, options.chunk_tokens),
        cache(*kvcache::CacheManager::Create(options, &mover)) {}

  kvcache::MatchResult Match(const Cells& prompt, const std::string& salt = "") const {
    return cache->Match({"", salt}, SpanOf(prompt).span());
  }
  kvcache::MatchResult MatchAgain(const kvcache::MatchResult& before, const Cells& prompt,
                                  const std::string& salt = "") const {
    return cache->MatchAgain(before, {"", salt}, SpanOf(prompt).span());
  }

  // Joins with what is cached of `prompt`; returns how many tokens that were.
  int32_t Join(uint64_t id, const Cells& prompt = {}, const std::string& salt = "") {
    const kvcache::MatchResult match = Match(prompt, salt);
    const int32_t length = static_cast<int32_t>(prompt.size());
    EXPECT_TRUE(cache->Join(kvcache::SequenceId{id}, {"", salt}, match, length).ok());
    expected[id] = Cells(prompt.begin(), prompt.begin() + match.num_tokens);
    salts[id] = salt;
    return match.num_tokens;
  }

  absl::Status Fork(uint64_t id, uint64_t source, int32_t num_tokens) {
    const auto slot = cache->Fork(kvcache::SequenceId{id}, kvcache::SequenceId{source}, num_tokens);
    if (!slot.ok()) return slot.status();
    const Cells& from = expected[source];
    expected[id].assign(from.begin(), from.begin() + num_tokens);
    salts[id] = salts[source];
    return absl::OkStatus();
  }

  // One step: places for the tokens, their K and V written.
  absl::Status Append(uint64_t id, const Cells& cells) {
    const int32_t count = static_cast<int32_t>(cells.size());
    const absl::Status status = cache->Reserve(kvcache::SequenceId{id}, count);
    if (!status.ok()) return status;
    std::vector<kvcache::TokenPlace> places;
    cache->Append(kvcache::SequenceId{id}, SpanOf(cells).positions, &places);
    EXPECT_EQ(places.size(), cells.size());
    for (size_t i = 0; i < cells.size(); ++i) {
      mover.cell(static_cast<int32_t>(places[i].chunk), places[i].offset) = cells[i];
      written_for[places[i].chunk] = salts[id];
      brought_positions[Place(places[i].chunk, places[i].offset)] = cells[i].position;
    }
    Cells& all = expected[id];
    all.insert(all.end(), cells.begin(), cells.end());
    const int32_t lost =
        cache->reserved_tokens(kvcache::SequenceId{id}) - static_cast<int32_t>(all.size());
    EXPECT_LT(lost, mover.chunk_tokens()) << "places that sequence " << id << " has too many of";
    return absl::OkStatus();
  }

  // The first `count` unpublished tokens.
  void Publish(uint64_t id, int32_t count) {
    const auto begin = expected[id].begin() + cache->published_tokens(kvcache::SequenceId{id});
    cache->Publish(kvcache::SequenceId{id}, SpanOf(Cells(begin, begin + count)).ids);
  }

  absl::Status Grow(uint64_t id, const Cells& cells) {
    const absl::Status status = Append(id, cells);
    if (status.ok()) Publish(id, static_cast<int32_t>(cells.size()));
    return status;
  }
  absl::Status Grow(uint64_t id, const std::string& text) {
    return Grow(id, CellsOf(text, static_cast<int32_t>(expected[id].size())));
  }

  // A request from its beginning: `text`, what is cached of it taken from there.
  int32_t Run(uint64_t id, const std::string& text, const std::string& salt = "") {
    const int32_t matched = Join(id, CellsOf(text), salt);
    EXPECT_EQ(Grow(id, text.substr(static_cast<size_t>(matched))), absl::OkStatus());
    return matched;
  }

  void Leave(uint64_t id) {
    cache->Leave(kvcache::SequenceId{id});
    expected.erase(id);
    salts.erase(id);
  }

  void LeaveForNow(uint64_t id) {
    cache->LeaveForNow(kvcache::SequenceId{id});
    expected.erase(id);
    salts.erase(id);
  }

  void LeaveForGood(uint64_t id, int32_t kept_tokens) {
    cache->LeaveForGood(kvcache::SequenceId{id}, kept_tokens);
    expected.erase(id);
    salts.erase(id);
  }

  // What a kernel would read for each running sequence, by the plan; nothing of another salt, and
  // no chunk once for each of its holders; in depth-first order.
  void CheckReads() {
    const auto plan = cache->Plan();
    std::set<kvcache::ChunkId> planned;
    for (const kvcache::PlanChunk& chunk : plan->chunks) {
      ASSERT_TRUE(planned.insert(chunk.chunk).second)
          << "chunk " << static_cast<int32_t>(chunk.chunk) << " is in two places of the plan";
    }
    BringPositions(*plan);
    ASSERT_NO_FATAL_FAILURE(CheckDepthFirst(*plan));
    std::map<kvcache::SlotId, Cells> read;
    std::map<kvcache::SlotId, uint64_t> owner;
    for (const auto& [id, cells] : expected) owner[cache->slot(kvcache::SequenceId{id})] = id;
    for (const kvcache::PlanRun& run : plan->runs) {
      ASSERT_LT(run.chunk_begin, run.chunk_end);
      for (int32_t s = run.slot_begin; s < run.slot_end; ++s) {
        const kvcache::PlanSlot& slot = plan->slots[static_cast<size_t>(s)];
        ASSERT_TRUE(owner.contains(slot.slot));
        for (int32_t k = run.chunk_begin; k < run.chunk_end; ++k) {
          ASSERT_EQ(written_for[plan->chunks[static_cast<size_t>(k)].chunk],
                    salts[owner[slot.slot]]);
        }
        ReadRun(*plan, run, slot, expected[owner[slot.slot]].size(), &read[slot.slot]);
      }
    }
    for (const auto& [id, cells] : expected) {
      ASSERT_EQ(read[cache->slot(kvcache::SequenceId{id})], cells) << "sequence " << id;
    }
  }

  void CheckAll() {
    ASSERT_EQ(cache->CheckInvariants(), absl::OkStatus());
    ASSERT_NO_FATAL_FAILURE(CheckReads());
  }

  FakeChunkMover mover;
  std::unique_ptr<kvcache::CacheManager> cache;
  std::map<uint64_t, Cells> expected;  // appended tokens
  std::map<uint64_t, std::string> salts;
  std::map<kvcache::ChunkId, std::string> written_for;  // salt of who wrote last
  // As a device has them: while the plan stays the same one, only appended tokens' come.
  std::vector<int32_t> brought_positions = std::vector<int32_t>(cache->positions().size(), -1);
  uint64_t brought_generation = 0;  // of the plan whose chunks were brought

 private:
  size_t Place(kvcache::ChunkId chunk, int32_t offset) const {
    return ToIndex(chunk) * static_cast<size_t>(mover.chunk_tokens()) + static_cast<size_t>(offset);
  }
  void BringPositions(const kvcache::AttentionPlan& plan) {
    if (brought_generation == plan.generation) return;
    brought_generation = plan.generation;
    for (const kvcache::PlanChunk& chunk : plan.chunks) {
      std::copy_n(&cache->positions()[Place(chunk.chunk, 0)], mover.chunk_tokens(),
                  &brought_positions[Place(chunk.chunk, 0)]);
    }
  }

  void ReadRun(const kvcache::AttentionPlan& plan, const kvcache::PlanRun& run,
               const kvcache::PlanSlot& slot, size_t length, Cells* read) {
    const int32_t c = mover.chunk_tokens();
    const int32_t end =
        std::min(static_cast<int32_t>(length), slot.key_end.value_or(static_cast<int32_t>(length)));
    for (int32_t k = run.chunk_begin; k < run.chunk_end; ++k) {
      const kvcache::PlanChunk& chunk = plan.chunks[static_cast<size_t>(k)];
      const int32_t begin = slot.key_begin + chunk.token_begin;
      const int32_t chunk_end =
          k + 1 < run.chunk_end
              ? slot.key_begin + plan.chunks[static_cast<size_t>(k) + 1].token_begin
              : begin + c;
      for (int32_t key = begin; key < std::min(chunk_end, end); ++key) {
        ASSERT_EQ(static_cast<size_t>(key), read->size());
        const FakeKvCell cell = mover.cell(static_cast<int32_t>(chunk.chunk), key - begin);
        const size_t place = Place(chunk.chunk, key - begin);
        ASSERT_EQ(cache->positions()[place], cell.position);
        ASSERT_EQ(brought_positions[place], cell.position);
        read->push_back(cell);
      }
    }
  }
};

// Chunks of four tokens, a token per character: "abcd|efgh|ij".
struct LetterHarness : CacheHarness {
  explicit LetterHarness(int32_t num_chunks = 32, int32_t max_slots = 8)
      : CacheHarness({.num_chunks = num_chunks,
                      .chunk_tokens = 4,
                      .max_slots = max_slots,
                      .eviction = "lru"}) {}
};

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_KVCACHE_CACHE_HARNESS_H_
