#include "kernels/cuda/attention_tiles.h"

#include <algorithm>
#include <cassert>

#include "kernels/cuda/attention_shares.h"

namespace refrain::kernels::cuda {
namespace {

// A partial state, written and read once in f32, moves as many bytes as this many keys of 16 bits.
constexpr int64_t kPartialKeys = 2;
// Shares of less than this are not worth a merge.
constexpr int64_t kMinShareKeys = 128;

int32_t RoundDown(int32_t x, int32_t unit) { return x / unit * unit; }
int32_t RoundUp(int32_t x, int32_t unit) { return (x + unit - 1) / unit * unit; }

}  // namespace

AttentionTiles::AttentionTiles(const AttentionTileLimits& limits)
    : limits_(limits),
      head_blocks_(MakeHeadBlocks(limits.num_heads, limits.num_kv_heads, limits.max_queries)),
      rows_per_tile_(std::max(1, limits.max_queries / head_blocks_.heads_per_block)) {
  Plan({}, {}, AttentionMode::kTwoPhase, false);
}

void AttentionTiles::Plan(const AttentionPlanView& plan, std::span<const SlotStep> steps,
                          AttentionMode mode, bool reproducible) {
  reproducible_ = reproducible;
  steps_.assign(steps.begin(), steps.end());
  arrays_.chunks.clear();
  stretches_.clear();
  stretch_members_.clear();
  run_chunks_.assign(plan.runs.size(), -1);
  bundle_ = -1;
  AddRowGroups(steps, mode);
  CollectEntries(plan);
  if (reproducible) {
    ShareSegments(plan);
  } else {
    ShareRuns(plan);
  }
  for (int32_t slot = 0; slot < std::ssize(slots_); ++slot) {
    if (slots_[slot].first_entry < 0) continue;
    if (reproducible) {
      AddOwnSegments(plan, slot);
    } else {
      AddOwnKeys(plan, slot);
    }
  }
  AddEmptyStretches();
  Cut();
  arrays_.CollectParts();
  arrays_.Serialize(reproducible_, &bytes_);
}

bool AttentionTiles::Serves(std::span<const SlotStep> steps) const {
  return std::equal(steps.begin(), steps.end(), steps_.begin(), steps_.end(),
                    [](const SlotStep& now, const SlotStep& then) {
                      return now.num_rows == then.num_rows &&
                             (now.num_rows == 0 || now.key_begin >= then.key_begin);
                    });
}

void AttentionTiles::AddRowGroups(std::span<const SlotStep> steps, AttentionMode mode) {
  slots_.assign(steps.size(), {});
  arrays_.num_slots = static_cast<int32_t>(steps.size());
  arrays_.row_groups.clear();
  for (size_t i = 0; i < steps.size(); ++i) {
    Slot& slot = slots_[i];
    slot.row_group_begin = static_cast<int32_t>(arrays_.row_groups.size());
    for (int32_t row = 0; row < steps[i].num_rows; row += rows_per_tile_) {
      const int32_t rows = std::min(rows_per_tile_, steps[i].num_rows - row);
      arrays_.row_groups.push_back({static_cast<int32_t>(i), row, rows, 0, 0});
    }
    slot.row_group_end = static_cast<int32_t>(arrays_.row_groups.size());
    slot.shares = mode == AttentionMode::kTwoPhase && 2 * steps[i].num_rows <= rows_per_tile_;
  }
}

void AttentionTiles::CollectEntries(const AttentionPlanView& plan) {
  entries_.clear();
  for (int32_t r = 0; r < std::ssize(plan.runs); ++r) {
    const AttentionRun& run = plan.runs[r];
    if (run.chunk_begin == run.chunk_end) continue;
    const int32_t tokens = plan.chunks[run.chunk_end - 1].token_begin + limits_.chunk_tokens;
    for (int32_t i = run.slot_begin; i < run.slot_end; ++i) {
      const RunSlot& at = plan.slots[i];
      if (steps_[at.slot].num_rows == 0) continue;
      const int32_t keys_end = std::min(at.key_end, at.key_begin + tokens);
      if (keys_end <= at.key_begin) continue;
      Slot& slot = slots_[at.slot];
      const auto index = static_cast<int32_t>(entries_.size());
      (slot.first_entry < 0 ? slot.first_entry : entries_[slot.last_entry].next) = index;
      if (slot.last_entry >= 0) {
        // Keys between the run's last chunk and the next run do not exist.
        Entry& before = entries_[slot.last_entry];
        assert(before.keys_end >= at.key_begin);
        before.keys_end = at.key_begin;
      }
      slot.last_entry = index;
      entries_.push_back({r, at.slot, at.key_begin, at.key_end, keys_end, -1, false});
    }
  }
}

// The run's chunks in arrays_.chunks, counted in the run's tokens.
int32_t AttentionTiles::RunChunks(const AttentionPlanView& plan, int32_t r) {
  if (run_chunks_[r] < 0) {
    run_chunks_[r] = static_cast<int32_t>(arrays_.chunks.size());
    const AttentionRun& run = plan.runs[r];
    for (int32_t i = run.chunk_begin; i < run.chunk_end; ++i) {
      arrays_.chunks.push_back({plan.chunks[i].chunk, plan.chunks[i].token_begin});
    }
  }
  return run_chunks_[r];
}

void AttentionTiles::ShareRuns(const AttentionPlanView& plan) {
  for (size_t begin = 0, end = 0; begin < entries_.size(); begin = end) {
    sharers_.clear();
    for (; end < entries_.size() && entries_[end].run == entries_[begin].run; ++end) {
      const Entry& entry = entries_[end];
      if (!slots_[entry.slot].shares || entry.keys_end <= steps_[entry.slot].key_begin) continue;
      sharers_.push_back(static_cast<int32_t>(end));
    }
    if (sharers_.size() < 2) continue;
    // Those that read the same part of the run come into the same tiles.
    const auto tokens = [&](int32_t i) { return entries_[i].keys_end - entries_[i].key_begin; };
    std::stable_sort(sharers_.begin(), sharers_.end(),
                     [&](int32_t a, int32_t b) { return tokens(a) > tokens(b); });
    if (!WorthSharing()) continue;
    for (const int32_t i : sharers_) entries_[i].shared = true;
    AddSharedStretches(plan, sharers_, 0, tokens(sharers_.front()));
  }
}

// Whether reading a run once for all sharers saves more than the partial states cost.
bool AttentionTiles::WorthSharing() const {
  int64_t saved = 0, cost = 0, rows = 0;
  for (const int32_t i : sharers_) {
    const Entry& entry = entries_[i];
    const int32_t slot_rows = steps_[entry.slot].num_rows;
    if (rows + slot_rows > rows_per_tile_) rows = 0;
    const int32_t keys = entry.keys_end - entry.key_begin;
    (rows == 0 ? cost : saved) += rows == 0 ? limits_.tile_keys : keys;
    rows += slot_rows;
    cost += kPartialKeys * slot_rows * head_blocks_.heads_per_block;
  }
  return saved > cost;
}

// Segments that two or more slots have in the same run at the same key indexes as a whole, or as
// far as their keys go.
void AttentionTiles::ShareSegments(const AttentionPlanView& plan) {
  covered_.clear();
  const auto same_keys = [&](int32_t a, int32_t b) {
    return entries_[a].key_begin == entries_[b].key_begin;
  };
  for (size_t begin = 0, end = 0; begin < entries_.size(); begin = end) {
    sharers_.clear();
    for (; end < entries_.size() && entries_[end].run == entries_[begin].run; ++end) {
      if (slots_[entries_[end].slot].shares) sharers_.push_back(static_cast<int32_t>(end));
    }
    std::stable_sort(sharers_.begin(), sharers_.end(), [&](int32_t a, int32_t b) {
      return entries_[a].key_begin < entries_[b].key_begin;
    });
    std::vector<int32_t> together;
    for (size_t from = 0, to = 0; from < sharers_.size(); from = to) {
      while (to < sharers_.size() && same_keys(sharers_[from], sharers_[to])) ++to;
      const int32_t key_begin = entries_[sharers_[from]].key_begin;
      for (int32_t key = RoundUp(key_begin, kSegmentKeys);; key += kSegmentKeys) {
        together.clear();
        for (size_t i = from; i < to; ++i) {
          const Entry& entry = entries_[sharers_[i]];
          const bool whole = entry.keys_end >= key + kSegmentKeys || entry.next < 0;
          if (!whole || entry.keys_end <= key) continue;
          if (steps_[entry.slot].key_begin >= key + kSegmentKeys) continue;
          together.push_back(sharers_[i]);
        }
        if (together.size() < 2) {
          const auto goes_on = [&](int32_t i) { return entries_[i].keys_end > key; };
          if (std::none_of(sharers_.begin() + from, sharers_.begin() + to, goes_on)) break;
          continue;
        }
        int32_t last = 0;
        for (const int32_t i : together) {
          covered_.push_back({entries_[i].slot, key});
          last = std::max(last, std::min(entries_[i].keys_end, key + kSegmentKeys));
        }
        AddSharedStretches(plan, together, key - key_begin, last - key_begin);
      }
    }
  }
  std::sort(covered_.begin(), covered_.end(), [](const Covered& a, const Covered& b) {
    return a.slot != b.slot ? a.slot < b.slot : a.begin < b.begin;
  });
}

// Tokens [key_begin, key_end) of a run for the slots of `entries`, as many at a time as a tile
// takes.
void AttentionTiles::AddSharedStretches(const AttentionPlanView& plan,
                                        std::span<const int32_t> entries, int32_t key_begin,
                                        int32_t key_end) {
  const int32_t run = entries_[entries.front()].run;
  const int32_t chunks = RunChunks(plan, run);
  const int32_t num_chunks = plan.runs[run].chunk_end - plan.runs[run].chunk_begin;
  for (size_t from = 0, to = 0; from < entries.size(); from = to) {
    Stretch stretch{};
    stretch.chunk_begin = chunks;
    stretch.chunk_end = chunks + num_chunks;
    stretch.key_begin = key_end;
    stretch.member_begin = static_cast<int32_t>(stretch_members_.size());
    for (; to < entries.size(); ++to) {
      const Entry& entry = entries_[entries[to]];
      const int32_t rows = steps_[entry.slot].num_rows;
      if (stretch.num_rows + rows > rows_per_tile_) break;
      stretch_members_.push_back({slots_[entry.slot].row_group_begin, stretch.num_rows,
                                  entry.key_begin, 0, entry.key_end, -1});
      stretch.num_rows += rows;
      const int32_t first = steps_[entry.slot].key_begin - entry.key_begin;
      stretch.key_begin = std::min(stretch.key_begin, std::max(first, key_begin));
      stretch.key_end =
          std::max(stretch.key_end, std::min(key_end, entry.keys_end - entry.key_begin));
    }
    stretch.member_end = static_cast<int32_t>(stretch_members_.size());
    stretch.key_begin = reproducible_ ? key_begin : ChunkBegin(stretch, stretch.key_begin);
    stretches_.push_back(stretch);
  }
}

// The chunks of an entry, counted in the slot's keys.
void AttentionTiles::AppendChunks(const AttentionPlanView& plan, const Entry& entry) {
  const AttentionRun& run = plan.runs[entry.run];
  for (int32_t i = run.chunk_begin; i < run.chunk_end; ++i) {
    const int32_t begin = entry.key_begin + plan.chunks[i].token_begin;
    if (begin >= entry.keys_end) break;
    arrays_.chunks.push_back({plan.chunks[i].chunk, begin});
  }
}

// What the slot reads alone: a stretch for each row of runs without a gap between them.
void AttentionTiles::AddOwnKeys(const AttentionPlanView& plan, int32_t slot) {
  auto chunk_begin = static_cast<int32_t>(arrays_.chunks.size());
  int32_t begin = 0, end = -1;
  for (int32_t i = slots_[slot].first_entry; i >= 0; i = entries_[i].next) {
    const Entry& entry = entries_[i];
    const bool own = !entry.shared && entry.keys_end > steps_[slot].key_begin;
    if (own && end < 0) begin = entry.key_begin;
    if (own) AppendChunks(plan, entry);
    if (own) end = entry.keys_end;
    if (end >= 0 && (!own || entry.next < 0)) {
      AddOwnStretches(slot, chunk_begin, begin, end);
      chunk_begin = static_cast<int32_t>(arrays_.chunks.size());
      end = -1;
    }
  }
}

// The slot's segments that are in no shared stretch.
void AttentionTiles::AddOwnSegments(const AttentionPlanView& plan, int32_t slot) {
  const auto chunk_begin = static_cast<int32_t>(arrays_.chunks.size());
  for (int32_t i = slots_[slot].first_entry; i >= 0; i = entries_[i].next) {
    AppendChunks(plan, entries_[i]);
  }
  const int32_t end = entries_[slots_[slot].last_entry].keys_end;
  int32_t key = RoundDown(steps_[slot].key_begin, kSegmentKeys);
  auto covered = std::lower_bound(covered_.begin(), covered_.end(), slot,
                                  [](const Covered& c, int32_t s) { return c.slot < s; });
  for (; covered != covered_.end() && covered->slot == slot; ++covered) {
    if (covered->begin > key) AddOwnStretches(slot, chunk_begin, key, covered->begin);
    key = covered->begin + kSegmentKeys;
  }
  if (end > key) AddOwnStretches(slot, chunk_begin, key, end);
}

// Keys [key_begin, key_end) of a slot for each of its row groups, in the chunks from chunk_begin
// on.
void AttentionTiles::AddOwnStretches(int32_t slot, int32_t chunk_begin, int32_t key_begin,
                                     int32_t key_end) {
  if (Bundles(slot)) return AddToBundle(slot, chunk_begin, key_begin, key_end);
  bundle_ = -1;
  const auto chunk_end = static_cast<int32_t>(arrays_.chunks.size());
  const int32_t unit = reproducible_ ? kSegmentKeys : 1;
  const int32_t first = std::max(key_begin, RoundDown(steps_[slot].key_begin, unit));
  for (int32_t r = slots_[slot].row_group_begin; r < slots_[slot].row_group_end; ++r) {
    const int32_t end = std::min(key_end, KeysSeen(arrays_.row_groups[r]));
    if (end <= first) continue;
    const auto member = static_cast<int32_t>(stretch_members_.size());
    stretch_members_.push_back({r, 0, 0, 0, kOpenEnd, -1});
    stretches_.push_back({chunk_begin, chunk_end, first, end, member, member + 1,
                          arrays_.row_groups[r].num_rows, false});
    Stretch& stretch = stretches_.back();
    if (!reproducible_) stretch.key_begin = ChunkBegin(stretch, first);
  }
}

bool AttentionTiles::Bundles(int32_t slot) const {
  return !reproducible_ && steps_[slot].num_rows <= rows_per_tile_ &&
         2 * steps_[slot].num_rows * head_blocks_.heads_per_block <= limits_.bundle_queries;
}

// The same for all rows of a slot, behind the keys of other slots, whose chunks were the last to be
// added.
void AttentionTiles::AddToBundle(int32_t slot, int32_t chunk_begin, int32_t key_begin,
                                 int32_t key_end) {
  const int32_t row_group = slots_[slot].row_group_begin;
  const int32_t rows = steps_[slot].num_rows;
  const int32_t end = std::min(key_end, KeysSeen(arrays_.row_groups[row_group]));
  const int32_t first = std::max(key_begin, steps_[slot].key_begin);
  std::vector<TileChunk>& chunks = arrays_.chunks;
  if (end <= first) {
    chunks.resize(chunk_begin);
    return;
  }
  const auto own = chunks.begin() + chunk_begin;
  const auto above =
      std::upper_bound(own, chunks.end(), first,
                       [](int32_t k, const TileChunk& chunk) { return k < chunk.key_begin; });
  assert(above != own);
  const int32_t begin = (above - 1)->key_begin;
  chunks.erase(own, above - 1);  // behind a window

  const bool fits =
      bundle_ >= 0 && (stretches_[bundle_].num_rows + rows) * head_blocks_.heads_per_block <=
                          limits_.bundle_queries;
  if (!fits) {
    bundle_ = std::ssize(stretches_);
    const auto member = static_cast<int32_t>(stretch_members_.size());
    stretches_.push_back({chunk_begin, chunk_begin, 0, 0, member, member, 0, false, true});
  }
  Stretch& bundle = stretches_[bundle_];
  const int32_t offset = begin - bundle.key_end;
  for (auto chunk = chunks.begin() + chunk_begin; chunk != chunks.end(); ++chunk) {
    chunk->key_begin -= offset;
  }
  stretch_members_.push_back({row_group, bundle.num_rows, offset, begin, end, -1});
  bundle.member_end = static_cast<int32_t>(stretch_members_.size());
  bundle.chunk_end = static_cast<int32_t>(chunks.size());
  bundle.num_rows += rows;
  bundle.key_end += end - begin;
}

// The first key of the chunk that holds `key`.
int32_t AttentionTiles::ChunkBegin(const Stretch& stretch, int32_t key) const {
  const auto begin = arrays_.chunks.begin() + stretch.chunk_begin;
  const auto above =
      std::upper_bound(begin, arrays_.chunks.begin() + stretch.chunk_end, key,
                       [](int32_t k, const TileChunk& chunk) { return k < chunk.key_begin; });
  assert(above != begin);
  return (above - 1)->key_begin;
}

// Rows that nothing was found for still have an output to be written.
void AttentionTiles::AddEmptyStretches() {
  // Which stretches are their members' leftmost comes with it.
  std::vector<int32_t>& first_key = first_keys_;
  first_key.assign(arrays_.row_groups.size(), kOpenEnd);
  for (const Stretch& stretch : stretches_) {
    for (int32_t i = stretch.member_begin; i < stretch.member_end; ++i) {
      const TileMember& member = stretch_members_[i];
      int32_t& first = first_key[member.row_group];
      first = std::min(first, stretch.key_begin + member.key_offset);
    }
  }
  for (Stretch& stretch : stretches_) {
    stretch.leftmost = true;
    for (int32_t i = stretch.member_begin; i < stretch.member_end; ++i) {
      const TileMember& member = stretch_members_[i];
      stretch.leftmost &= first_key[member.row_group] == stretch.key_begin + member.key_offset;
    }
  }
  for (size_t r = 0; r < arrays_.row_groups.size(); ++r) {
    if (first_key[r] != kOpenEnd) continue;
    const auto member = static_cast<int32_t>(stretch_members_.size());
    stretch_members_.push_back({static_cast<int32_t>(r), 0, 0, 0, kOpenEnd, -1});
    stretches_.push_back({0, 0, 0, 0, member, member + 1, arrays_.row_groups[r].num_rows, true});
  }
}

// Keys that the group's last row may come to see with this plan.
int32_t AttentionTiles::KeysSeen(const RowGroup& rows) const {
  const int32_t room = entries_[slots_[rows.slot].last_entry].keys_end;
  return room - (steps_[rows.slot].num_rows - rows.row_begin - rows.num_rows);
}

int64_t AttentionTiles::Queries(const Stretch& stretch) const {
  return int64_t{stretch.num_rows} * head_blocks_.heads_per_block;
}

// Costs are in units of 1 / free_queries of reading a key.
int64_t AttentionTiles::KeyCost(const Stretch& stretch) const {
  return std::max<int64_t>(limits_.free_queries, Queries(stretch));
}

int64_t AttentionTiles::FixedCost(const Stretch& stretch) const {
  return (limits_.tile_keys + kPartialKeys * Queries(stretch)) * limits_.free_queries;
}

void AttentionTiles::Cut() {
  arrays_.tiles.clear();
  arrays_.members.clear();
  arrays_.share_begin.assign(1, 0);
  total_cost_ = spent_cost_ = 0;
  // A cut is another tile of the stretch that it falls into, more often of one that costs much.
  double cuts = 0;
  for (const Stretch& stretch : stretches_) {
    const int64_t keys = stretch.key_end - stretch.key_begin;
    const int64_t cost = FixedCost(stretch) + KeyCost(stretch) * keys;
    total_cost_ += cost;
    cuts += static_cast<double>(cost) * static_cast<double>(FixedCost(stretch));
  }
  const auto total = static_cast<double>(std::max<int64_t>(1, total_cost_));
  num_shares_ = NumShares({.total = total_cost_,
                           .cut = static_cast<int64_t>(cuts / total),
                           .least = kMinShareKeys * limits_.free_queries},
                          head_blocks_.count(), limits_.num_blocks);
  for (const Stretch& stretch : stretches_) {
    Spend(FixedCost(stretch));
    if (reproducible_) {
      CutAtSegments(stretch);
    } else {
      CutAtChunks(stretch);
    }
  }
  arrays_.share_begin.resize(num_shares_ + 1, static_cast<int32_t>(arrays_.tiles.size()));
  arrays_.share_begin.back() = static_cast<int32_t>(arrays_.tiles.size());
  arrays_.DropEmptyShares();
}

// Counts `cost`; ends the shares whose part of all that uses up.
void AttentionTiles::Spend(int64_t cost) {
  spent_cost_ += cost;
  while (std::ssize(arrays_.share_begin) < num_shares_ &&
         spent_cost_ * num_shares_ >= total_cost_ * std::ssize(arrays_.share_begin)) {
    arrays_.share_begin.push_back(static_cast<int32_t>(arrays_.tiles.size()));
  }
}

int32_t AttentionTiles::NearestChunkBorder(const Stretch& stretch, int64_t key) const {
  const auto begin = arrays_.chunks.begin() + stretch.chunk_begin;
  const auto end = arrays_.chunks.begin() + stretch.chunk_end;
  const auto above = std::upper_bound(
      begin, end, key, [](int64_t k, const TileChunk& chunk) { return k < chunk.key_begin; });
  const int32_t upper =
      above == end ? stretch.key_end : std::min(above->key_begin, stretch.key_end);
  const int32_t lower =
      above == begin ? stretch.key_begin : std::max((above - 1)->key_begin, stretch.key_begin);
  return key - lower < upper - key ? lower : upper;
}

void AttentionTiles::CutAtChunks(const Stretch& stretch) {
  const int64_t key_cost = KeyCost(stretch);
  int32_t key = stretch.key_begin;
  do {
    int32_t end = stretch.key_end;
    if (std::ssize(arrays_.share_begin) < num_shares_) {
      const int64_t left =
          total_cost_ * std::ssize(arrays_.share_begin) / num_shares_ - spent_cost_;
      const int64_t goal = key + left / key_cost;
      if (goal < end) end = NearestChunkBorder(stretch, goal);
    }
    if (end > key || end == stretch.key_end) AddTile(stretch, key, end);
    if (end < stretch.key_end && std::ssize(arrays_.share_begin) < num_shares_) {
      // The share is as full as whole chunks make it, be it a little less than its part.
      arrays_.share_begin.push_back(static_cast<int32_t>(arrays_.tiles.size()));
      spent_cost_ += key_cost * (end - key);
    } else {
      Spend(key_cost * (end - key));
    }
    key = end;
  } while (key < stretch.key_end);
}

// Whole segments only. The states of the segments from the leftmost on are merged in the tile while
// the share lasts; slots with so many rows that they share nothing stay whole.
void AttentionTiles::CutAtSegments(const Stretch& stretch) {
  const int64_t key_cost = KeyCost(stretch);
  const TileMember& member = stretch_members_[stretch.member_begin];
  const bool whole = stretch.leftmost && 2 * stretch.num_rows > rows_per_tile_ &&
                     stretch.member_end - stretch.member_begin == 1;
  int32_t begin = stretch.key_begin;  // of the tile being put together
  bool leftmost = stretch.leftmost;
  // Segment borders are at multiples of the slot's key indexes.
  const auto segment_end = [&](int32_t key) {
    const int32_t index = key + member.key_offset;
    return std::min(RoundDown(index, kSegmentKeys) + kSegmentKeys - member.key_offset,
                    stretch.key_end);
  };
  for (int32_t key = begin; key < stretch.key_end;) {
    const int32_t end = segment_end(key);
    const auto shares = std::ssize(arrays_.share_begin);
    // Whichever share would have the larger part of the segment takes it.
    const int64_t half = key_cost * (end - key) / 2;
    if (!whole && key > begin && shares < num_shares_ &&
        (spent_cost_ + half) * num_shares_ > total_cost_ * shares) {
      AddTile(stretch, begin, key);
      begin = key;
      leftmost = false;
      arrays_.share_begin.push_back(static_cast<int32_t>(arrays_.tiles.size()));
    }
    spent_cost_ += key_cost * (end - key);
    key = end;
    if (!leftmost) {
      AddTile(stretch, begin, key);
      begin = key;
    }
    if (key == stretch.key_end && begin < key) {
      AddTile(stretch, begin, key);
      begin = key;
    }
    if (begin == key) Spend(0);
  }
  if (stretch.key_begin == stretch.key_end) AddTile(stretch, stretch.key_begin, stretch.key_end);
}

void AttentionTiles::AddTile(const Stretch& stretch, int32_t key_begin, int32_t key_end) {
  const auto first_from = [&](int32_t key) {
    return static_cast<int32_t>(
        std::lower_bound(arrays_.chunks.begin() + stretch.chunk_begin,
                         arrays_.chunks.begin() + stretch.chunk_end, key,
                         [](const TileChunk& c, int32_t k) { return c.key_begin < k; }) -
        arrays_.chunks.begin());
  };
  AttentionTile tile{};
  tile.chunk_begin = first_from(key_begin + 1) - 1;
  tile.chunk_end = first_from(key_end);
  if (key_begin == key_end) tile.chunk_begin = tile.chunk_end = 0;
  assert(tile.chunk_begin >= stretch.chunk_begin || key_begin == key_end);
  tile.key_begin = key_begin;
  tile.key_end = key_end;
  tile.bundled = stretch.bundled ? 1 : 0;
  tile.member_begin = static_cast<int32_t>(arrays_.members.size());
  for (int32_t i = stretch.member_begin; i < stretch.member_end; ++i) {
    TileMember member = stretch_members_[i];
    if (stretch.bundled) {
      // Of a bundle those that have keys in the tile.
      if (member.key_end - member.key_offset <= key_begin) continue;
      if (member.key_begin - member.key_offset >= key_end) continue;
      member.first_row = tile.num_rows;
      tile.num_rows += arrays_.row_groups[member.row_group].num_rows;
    }
    arrays_.members.push_back(member);
  }
  tile.member_end = static_cast<int32_t>(arrays_.members.size());
  if (!stretch.bundled) tile.num_rows = stretch.num_rows;
  arrays_.tiles.push_back(tile);
}

}  // namespace refrain::kernels::cuda
