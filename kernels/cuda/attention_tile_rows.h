#ifndef REFRAIN_KERNELS_CUDA_ATTENTION_TILE_ROWS_H_
#define REFRAIN_KERNELS_CUDA_ATTENTION_TILE_ROWS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attention_tile_list.h"
#include "kernels/cuda/chunk_attention.h"
#include "kernels/cuda/device_language.h"
#include "kernels/cuda/instructions.h"

// What the attention kernels have in common on the device: reading the tile list, which keys each
// row of a tile sees in this step, where they lie. States: attention_states.h. Included by .cu
// files only.
//
// Functions said to be a block's are called by all of its threads.
namespace refrain::kernels::cuda {

// Scores and maxima are in units of log2.
inline constexpr float kLogTwoE = 1.44269504088896340736f;

struct TileLists {
  const int32_t* share_begin;
  const AttentionTile* tiles;
  const TileMember* members;
  const TileChunk* chunks;
  const RowGroup* row_groups;
  const int32_t* parts;
};

__device__ __forceinline__ TileLists ReadTileLists(const AttentionTileList* list) {
  const auto* base = reinterpret_cast<const unsigned char*>(list);
  TileLists lists;
  lists.share_begin = reinterpret_cast<const int32_t*>(base + list->share_begin_offset);
  lists.tiles = reinterpret_cast<const AttentionTile*>(base + list->tiles_offset);
  lists.members = reinterpret_cast<const TileMember*>(base + list->members_offset);
  lists.chunks = reinterpret_cast<const TileChunk*>(base + list->chunks_offset);
  lists.row_groups = reinterpret_cast<const RowGroup*>(base + list->row_groups_offset);
  lists.parts = reinterpret_cast<const int32_t*>(base + list->parts_offset);
  return lists;
}

// A row of a tile in this step. It sees the tile's keys [key_begin, key_end), those whose position
// is above `position` - window where a window is set.
struct TileRow {
  int32_t q_row;  // in q and out
  int32_t key_begin;
  int32_t key_end;
  int32_t position;
  int32_t partial_row;  // -1: the tile's result is the output
};

// A block's. Rows come behind the next __syncthreads.
__device__ __forceinline__ void ReadTileRows(const ChunkAttentionLaunch& args,
                                             const TileLists& lists, const AttentionTile& tile,
                                             TileRow* rows) {
  for (int32_t m = tile.member_begin; m < tile.member_end; ++m) {
    const TileMember member = lists.members[m];
    const RowGroup group = lists.row_groups[member.row_group];
    for (int32_t i = threadIdx.x; i < group.num_rows; i += blockDim.x) {
      const SlotStep step = args.steps[group.slot];
      const int32_t slot_row = group.row_begin + i;
      int32_t end = step.key_end - step.num_rows + slot_row + 1;
      end = end < member.key_end ? end : member.key_end;
      end -= member.key_offset;
      int32_t begin = step.key_begin > member.key_begin ? step.key_begin : member.key_begin;
      begin -= member.key_offset;
      TileRow row;
      row.q_row = step.row_begin + slot_row;
      row.key_begin = begin > tile.key_begin ? begin : tile.key_begin;
      row.key_end = end < tile.key_end ? end : tile.key_end;
      row.position = args.window_tokens == 0 ? 0 : args.row_positions[row.q_row];
      row.partial_row = member.partial_row < 0 ? -1 : member.partial_row + i;
      rows[member.first_row + i] = row;
    }
  }
}

// What the rows of a tile see together: [begin, end) holds every key that any row sees, all rows
// see [all_begin, all_end) (as far as no window is set).
struct KeyRange {
  int32_t begin, end;
  int32_t all_begin, all_end;
};

// A warp's: every lane gets the range.
__device__ __forceinline__ KeyRange RangeOfRows(const TileRow* rows, int num_rows) {
  constexpr int32_t kFar = 0x7fffffff;
  KeyRange range = {kFar, 0, 0, kFar};
  for (int i = threadIdx.x % 32; i < num_rows; i += 32) {
    const TileRow row = rows[i];
    if (row.key_end <= row.key_begin) {
      range.all_end = 0;
      continue;
    }
    range.begin = row.key_begin < range.begin ? row.key_begin : range.begin;
    range.end = row.key_end > range.end ? row.key_end : range.end;
    range.all_begin = row.key_begin > range.all_begin ? row.key_begin : range.all_begin;
    range.all_end = row.key_end < range.all_end ? row.key_end : range.all_end;
  }
  for (int step = 16; step > 0; step /= 2) {
    const int32_t begin = __shfl_xor_sync(~0u, range.begin, step);
    const int32_t end = __shfl_xor_sync(~0u, range.end, step);
    const int32_t all_begin = __shfl_xor_sync(~0u, range.all_begin, step);
    const int32_t all_end = __shfl_xor_sync(~0u, range.all_end, step);
    range.begin = begin < range.begin ? begin : range.begin;
    range.end = end > range.end ? end : range.end;
    range.all_begin = all_begin > range.all_begin ? all_begin : range.all_begin;
    range.all_end = all_end < range.all_end ? all_end : range.all_end;
  }
  return range;
}

// Where a tile's keys lie. Made once per thread and tile; keys must be asked for in ascending
// order.
class KeyCursor {
 public:
  __device__ __forceinline__ KeyCursor(const TileLists& lists, const AttentionTile& tile)
      : at_(lists.chunks + tile.chunk_begin), last_(lists.chunks + tile.chunk_end - 1) {
    if (at_ <= last_) Enter();
  }

  // Moves to the chunk that holds the tile's key.
  __device__ __forceinline__ void Seek(int32_t key) {
    while (key >= next_begin_) {
      ++at_;
      Enter();
    }
  }
  __device__ __forceinline__ int32_t chunk() const { return here_.chunk; }
  __device__ __forceinline__ int32_t Token(int32_t key) const { return key - here_.key_begin; }

 private:
  __device__ __forceinline__ void Enter() {
    here_ = *at_;
    next_begin_ = at_ < last_ ? at_[1].key_begin : 0x7fffffff;
  }

  const TileChunk* at_;
  const TileChunk* last_;
  TileChunk here_ = {0, 0};
  int32_t next_begin_ = 0x7fffffff;
};

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_ATTENTION_TILE_ROWS_H_
