#ifndef REFRAIN_KERNELS_CUDA_HOPPER_ATTENTION_QUERIES_H_
#define REFRAIN_KERNELS_CUDA_HOPPER_ATTENTION_QUERIES_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/chunk_attention.h"
#include "kernels/cuda/hopper_attention_layout.h"

// What both forms of the Hopper attention kernel do with a tile's queries: bring them into shared
// memory, tell which keys they see, write their states. Device code only.

namespace refrain::kernels::cuda {

inline constexpr float kLog2E = 1.4426950408889634f;

__device__ __forceinline__ float MinusInfinity() { return -__int_as_float(0x7f800000); }

// Query `query` as a row of q, a head, and what it sees.
struct QueryPlace {
  int32_t row = -1;  // of q and out; -1: no such query
  int32_t head = 0;
  int32_t partial_row = -1;
  int32_t low = 0, high = 0;  // tile keys
  int32_t position = 0;       // where a window is set
};

__device__ __forceinline__ QueryPlace PlaceOfQuery(const ChunkAttentionLaunch& args,
                                                   const TileHeader& header, int32_t query) {
  QueryPlace place;
  if (query >= header.num_queries) return place;
  const int32_t row = query / header.heads;
  place.row = header.row[row];
  place.head = header.first_head + query % header.heads;
  place.partial_row = header.partial_row[row];
  place.low = header.low[row];
  place.high = header.high[row];
  if (args.window_tokens > 0) place.position = args.row_positions[place.row];
  return place;
}

// Key of row `row` of a block, and its position where a window is set. A row without key: a key
// that nobody sees.
struct KeyPlace {
  int32_t key;
  int32_t position;
};

__device__ __forceinline__ KeyPlace PlaceOfKey(const ChunkAttentionLaunch& args,
                                               const BlockInfo& info, int32_t row) {
  const int32_t rows = args.kv.chunk_tokens < kBlockKeys ? args.kv.chunk_tokens : kBlockKeys;
  const int32_t piece = row / rows;
  const int32_t token = row - piece * rows;
  if (token >= info.tokens[piece]) return {INT32_MAX, 0};
  KeyPlace place = {info.first_key[piece] + token, 0};
  if (args.window_tokens > 0) {
    const int64_t chunk = info.chunk[piece];
    place.position =
        args.kv.positions[chunk * args.kv.chunk_tokens + info.first_token[piece] + token];
  }
  return place;
}

__device__ __forceinline__ bool Sees(const ChunkAttentionLaunch& args, const QueryPlace& query,
                                     const KeyPlace& key) {
  if (key.key < query.low || key.key >= query.high) return false;
  return args.window_tokens == 0 || query.position - key.position < args.window_tokens;
}

// Whether every row of the tile sees every key of the block.
__device__ __forceinline__ bool AllSeen(const ChunkAttentionLaunch& args, const TileHeader& header,
                                        const BlockInfo& info) {
  return info.whole != 0 && args.window_tokens == 0 && info.first_key[0] >= header.low_max &&
         info.first_key[0] + kBlockKeys <= header.high_min;
}

// The tile's queries, times scale and log2 e, as swizzled panels of [kRows][kPanel]; rows without
// query are zeros. By all computing threads.
template <class Shape, int kRows>
__device__ __forceinline__ void LoadQueries(const ChunkAttentionLaunch& args,
                                            const TileHeader& header, int32_t rows,
                                            unsigned char* queries) {
  using T = typename Shape::Element;
  constexpr int kUnits = Shape::kHeadDim / kKvUnitElements;  // 16 bytes each
  constexpr int kUnitsOfPanel = Shape::kPanel / kKvUnitElements;
  const float factor = args.scale * kLog2E;
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < rows * kUnits; i += kComputeThreads) {
    const int32_t query = i / kUnits, unit = i % kUnits;
    uint4 packed = make_uint4(0, 0, 0, 0);
    if (query < header.num_queries) {
      const int32_t row = header.row[query / header.heads];
      const int32_t head = header.first_head + query % header.heads;
      const auto* const from = reinterpret_cast<const float4*>(
          args.q + row * args.q_stride + head * Shape::kHeadDim + unit * kKvUnitElements);
      const float4 a = from[0], b = from[1];
      packed = make_uint4(
          PackPair<T>(a.x * factor, a.y * factor), PackPair<T>(a.z * factor, a.w * factor),
          PackPair<T>(b.x * factor, b.y * factor), PackPair<T>(b.z * factor, b.w * factor));
    }
    const int swizzled = KvSwizzledUnit(Shape::kPanel, query, unit % kUnitsOfPanel);
    const uint32_t at = (unit / kUnitsOfPanel * kRows + query) * Shape::kRowBytes + swizzled * 16;
    *reinterpret_cast<uint4*>(queries + at) = packed;
  }
}

// Where a query's state goes: its place in out, or its partial state.
struct StateTarget {
  float* o = nullptr;   // [head_dim]; null: there is no such query
  float* mn = nullptr;  // [2], of a partial state; null: o is the output
};

template <class Shape>
__device__ __forceinline__ StateTarget TargetOf(const ChunkAttentionLaunch& args,
                                                const QueryPlace& query) {
  if (query.row < 0) return {};
  if (query.partial_row < 0) {
    return {args.out + query.row * args.out_stride + query.head * Shape::kHeadDim, nullptr};
  }
  const int64_t states = static_cast<int64_t>(args.max_partial_rows) * args.num_heads;
  const int64_t state = static_cast<int64_t>(query.partial_row) * args.num_heads + query.head;
  return {args.partials + state * Shape::kHeadDim,
          args.partials + states * Shape::kHeadDim + state * 2};
}

// What o is multiplied by on its way out: an output is o / n, zeros for a row that sees nothing.
__device__ __forceinline__ float FactorOf(const StateTarget& target, float n) {
  if (target.mn != nullptr) return 1.0f;
  return n > 0.0f ? 1.0f / n : 0.0f;
}

// Behind the writing of a tile's partial states by any computing threads: whoever brings the last
// part of a row merges its parts, from left to right. By all computing threads.
template <class Shape>
__device__ void MergeFinishedRows(const ChunkAttentionLaunch& args, const HeadBlocks& heads,
                                  const TileHeader& header, HopperShared<Shape>& shared) {
  const auto* list = reinterpret_cast<const unsigned char*>(args.tiles);
  const auto* members = reinterpret_cast<const TileMember*>(list + args.tiles->members_offset);
  const auto* groups = reinterpret_cast<const RowGroup*>(list + args.tiles->row_groups_offset);
  const auto* parts = reinterpret_cast<const int32_t*>(list + args.tiles->parts_offset);
  const int32_t num_members = header.member_end - header.member_begin;
  const int32_t thread = static_cast<int32_t>(threadIdx.x);

  __threadfence();  // this thread's states, before the counting below
  NamedBarrierSync(kComputeBarrier, kComputeThreads);
  if (thread < num_members) {
    const TileMember member = members[header.member_begin + thread];
    int32_t last = 0;
    if (member.partial_row >= 0) {
      int32_t* const counter = args.counters + member.row_group * heads.count() + header.head_block;
      last = atomicAdd(counter, 1) == groups[member.row_group].num_parts - 1 ? 1 : 0;
      if (last != 0) *counter = 0;
      __threadfence();
    }
    shared.merge[thread] = last;
  }
  NamedBarrierSync(kComputeBarrier, kComputeThreads);

  constexpr int kPerLane = (Shape::kHeadDim + 31) / 32;
  const int lane = thread % 32;
  const int64_t states = static_cast<int64_t>(args.max_partial_rows) * args.num_heads;
  const volatile float* const all_mn = args.partials + states * Shape::kHeadDim;
  for (int32_t m = 0; m < num_members; ++m) {
    if (shared.merge[m] == 0) continue;
    const TileMember member = members[header.member_begin + m];
    const RowGroup group = groups[member.row_group];
    // A warp per row and head.
    for (int32_t i = thread / 32; i < group.num_rows * header.heads; i += kComputeWarps) {
      const int32_t row = i / header.heads;
      const int32_t head = header.first_head + i % header.heads;
      float m_all = MinusInfinity(), n_all = 0.0f;
      float o_all[kPerLane] = {};
      for (int32_t part = 0; part < group.num_parts; ++part) {
        const int64_t state =
            static_cast<int64_t>(parts[group.part_begin + part] + row) * args.num_heads + head;
        // Volatile: other blocks wrote them during this launch, so they must not come from L1.
        const volatile float* const o = args.partials + state * Shape::kHeadDim;
        const float m_part = all_mn[state * 2], n_part = all_mn[state * 2 + 1];
        if (n_part == 0.0f) continue;  // no keys
        const float m_new = m_part > m_all ? m_part : m_all;
        const float left = ExpTwo(m_all - m_new), right = ExpTwo(m_part - m_new);
        n_all = n_all * left + n_part * right;
        m_all = m_new;
        for (int j = 0; j < kPerLane; ++j) {
          const int dim = lane + 32 * j;
          if (dim < Shape::kHeadDim) o_all[j] = o_all[j] * left + o[dim] * right;
        }
      }
      const float factor = n_all > 0.0f ? 1.0f / n_all : 0.0f;
      float* const out =
          args.out + header.row[member.first_row + row] * args.out_stride + head * Shape::kHeadDim;
      for (int j = 0; j < kPerLane; ++j) {
        const int dim = lane + 32 * j;
        if (dim < Shape::kHeadDim) out[dim] = o_all[j] * factor;
      }
    }
  }
}

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_HOPPER_ATTENTION_QUERIES_H_
