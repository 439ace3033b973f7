#ifndef REFRAIN_KERNELS_CUDA_ATTENTION_DEVICE_H_
#define REFRAIN_KERNELS_CUDA_ATTENTION_DEVICE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attention_tile_list.h"
#include "kernels/cuda/chunk_attention.h"
#include "kernels/cuda/device_language.h"
#include "kernels/cuda/instructions.h"

// What the attention kernels have in common on the device: reading the tile list, which keys each
// row of a tile sees in this step, partial states and their merge. Included by .cu files only.
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
      const int32_t begin = step.key_begin - member.key_offset;
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

// Factors by which two states' o are scaled in a merge (softmax_state.h, in units of log2). fmaf:
// the same bits wherever this is inlined.
__device__ __forceinline__ void MergeStates(float& m, float& n, float right_m, float right_n,
                                            float& left_scale, float& right_scale) {
  left_scale = 1.0f;
  right_scale = 0.0f;
  if (right_n == 0.0f) return;
  if (n == 0.0f) {
    m = right_m;
    n = right_n;
    left_scale = 0.0f;
    right_scale = 1.0f;
    return;
  }
  const float max = m > right_m ? m : right_m;
  left_scale = ExpTwo(m - max);
  right_scale = ExpTwo(right_m - max);
  n = fmaf(n, left_scale, right_n * right_scale);
  m = max;
}

__device__ __forceinline__ float MergeElement(float left, float right, float left_scale,
                                              float right_scale) {
  return fmaf(left, left_scale, right * right_scale);
}

// Index of the state of a partial row and head, and where its parts lie.
__device__ __forceinline__ int64_t StateIndex(const ChunkAttentionLaunch& args, int32_t partial_row,
                                              int32_t head) {
  return static_cast<int64_t>(partial_row) * args.num_heads + head;
}
__device__ __forceinline__ float* StateO(const ChunkAttentionLaunch& args, int64_t state) {
  return args.partials + state * args.kv.head_dim;
}
__device__ __forceinline__ float* StateMN(const ChunkAttentionLaunch& args, int64_t state) {
  const int64_t states = static_cast<int64_t>(args.max_partial_rows) * args.num_heads;
  return args.partials + states * args.kv.head_dim + 2 * state;
}

// Past the first-level cache: what another block wrote in this launch.
__device__ __forceinline__ float ReadShared(const float* from) {
  return *static_cast<const volatile float*>(from);
}

// A warp's: one row and head out of its parts.
__device__ __forceinline__ void MergeRow(const ChunkAttentionLaunch& args, const int32_t* parts,
                                         int32_t num_parts, int32_t row_in_group, int32_t head,
                                         float* out) {
  const int lane = threadIdx.x % 32;
  const int head_dim = args.kv.head_dim;
  constexpr int kPerLane = 8;  // head_dim up to 256
  float o[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) o[i] = 0.0f;
  float m = -INFINITY, n = 0.0f;
  for (int32_t j = 0; j < num_parts; ++j) {
    const int64_t state = StateIndex(args, parts[j] + row_in_group, head);
    const float* const mn = StateMN(args, state);
    float left, right;
    MergeStates(m, n, ReadShared(mn), ReadShared(mn + 1), left, right);
    if (right == 0.0f) continue;
    const float* const part = StateO(args, state);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int dim = i * 32 + lane;
      if (dim < head_dim) o[i] = MergeElement(o[i], ReadShared(part + dim), left, right);
    }
  }
  const float scale = n == 0.0f ? 0.0f : 1.0f / n;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int dim = i * 32 + lane;
    if (dim < head_dim) out[dim] = o[i] * scale;
  }
}

// A block's, after it has written the tile's partial states: counts the tile in for its members and
// merges those whose last it was. `finished` is shared, room for as many ints as a tile has
// members.
__device__ __forceinline__ void FinishTile(const ChunkAttentionLaunch& args,
                                           const HeadBlocks& head_blocks, const TileLists& lists,
                                           const AttentionTile& tile, int32_t head_block,
                                           int32_t* finished) {
  // A tile's members have partial rows all or in part; without any there is nothing to wait for.
  const int32_t num_members = tile.member_end - tile.member_begin;
  __threadfence();
  __syncthreads();
  for (int32_t m = threadIdx.x; m < num_members; m += blockDim.x) {
    const TileMember member = lists.members[tile.member_begin + m];
    finished[m] = 0;
    if (member.partial_row < 0) continue;
    int32_t* const counter =
        args.counters + static_cast<int64_t>(member.row_group) * head_blocks.count() + head_block;
    const int32_t before = atomicAdd(counter, 1);
    if (before + 1 != lists.row_groups[member.row_group].num_parts) continue;
    *counter = 0;
    finished[m] = 1;
    __threadfence();
  }
  __syncthreads();
  const int32_t warp = threadIdx.x / 32, num_warps = blockDim.x / 32;
  const int32_t first_head = head_blocks.FirstHead(head_block);
  const int32_t num_heads = head_blocks.NumHeads(head_block);
  for (int32_t m = 0; m < num_members; ++m) {
    if (finished[m] == 0) continue;
    const RowGroup group = lists.row_groups[lists.members[tile.member_begin + m].row_group];
    const SlotStep step = args.steps[group.slot];
    for (int32_t i = warp; i < group.num_rows * num_heads; i += num_warps) {
      const int32_t row = i / num_heads, head = first_head + i % num_heads;
      float* const out = args.out + (step.row_begin + group.row_begin + row) * args.out_stride +
                         static_cast<int64_t>(head) * args.kv.head_dim;
      MergeRow(args, lists.parts + group.part_begin, group.num_parts, row, head, out);
    }
  }
}

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_ATTENTION_DEVICE_H_
