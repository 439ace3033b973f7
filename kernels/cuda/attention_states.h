#ifndef REFRAIN_KERNELS_CUDA_ATTENTION_STATES_H_
#define REFRAIN_KERNELS_CUDA_ATTENTION_STATES_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attention_tile_rows.h"

// Softmax states on the device (softmax_state.h, with m in units of log2): their merge, partial
// states in memory, and the last tile of a row that merges them. Included by .cu files only.
namespace refrain::kernels::cuda {

// Factors by which two states' o are scaled in a merge. fmaf: the same bits wherever this is
// inlined.
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

// A warp's: one row and head out of its parts, from left to right. kHeadDim: args.kv.head_dim where
// it is known, else 0.
//
// What is read comes from other blocks, hence past the first-level cache, and a trip takes longer
// than a merge: all (m, n) are read at once, a lane each, and the o of a few parts before the first
// of them is merged.
template <int kHeadDim = 0>
__device__ __forceinline__ void MergeRow(const ChunkAttentionLaunch& args, const int32_t* parts,
                                         int32_t num_parts, int32_t row_in_group, int32_t head,
                                         float* out) {
  constexpr unsigned kAllLanes = 0xffffffffu;
  constexpr int kPerLane = kHeadDim > 0 ? (kHeadDim + 31) / 32 : 8;  // head_dim up to 256
  constexpr int kAhead = kPerLane < 8 ? 16 / kPerLane : 1;           // registers
  const int lane = threadIdx.x % 32;
  const int head_dim = kHeadDim > 0 ? kHeadDim : args.kv.head_dim;
  float o[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) o[i] = 0.0f;
  float m = -INFINITY, n = 0.0f;
#pragma unroll 1
  for (int32_t first = 0; first < num_parts; first += 32) {
    const int32_t count = num_parts - first < 32 ? num_parts - first : 32;
    int32_t own_part = 0;
    float own_m = -INFINITY, own_n = 0.0f;
    if (lane < count) {
      own_part = parts[first + lane] + row_in_group;
      const float* const mn = StateMN(args, StateIndex(args, own_part, head));
      own_m = __ldcg(mn);
      own_n = __ldcg(mn + 1);
    }
#pragma unroll 1
    for (int32_t j = 0; j < count; j += kAhead) {
      float right_o[kAhead][kPerLane];
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        const int32_t part = __shfl_sync(kAllLanes, own_part, (j + k) % 32);
        if (j + k >= count) continue;
        const float* const from = StateO(args, StateIndex(args, part, head));
#pragma unroll
        for (int i = 0; i < kPerLane; ++i) {
          const int dim = i * 32 + lane;
          right_o[k][i] = dim < head_dim ? __ldcg(from + dim) : 0.0f;
        }
      }
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        const float right_m = __shfl_sync(kAllLanes, own_m, (j + k) % 32);
        const float right_n = __shfl_sync(kAllLanes, own_n, (j + k) % 32);
        if (j + k >= count) continue;
        float left, right;
        MergeStates(m, n, right_m, right_n, left, right);
        if (right == 0.0f) continue;  // o of an empty part is anything
#pragma unroll
        for (int i = 0; i < kPerLane; ++i) {
          o[i] = MergeElement(o[i], right_o[k][i], left, right);
        }
      }
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
    __threadfence();  // of what all threads of the block have written, behind the barrier
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
  int32_t turn = 0;  // rows and heads before the member's, of all members: warps take turns
  for (int32_t m = 0; m < num_members; ++m) {
    if (finished[m] == 0) continue;
    const RowGroup group = lists.row_groups[lists.members[tile.member_begin + m].row_group];
    const SlotStep step = args.steps[group.slot];
    const int32_t count = group.num_rows * num_heads;
    for (int32_t i = (warp + num_warps - turn % num_warps) % num_warps; i < count; i += num_warps) {
      const int32_t row = i / num_heads, head = first_head + i % num_heads;
      float* const out = args.out + (step.row_begin + group.row_begin + row) * args.out_stride +
                         static_cast<int64_t>(head) * args.kv.head_dim;
      MergeRow(args, lists.parts + group.part_begin, group.num_parts, row, head, out);
    }
    turn += count;
  }
}

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_ATTENTION_STATES_H_
