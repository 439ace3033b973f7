#ifndef REFRAIN_KERNELS_CUDA_HOPPER_ATTENTION_QUERIES_H_
#define REFRAIN_KERNELS_CUDA_HOPPER_ATTENTION_QUERIES_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attention_device.h"
#include "kernels/cuda/chunk_attention.h"
#include "kernels/cuda/hopper_attention_layout.h"

// What both forms of the Hopper attention kernel do with a tile's queries: bring them into shared
// memory, tell which keys they see, write their states. Device code only.

namespace refrain::kernels::cuda {

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
  int32_t row = query, head = 0;
  if (header.heads > 1) row = query / header.heads, head = query % header.heads;
  place.row = header.row[row];
  place.head = header.first_head + head;
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

// kByShift: quicker, in more registers.
template <bool kByShift>
__device__ __forceinline__ KeyPlace PlaceOfKey(const ChunkAttentionLaunch& args,
                                               const BlockInfo& info, int32_t row) {
  const int chunk_tokens = args.kv.chunk_tokens;
  int32_t piece, token;
  if constexpr (kByShift) {
    const int rows_log2 = chunk_tokens >= kBlockKeys ? 6 : chunk_tokens == 32 ? 5 : 4;
    piece = row >> rows_log2;
    token = row - (piece << rows_log2);
  } else {
    const int32_t rows = chunk_tokens < kBlockKeys ? chunk_tokens : kBlockKeys;
    piece = row / rows;
    token = row - piece * rows;
  }
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

// What scores are multiplied by, so that weights are powers of two. Not the queries before they are
// rounded: that would round them once more, which is most of the error of a decoding row.
__device__ __forceinline__ float ScoreScale(const ChunkAttentionLaunch& args) {
  return args.scale * kLogTwoE;
}

// The tile's queries as swizzled panels of [kRows][kPanel]; rows without query are zeros. By all
// computing threads.
template <class Shape, int kRows>
__device__ __forceinline__ void LoadQueries(const ChunkAttentionLaunch& args,
                                            const TileHeader& header, int32_t rows,
                                            unsigned char* queries) {
  using T = typename Shape::Element;
  constexpr int kUnits = Shape::kHeadDim / kKvUnitElements;  // 16 bytes each
  constexpr int kUnitsOfPanel = Shape::kPanel / kKvUnitElements;
  for (int32_t i = ThreadOfTile(); i < rows * kUnits; i += kComputeThreads) {
    const int32_t query = i / kUnits, unit = i % kUnits;
    uint4 packed = make_uint4(0, 0, 0, 0);
    if (query < header.num_queries) {
      const int32_t row = header.row[query / header.heads];
      const int32_t head = header.first_head + query % header.heads;
      packed = PackQueries<T>(args.q + row * args.q_stride + head * Shape::kHeadDim +
                              unit * kKvUnitElements);
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
  const int64_t state = StateIndex(args, query.partial_row, query.head);
  return {StateO(args, state), StateMN(args, state)};
}

// What o is multiplied by on its way out: an output is o / n, zeros for a row that sees nothing.
__device__ __forceinline__ float FactorOf(const StateTarget& target, float n) {
  if (target.mn != nullptr) return 1.0f;
  return n > 0.0f ? 1.0f / n : 0.0f;
}

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_HOPPER_ATTENTION_QUERIES_H_
