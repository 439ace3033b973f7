#include "kernels/cuda/attention_tiles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "kernels/cuda/attention_shares.h"
#include "tests/kernels/cuda/random_plan.h"
#include "tests/support/slow_build.h"

namespace refrain::kernels::cuda {
namespace {

// The list's arrays, read as a kernel reads them.
struct Arrays {
  std::span<const int32_t> share_begin;
  std::span<const AttentionTile> tiles;
  std::span<const TileMember> members;
  std::span<const TileChunk> chunks;
  std::span<const RowGroup> row_groups;
  std::span<const int32_t> parts;
};

Arrays Read(const AttentionTiles& tiles) {
  const AttentionTileList& list = tiles.list();
  EXPECT_EQ(list.bytes, tiles.bytes().size());
  const auto array = [&]<class T>(const T*, uint32_t offset, int32_t count) {
    EXPECT_EQ(offset % 16, 0u);
    EXPECT_LE(offset + count * sizeof(T), tiles.bytes().size());
    return std::span(reinterpret_cast<const T*>(tiles.bytes().data() + offset),
                     static_cast<size_t>(count));
  };
  Arrays a;
  a.share_begin = array((int32_t*){}, list.share_begin_offset, list.num_shares + 1);
  a.tiles = array((AttentionTile*){}, list.tiles_offset, list.num_tiles);
  a.members = array((TileMember*){}, list.members_offset, list.num_members);
  a.chunks = array((TileChunk*){}, list.chunks_offset, list.num_chunks);
  a.row_groups = array((RowGroup*){}, list.row_groups_offset, list.num_row_groups);
  a.parts = array((int32_t*){}, list.parts_offset, list.num_parts);
  return a;
}

// [slot][key index] -> (chunk, token), from the plan as the reference reads it.
std::vector<std::vector<std::pair<int, int>>> Places(const AttentionPlanView& plan,
                                                     std::span<const SlotStep> steps,
                                                     int chunk_tokens) {
  std::vector<std::vector<std::pair<int, int>>> places(steps.size());
  for (const AttentionRun& run : plan.runs) {
    for (int s = run.slot_begin; s < run.slot_end; ++s) {
      const RunSlot& at = plan.slots[s];
      for (int i = run.chunk_begin; i < run.chunk_end; ++i) {
        const int begin = plan.chunks[i].token_begin;
        const int end =
            i + 1 < run.chunk_end ? plan.chunks[i + 1].token_begin : begin + chunk_tokens;
        for (int t = begin; t < end; ++t) {
          const int key = at.key_begin + t;
          if (key >= std::min(at.key_end, steps[at.slot].key_end)) break;
          EXPECT_EQ(key, std::ssize(places[at.slot]));
          places[at.slot].push_back({plan.chunks[i].chunk, t - begin});
        }
      }
    }
  }
  return places;
}

// Every key that a row sees is in one tile with it, at the chunk and token where it lies.
void ExpectCoversOnce(const AttentionTiles& tiles, const AttentionPlanView& plan,
                      std::span<const SlotStep> steps) {
  const Arrays a = Read(tiles);
  const auto places = Places(plan, steps, tiles.limits().chunk_tokens);
  std::map<std::pair<int, int>, std::vector<int>> seen;  // (slot, row) -> times per key
  for (size_t slot = 0; slot < steps.size(); ++slot) {
    for (int row = 0; row < steps[slot].num_rows; ++row) {
      seen[{slot, row}].assign(steps[slot].key_end - steps[slot].num_rows + row + 1, 0);
    }
  }
  std::map<std::pair<int, int>, int> results;  // outputs or parts per (slot, row)
  for (const AttentionTile& tile : a.tiles) {
    int rows = 0;
    ASSERT_LE(tile.key_begin, tile.key_end);
    if (tile.key_begin < tile.key_end) {
      ASSERT_LT(tile.chunk_begin, tile.chunk_end);
      ASSERT_LE(a.chunks[tile.chunk_begin].key_begin, tile.key_begin);
      // Whole chunks, so that a kernel may copy them as such.
      ASSERT_TRUE(tiles.list().reproducible != 0 ||
                  a.chunks[tile.chunk_begin].key_begin == tile.key_begin);
      ASSERT_LT(a.chunks[tile.chunk_end - 1].key_begin, tile.key_end);
    }
    for (int m = tile.member_begin; m < tile.member_end; ++m) {
      const TileMember& member = a.members[m];
      const RowGroup& group = a.row_groups[member.row_group];
      ASSERT_EQ(member.first_row, rows);
      rows += group.num_rows;
      for (int i = 0; i < group.num_rows; ++i) {
        auto& keys = seen.at({group.slot, group.row_begin + i});
        ++results[{group.slot, group.row_begin + i}];
        for (int c = tile.chunk_begin; c < tile.chunk_end; ++c) {
          const int end = c + 1 < tile.chunk_end ? a.chunks[c + 1].key_begin : tile.key_end;
          ASSERT_LE(end - a.chunks[c].key_begin, tiles.limits().chunk_tokens);
          for (int k = std::max(a.chunks[c].key_begin, tile.key_begin); k < end; ++k) {
            const int key = k + member.key_offset;
            if (key < member.key_begin) continue;
            if (key >= std::min<int>(member.key_end, keys.size())) continue;
            ++keys[key];
            const std::pair place = {a.chunks[c].chunk, k - a.chunks[c].key_begin};
            ASSERT_EQ(place, places[group.slot][key]);
          }
        }
      }
    }
    ASSERT_EQ(rows, tile.num_rows);
    ASSERT_LE(rows * tiles.head_blocks().heads_per_block, tiles.limits().max_queries);
  }
  for (const auto& [row, keys] : seen) {
    ASSERT_GE(results[row], 1) << row.first << " " << row.second;
    for (size_t key = 0; key < keys.size(); ++key) {
      const bool read = static_cast<int>(key) >= steps[row.first].key_begin;
      ASSERT_TRUE(keys[key] == 1 || (!read && keys[key] == 0))
          << "slot " << row.first << " row " << row.second << " key " << key << " " << keys[key];
    }
  }
}

// Parts are listed left to right and are the members' partial rows, each row of which is one's own.
void ExpectPartsInOrder(const AttentionTiles& tiles) {
  const Arrays a = Read(tiles);
  std::map<int, std::vector<std::pair<int, int>>> parts;  // row group -> (key, partial row)
  std::set<int> used;
  for (const AttentionTile& tile : a.tiles) {
    for (int m = tile.member_begin; m < tile.member_end; ++m) {
      const TileMember& member = a.members[m];
      const int key = std::max(tile.key_begin + member.key_offset, member.key_begin);
      parts[member.row_group].push_back({key, member.partial_row});
      if (member.partial_row < 0) continue;
      for (int i = 0; i < a.row_groups[member.row_group].num_rows; ++i) {
        EXPECT_TRUE(used.insert(member.partial_row + i).second);
      }
    }
  }
  EXPECT_EQ(std::ssize(used), tiles.num_partial_rows());
  EXPECT_EQ(used.empty() ? -1 : *used.rbegin(), tiles.num_partial_rows() - 1);
  for (auto& [group, list] : parts) {
    const RowGroup& rows = a.row_groups[group];
    if (list.size() == 1) {
      EXPECT_EQ(list[0].second, -1);
      EXPECT_EQ(rows.num_parts, 0);
      continue;
    }
    ASSERT_EQ(rows.num_parts, std::ssize(list));
    std::sort(list.begin(), list.end());
    for (size_t i = 0; i < list.size(); ++i) {
      EXPECT_EQ(a.parts[rows.part_begin + i], list[i].second);
      EXPECT_TRUE(i == 0 || list[i - 1].first < list[i].first);
    }
  }
}

int64_t TileCost(const AttentionTiles& tiles, const AttentionTile& tile) {
  const int64_t queries = int64_t{tile.num_rows} * tiles.head_blocks().heads_per_block;
  return std::max<int64_t>(tiles.limits().free_queries, queries) * (tile.key_end - tile.key_begin);
}

// Keys and the arithmetic of wide tiles, per share.
std::vector<int64_t> ShareCosts(const AttentionTiles& tiles) {
  const Arrays a = Read(tiles);
  std::vector<int64_t> costs;
  EXPECT_EQ(a.share_begin.front(), 0);
  EXPECT_EQ(a.share_begin.back(), std::ssize(a.tiles));
  for (int s = 0; s < tiles.list().num_shares; ++s) {
    EXPECT_LE(a.share_begin[s], a.share_begin[s + 1]);
    costs.push_back(0);
    for (int t = a.share_begin[s]; t < a.share_begin[s + 1]; ++t) {
      costs.back() += TileCost(tiles, a.tiles[t]);
    }
  }
  return costs;
}

struct TilesCase {
  AttentionTileLimits limits;
  int max_rows;
  bool decode_only;
};

const TilesCase kCases[] = {
    {{8, 8, 16, 64, 132, 64}, 20, false},        {{8, 2, 16, 64, 132, 64}, 40, false},
    {{9, 3, 16, 32, 7, 16}, 150, false},         {{32, 1, 16, 16, 264, 64}, 3, false},
    {{4, 4, 16, 64, 132, 64}, 1, true},          {{32, 4, 16, 64, 1, 64}, 5, true},
    {{4, 4, 16, 128, 7, 128, 256, 8}, 4, false}, {{16, 2, 16, 128, 132, 128, 16, 16}, 2, false},
};

class AttentionTilesRandom : public ::testing::TestWithParam<std::tuple<int, bool>> {
 protected:
  const TilesCase& test_case() const { return kCases[std::get<0>(GetParam())]; }
  bool reproducible() const { return std::get<1>(GetParam()); }
};

TEST_P(AttentionTilesRandom, CoverEveryRowAndKeyOnce) {
  AttentionTiles tiles(test_case().limits);
  for (int seed = 0; seed < 3; ++seed) {
    RandomPlan plan({.num_slots = 12,
                     .num_chunks = 900,
                     .max_join_chunks = seed == 2 ? 80 : 8,
                     .max_rows = test_case().max_rows},
                    seed);
    for (int i = 0; i < 60 && !HasFailure(); ++i) {
      for (int j = 0; j < 3; ++j) plan.JoinOrLeave();
      plan.Step(test_case().decode_only);
      for (const AttentionMode mode : {AttentionMode::kTwoPhase, AttentionMode::kPaged}) {
        tiles.Plan(plan.view(), plan.steps(), mode, reproducible());
        ExpectCoversOnce(tiles, plan.view(), plan.steps());
        ExpectPartsInOrder(tiles);
        EXPECT_TRUE(tiles.Serves(plan.steps()));
      }
    }
  }
}

// Keys before key_begin are not read, whole chunks (segments) of them not even in a tile.
TEST_P(AttentionTilesRandom, LeaveOutWhatIsBehindTheWindow) {
  AttentionTiles tiles(test_case().limits);
  RandomPlan plan({.num_slots = 8, .num_chunks = 1200, .max_join_chunks = 90}, 5);
  const int unit = reproducible() ? kSegmentKeys : test_case().limits.chunk_tokens;
  for (int i = 0; i < 20 && !HasFailure(); ++i) {
    for (int j = 0; j < 3; ++j) plan.JoinOrLeave();
    plan.Step(test_case().decode_only);
    std::vector<SlotStep> steps = plan.steps();
    for (SlotStep& step : steps) {
      if (step.num_rows > 0) step.key_begin = std::max(0, step.key_end - step.num_rows - 100);
    }
    tiles.Plan(plan.view(), steps, AttentionMode::kPaged, reproducible());
    ExpectCoversOnce(tiles, plan.view(), steps);
    const Arrays a = Read(tiles);
    for (const AttentionTile& tile : a.tiles) {
      const TileMember& member = a.members[tile.member_begin];
      const SlotStep& step = steps[a.row_groups[member.row_group].slot];
      EXPECT_GT(tile.key_begin + member.key_offset + unit, step.key_begin);
    }
  }
}

std::string CaseName(const ::testing::TestParamInfo<std::tuple<int, bool>>& info) {
  return "case" + std::to_string(std::get<0>(info.param)) +
         (std::get<1>(info.param) ? "_reproducible" : "");
}

INSTANTIATE_TEST_SUITE_P(Cases, AttentionTilesRandom,
                         ::testing::Combine(::testing::Range(0, int{std::size(kCases)}),
                                            ::testing::Bool()),
                         CaseName);

// `slots` sequences of `own` keys behind `shared` keys that all of them read.
struct Batch {
  Batch(int slots, int shared, int own, int chunk_tokens = 64) {
    int32_t next = 0;
    const auto add_run = [&](int keys) {
      const auto begin = static_cast<int32_t>(chunks.size());
      for (int k = 0; k < keys; k += chunk_tokens) chunks.push_back({next++, k});
      return begin;
    };
    if (shared > 0) {
      const int32_t begin = add_run(shared);
      for (int s = 0; s < slots; ++s) run_slots.push_back({s, 0, shared});
      runs.push_back({begin, static_cast<int32_t>(chunks.size()), 0, slots});
    }
    for (int s = 0; s < slots; ++s) {
      steps.push_back({1, s, 0, shared + own});
      if (own == 0) continue;
      const int32_t begin = add_run(own);
      const auto slot_begin = static_cast<int32_t>(run_slots.size());
      run_slots.push_back({s, shared, kOpenEnd});
      runs.push_back({begin, static_cast<int32_t>(chunks.size()), slot_begin, slot_begin + 1});
    }
  }
  AttentionPlanView view() const { return {runs, chunks, run_slots}; }

  std::vector<AttentionRun> runs;
  std::vector<RunChunk> chunks;
  std::vector<RunSlot> run_slots;
  std::vector<SlotStep> steps;
};

TEST(AttentionTilesTest, ReadASharedRunOnceForAsManyRowsAsATileHolds) {
  AttentionTiles tiles({32, 32, 64, 64, 132, 64});
  const Batch batch(32, 2048, 2048);
  tiles.Plan(batch.view(), batch.steps, AttentionMode::kTwoPhase, false);
  int64_t keys = 0;
  for (const AttentionTile& tile : Read(tiles).tiles) keys += tile.key_end - tile.key_begin;
  EXPECT_EQ(keys, 2048 + 32 * 2048);
  tiles.Plan(batch.view(), batch.steps, AttentionMode::kPaged, false);
  keys = 0;
  for (const AttentionTile& tile : Read(tiles).tiles) keys += tile.key_end - tile.key_begin;
  EXPECT_EQ(keys, 32 * 4096);
}

// Equal bytes per share: no further from the mean than one chunk and what tiles cost beside keys.
TEST(AttentionTilesTest, CutSharesOfEqualCost) {
  for (const auto& [slots, shared, own] : {std::tuple{32, 0, 4096},
                                           {32, 2048, 2048},
                                           {32, 4096, 0},
                                           {1, 0, 32768},
                                           {5, 640, 333},
                                           {256, 1024, 512},
                                           {3, 0, 8192}}) {
    for (const int kv_heads : {1, 8, 32, 36}) {
      AttentionTiles tiles({kv_heads * 2, kv_heads, 64, 64, 132, 64});
      const Batch batch(slots, shared, own);
      tiles.Plan(batch.view(), batch.steps, AttentionMode::kTwoPhase, false);
      ExpectCoversOnce(tiles, batch.view(), batch.steps);
      const std::vector<int64_t> costs = ShareCosts(tiles);
      int64_t total = 0;
      for (const int64_t cost : costs) total += cost;
      const Arrays a = Read(tiles);
      for (size_t s = 0; s < costs.size(); ++s) {
        // Of its own: half a chunk at either end, and the fixed cost of the tiles in it against
        // that of an average share.
        int64_t tolerance = 2 * 64 * 64;
        int64_t fixed = 0;
        for (const AttentionTile& tile : a.tiles) fixed += 16 + 2 * tile.num_rows * 2;
        for (int t = a.share_begin[s]; t < a.share_begin[s + 1]; ++t) {
          tolerance += 64 * (16 + 2 * a.tiles[t].num_rows * 2);
        }
        tolerance += 64 * fixed / static_cast<int64_t>(costs.size());
        const int64_t mean = total / std::ssize(costs);
        EXPECT_NEAR(costs[s], mean, tolerance)
            << slots << "," << shared << "," << own << " heads " << kv_heads << " share " << s;
      }
    }
  }
}

TEST(AttentionTilesTest, KeepAllBlocksBusy) {
  for (const int kv_heads : {1, 2, 8, 32, 36, 40, 64, 71}) {
    AttentionTiles tiles({kv_heads, kv_heads, 64, 64, 132, 64});
    const Batch batch(32, 0, 4096);
    tiles.Plan(batch.view(), batch.steps, AttentionMode::kTwoPhase, false);
    const int items = tiles.list().num_shares * kv_heads;
    const int waves = (items + 131) / 132;
    EXPECT_GE(items, 0.9 * 132 * waves) << kv_heads;
  }
}

// Blocks on which a kernel runs, and what a tile costs there.
constexpr AttentionTileLimits OnH200(int heads) {
  return {heads, heads, 64, 128, 132, 128, 256, 8};
}
constexpr AttentionTileLimits OnA100(int heads) { return {heads, heads, 64, 64, 216, 64}; }

// Shares for 32 slots of `keys` keys of which they share some.
int Shares(const AttentionTileLimits& limits, int keys, int shared) {
  AttentionTiles tiles(limits);
  const Batch batch(32, shared, keys - shared);
  tiles.Plan(batch.view(), batch.steps, AttentionMode::kTwoPhase, false);
  return tiles.list().num_shares;
}

// Where a share has few keys, a round more costs each block more than it gets from smaller shares.
TEST(AttentionTilesTest, NoRoundMoreThanItsTilesAreWorth) {
  for (const int keys : {1024, 2048, 4096}) {
    EXPECT_EQ(Shares(OnH200(40), keys, keys), 3) << keys << ": 120 items on 132 blocks";
    EXPECT_EQ(Shares(OnA100(32), keys, keys), 6) << keys << ": 192 items on 216 blocks";
  }
  // Of many keys each, shares that are more even pay.
  EXPECT_EQ(Shares(OnH200(40), 4096, 0), 13);
  EXPECT_EQ(Shares(OnA100(32), 1024, 0), 13);
}

// What docs/results/gpu-h200.md has the times of. Where all is shared, whole chunks may leave one
// share empty.
TEST(AttentionTilesTest, RowsThatWereMeasuredAreCutAsTheyWereThen) {
  for (const int keys : {1024, 2048, 4096}) {
    for (const int shared : {0, keys / 2, keys * 3 / 4, keys}) {
      EXPECT_EQ(Shares(OnH200(32), keys, shared), keys == 1024 && shared == 1024 ? 3 : 4)
          << keys << ", " << shared;
    }
  }
}

// Shares beyond what there are keys for are not there to be weighed.
TEST(AttentionSharesTest, AreWeighedAsTheyAreTaken) {
  // 10 heads on 132 blocks: 13 shares are one round, but of 400 there are no more than four.
  EXPECT_EQ(NumShares({.total = 400, .cut = 10, .least = 100}, 10, 132), 4);
  // 100 heads: one share, 1.9 rounds with two of which each costs nearly what one does.
  EXPECT_EQ(NumShares({.total = 400, .cut = 300, .least = 100}, 100, 132), 1);
  EXPECT_EQ(NumShares({.total = 40000, .cut = 300, .least = 100}, 100, 132), 5);
  // More heads than blocks, and nothing to do.
  EXPECT_EQ(NumShares({.total = 400, .cut = 10, .least = 100}, 500, 132), 1);
  EXPECT_EQ(NumShares({.total = 0, .cut = 0, .least = 100}, 8, 132), 1);
}

// Items are dealt out to blocks in turn: an empty share would put another one's tiles on a block
// that has some.
TEST(AttentionTilesTest, NoShareIsEmpty) {
  for (const int rows : {1, 16, 256, 512}) {
    AttentionTiles tiles({40, 40, 64, 128, 132, 128, 256, 8});
    Batch batch(1, 0, 512);
    batch.steps[0].num_rows = rows;
    tiles.Plan(batch.view(), batch.steps, AttentionMode::kTwoPhase, false);
    const Arrays a = Read(tiles);
    for (int s = 0; s < tiles.list().num_shares; ++s) {
      EXPECT_LT(a.share_begin[s], a.share_begin[s + 1]) << rows << " rows, share " << s;
    }
  }
}

// Flash-decoding: one long sequence is spread over all blocks.
TEST(AttentionTilesTest, SplitOneLongSequence) {
  AttentionTiles tiles({32, 8, 64, 64, 132, 64});
  const Batch batch(1, 0, 32768);
  tiles.Plan(batch.view(), batch.steps, AttentionMode::kTwoPhase, false);
  EXPECT_EQ(tiles.list().num_shares, 132 / 8);
  EXPECT_EQ(tiles.list().num_tiles, 132 / 8);
  EXPECT_EQ(tiles.num_partial_rows(), 132 / 8);
}

// With nothing to gain from more shares a row stays in one tile and leaves no partial.
TEST(AttentionTilesTest, LeaveShortSequencesWhole) {
  AttentionTiles tiles({32, 8, 64, 64, 132, 64});
  const Batch batch(1, 0, 100);
  tiles.Plan(batch.view(), batch.steps, AttentionMode::kTwoPhase, false);
  EXPECT_EQ(tiles.list().num_tiles, 1);
  EXPECT_EQ(tiles.num_partial_rows(), 0);
}

// At most a part per row for every run it reads and for every cut.
TEST(AttentionTilesTest, BoundThePartials) {
  for (const int own : {64, 500, 4096}) {
    AttentionTiles tiles({32, 8, 64, 64, 132, 64});
    const Batch batch(64, 1024, own);
    tiles.Plan(batch.view(), batch.steps, AttentionMode::kTwoPhase, false);
    const int rows = 64, rows_per_tile = 64 / 4;
    EXPECT_LE(tiles.num_partial_rows(), 2 * rows + tiles.list().num_shares * rows_per_tile);
  }
}

// What eight slots have for themselves is one tile, in which each has its own keys and no other's.
TEST(AttentionTilesTest, BundleWhatSlotsHaveForThemselves) {
  AttentionTiles tiles({32, 32, 64, 128, 132, 128, 256, 8});
  const Batch batch(32, 2048, 1);
  tiles.Plan(batch.view(), batch.steps, AttentionMode::kTwoPhase, false);
  ExpectCoversOnce(tiles, batch.view(), batch.steps);
  const Arrays a = Read(tiles);
  int bundles = 0, members = 0;
  for (const AttentionTile& tile : a.tiles) {
    if (tile.bundled == 0) continue;
    ++bundles;
    members += tile.member_end - tile.member_begin;
    EXPECT_EQ(tile.num_rows, tile.member_end - tile.member_begin);
    EXPECT_LE(tile.num_rows, 8);
  }
  EXPECT_LE(bundles, 4 + tiles.list().num_shares);
  EXPECT_GE(members, 32);
}

// Rows without a key, be it for want of a plan or of an entry in it, have an output all the same.
TEST(AttentionTilesTest, HaveATileForRowsThatSeeNothing) {
  AttentionTiles tiles({32, 8, 64, 64, 132, 64});
  Batch batch(3, 256, 100);
  batch.steps.push_back({20, 3, 0, 20});
  for (const bool reproducible : {false, true}) {
    tiles.Plan(batch.view(), batch.steps, AttentionMode::kTwoPhase, reproducible);
    int32_t rows = 0;
    for (const AttentionTile& tile : Read(tiles).tiles) {
      const TileMember& member = Read(tiles).members[tile.member_begin];
      const RowGroup& group = Read(tiles).row_groups[member.row_group];
      if (group.slot != 3) continue;
      rows += group.num_rows;
      EXPECT_EQ(tile.key_begin, tile.key_end);
      EXPECT_EQ(member.partial_row, -1);
    }
    EXPECT_EQ(rows, 20);
  }
}

TEST(AttentionTilesTest, PartialsOfReproducibleStepsAreSegments) {
  AttentionTiles tiles({32, 8, 64, 64, 132, 64});
  const Batch batch(16, 1024, 1000);
  tiles.Plan(batch.view(), batch.steps, AttentionMode::kTwoPhase, true);
  const Arrays a = Read(tiles);
  for (const AttentionTile& tile : a.tiles) {
    const int begin = tile.key_begin + a.members[tile.member_begin].key_offset;
    EXPECT_EQ(begin % kSegmentKeys, 0);
    EXPECT_TRUE(begin == 0 || tile.key_end - tile.key_begin <= kSegmentKeys);
  }
  EXPECT_LE(tiles.num_partial_rows(), 16 * (2048 / kSegmentKeys));
}

// A prefill in reproducible mode: its partials would be as many as its rows times its segments.
TEST(AttentionTilesTest, KeepLongPrefillsWholeWhereStatesWouldBeMany) {
  AttentionTiles tiles({32, 8, 64, 64, 132, 64});
  Batch batch(1, 0, 8192);
  batch.steps[0].num_rows = 8000;
  tiles.Plan(batch.view(), batch.steps, AttentionMode::kTwoPhase, true);
  EXPECT_EQ(tiles.num_partial_rows(), 0);
  tiles.Plan(batch.view(), batch.steps, AttentionMode::kTwoPhase, false);
  EXPECT_LE(tiles.num_partial_rows(), 2 * 16 * tiles.list().num_shares);
}

TEST(AttentionTilesTest, ServeStepsWithTheSameRowCounts) {
  AttentionTiles tiles({32, 8, 64, 64, 132, 64});
  Batch batch(4, 256, 100);
  tiles.Plan(batch.view(), batch.steps, AttentionMode::kTwoPhase, false);
  std::vector<SlotStep> steps = batch.steps;
  for (SlotStep& step : steps) ++step.key_end;
  steps[2].key_begin = 30;
  EXPECT_TRUE(tiles.Serves(steps));
  ExpectCoversOnce(tiles, batch.view(), steps);
  tiles.Plan(batch.view(), steps, AttentionMode::kTwoPhase, false);
  EXPECT_FALSE(tiles.Serves(batch.steps)) << "key_begin went back";
  steps[1].num_rows = 2;
  EXPECT_FALSE(tiles.Serves(steps));
  EXPECT_FALSE(tiles.Serves(std::span(steps).first(3)));
}

TEST(AttentionTilesTest, PlanA256SlotStepQuickly) {
  AttentionTiles tiles({32, 8, 64, 64, 132, 64});
  const Batch batch(256, 1024, 2048);
  double best_us = 1e9;
  for (int i = 0; i < 20; ++i) {
    const auto start = std::chrono::steady_clock::now();
    tiles.Plan(batch.view(), batch.steps, AttentionMode::kTwoPhase, false);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    best_us = std::min(best_us, took.count());
  }
  RecordProperty("best_us", std::to_string(best_us));
  std::printf("256 slots planned in %.0f us, %zu bytes\n", best_us, tiles.bytes().size());
  EXPECT_LT(best_us, 200 * ::refrain::testing::kSlowBuildFactor);
}

}  // namespace
}  // namespace refrain::kernels::cuda
