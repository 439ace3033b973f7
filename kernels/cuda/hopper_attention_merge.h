#ifndef REFRAIN_KERNELS_CUDA_HOPPER_ATTENTION_MERGE_H_
#define REFRAIN_KERNELS_CUDA_HOPPER_ATTENTION_MERGE_H_

#include <cstdint>

#include "kernels/cuda/attention_device.h"
#include "kernels/cuda/chunk_attention.h"
#include "kernels/cuda/hopper_attention_layout.h"

// The end of a tile of the Hopper attention kernel whose rows have parts in other tiles, too: the
// last of them to be finished merges a row's partial states. Device code only.

namespace refrain::kernels::cuda {

// Where a query's parts are, and where its output goes.
struct MergePlace {
  const int32_t* parts = nullptr;
  int32_t num_parts = 0;  // 0: it is not to be merged
  int32_t row_in_group = 0;
  int32_t head = 0;
  float* out = nullptr;
};

// A warp's, of num_warps: of queries 0 to num_queries - 1 its part, some at a time,
// as MergeRow would merge each. Each of the trips to other blocks' states, to their indexes, (m, n)
// and o, is one for all of them: with one query after the other a tile that 32 sequences share
// would wait a hundred times. place_of(query) is called by all lanes, those of a query's parts with
// the same.
template <int kHeadDim, class PlaceOf>
__device__ __forceinline__ void MergeQueries(const ChunkAttentionLaunch& args, int32_t thread,
                                             int32_t num_warps, int32_t num_queries,
                                             const PlaceOf& place_of) {
  constexpr unsigned kAllLanes = 0xffffffffu;
  constexpr int kQueries = 4, kParts = 32 / kQueries;  // of one trip
  constexpr int kPerLane = (kHeadDim + 31) / 32;
  constexpr int kAhead = kPerLane < 4 ? 4 : 2;  // registers
  static_assert(kPerLane <= 4);
  const int32_t warp = thread / 32, lane = thread % 32;
#pragma unroll 1
  for (int32_t first = warp; first < num_queries; first += kQueries * num_warps) {
    const int32_t own_query = first + lane / kParts * num_warps;
    MergePlace own;
    if (own_query < num_queries) own = place_of(own_query);
    int32_t most_parts = own.num_parts;
#pragma unroll
    for (int lanes = kParts; lanes < 32; lanes *= 2) {
      const int32_t other = __shfl_xor_sync(kAllLanes, most_parts, lanes);
      most_parts = other > most_parts ? other : most_parts;
    }
    if (most_parts == 0) continue;
    float o[kQueries][kPerLane], m[kQueries], n[kQueries];
#pragma unroll
    for (int j = 0; j < kQueries; ++j) {
      m[j] = -INFINITY;
      n[j] = 0.0f;
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) o[j][i] = 0.0f;
    }
#pragma unroll 1
    for (int32_t part = 0; part < most_parts; part += kParts) {
      const int32_t own_index = part + lane % kParts;
      int32_t own_row = -1;  // of partial states
      float own_m = -INFINITY, own_n = 0.0f;
      if (own_index < own.num_parts) {
        own_row = own.parts[own_index] + own.row_in_group;
        const float* const mn = StateMN(args, StateIndex(args, own_row, own.head));
        own_m = __ldcg(mn);
        own_n = __ldcg(mn + 1);
      }
#pragma unroll 1
      for (int k = 0; k < kParts && part + k < most_parts; k += kAhead) {
        float right_o[kAhead][kQueries][kPerLane];
#pragma unroll
        for (int a = 0; a < kAhead; ++a) {
#pragma unroll
          for (int j = 0; j < kQueries; ++j) {
            const int source = j * kParts + k + a;
            const int32_t row = __shfl_sync(kAllLanes, own_row, source);
            const int32_t head = __shfl_sync(kAllLanes, own.head, source);
            if (row < 0) continue;
            const float* const from = StateO(args, StateIndex(args, row, head));
#pragma unroll
            for (int i = 0; i < kPerLane; ++i) {
              const int dim = i * 32 + lane;
              right_o[a][j][i] = dim < kHeadDim ? __ldcg(from + dim) : 0.0f;
            }
          }
        }
#pragma unroll
        for (int a = 0; a < kAhead; ++a) {
#pragma unroll
          for (int j = 0; j < kQueries; ++j) {
            const int source = j * kParts + k + a;
            const int32_t row = __shfl_sync(kAllLanes, own_row, source);
            const float right_m = __shfl_sync(kAllLanes, own_m, source);
            const float right_n = __shfl_sync(kAllLanes, own_n, source);
            if (row < 0) continue;
            float left, right;
            MergeStates(m[j], n[j], right_m, right_n, left, right);
            if (right == 0.0f) continue;  // o of an empty part is anything
#pragma unroll
            for (int i = 0; i < kPerLane; ++i) {
              o[j][i] = MergeElement(o[j][i], right_o[a][j][i], left, right);
            }
          }
        }
      }
    }
#pragma unroll
    for (int j = 0; j < kQueries; ++j) {
      const int32_t query = first + j * num_warps;
      if (query >= num_queries) continue;
      const MergePlace place = place_of(query);
      if (place.num_parts == 0) continue;
      const float scale = n[j] == 0.0f ? 0.0f : 1.0f / n[j];
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) {
        const int dim = i * 32 + lane;
        if (dim < kHeadDim) place.out[dim] = o[j][i] * scale;
      }
    }
  }
}

// Behind the writing of a tile's partial states by any computing threads: whoever brings the last
// part of a row merges its parts, from left to right. By all computing threads (FinishTile is the
// same for all threads of a block).
template <class Shape>
__device__ void MergeFinishedRows(const ChunkAttentionLaunch& args, const HeadBlocks& heads,
                                  const TileHeader& header, HopperShared<Shape>& shared) {
  const TileLists lists = ReadTileLists(args.tiles);
  const int32_t num_members = header.member_end - header.member_begin;
  const int32_t thread = ThreadOfTile();
  // Read before the wait for this tile's states to be seen.
  TileMember member = {};
  RowGroup group = {};
  if (thread < num_members) {
    member = lists.members[header.member_begin + thread];
    group = lists.row_groups[member.row_group];
  }
  const uint32_t parts_offset = args.tiles->parts_offset;
  NamedBarrierSync(kComputeBarrier, kComputeThreads);
  if (thread < num_members) {
    FinishedMember finished = {
        0, member.first_row,
        parts_offset + group.part_begin * static_cast<uint32_t>(sizeof(int32_t))};
    if (member.partial_row >= 0) {
      int32_t* const counter = args.counters +
                               static_cast<int64_t>(member.row_group) * heads.count() +
                               header.head_block;
      __threadfence();  // of what all threads have written, behind the barrier
      if (atomicAdd(counter, 1) + 1 == group.num_parts) {
        finished.num_parts = group.num_parts;
        *counter = 0;
        __threadfence();
      }
    }
    shared.finished[thread] = finished;
  }
  NamedBarrierSync(kComputeBarrier, kComputeThreads);
  const auto place_of = [&](int32_t query) {
    const int32_t row = query / header.heads, head = header.first_head + query % header.heads;
    const FinishedMember& finished = shared.finished[header.member[row]];
    const auto* const list = reinterpret_cast<const unsigned char*>(args.tiles);
    return MergePlace{reinterpret_cast<const int32_t*>(list + finished.parts_offset),
                      finished.num_parts, row - finished.first_row, head,
                      args.out + header.row[row] * args.out_stride + head * Shape::kHeadDim};
  };
  if constexpr (Shape::kHeadDim <= 128) {
    MergeQueries<Shape::kHeadDim>(args, thread, kComputeWarps, header.num_queries, place_of);
  } else {  // several at a time, or known at compile time, would take more registers than there are
#pragma unroll 1
    for (int32_t query = thread / 32; query < header.num_queries; query += kComputeWarps) {
      const MergePlace at = place_of(query);
      if (at.num_parts == 0) continue;
      MergeRow(args, at.parts, at.num_parts, at.row_in_group, at.head, at.out);
    }
  }
}

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_HOPPER_ATTENTION_MERGE_H_
