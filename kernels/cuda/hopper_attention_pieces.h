#ifndef REFRAIN_KERNELS_CUDA_HOPPER_ATTENTION_PIECES_H_
#define REFRAIN_KERNELS_CUDA_HOPPER_ATTENTION_PIECES_H_

#include <cstdint>

#include "kernels/cuda/attention_device.h"
#include "kernels/cuda/hopper_attention_layout.h"

// In which pieces a tile's keys are read, and which of them anybody sees. Device code of one warp.

namespace refrain::kernels::cuda {

inline constexpr uint32_t kAllLanes = 0xffffffffu;

__device__ __forceinline__ int32_t WarpMin(int32_t value) {
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const int32_t other = __shfl_xor_sync(kAllLanes, value, lanes);
    value = other < value ? other : value;
  }
  return value;
}
__device__ __forceinline__ int32_t WarpMax(int32_t value) { return ~WarpMin(~value); }

// Chunks are read in pieces of at most 64 tokens: piece x of a tile is part x % parts of chunk
// x / parts. A block holds `per_block` of them.
struct PieceCut {
  int32_t rows;        // of a block for each piece
  int32_t parts_log2;  // pieces of a chunk
  int32_t per_block;   // <= kMaxPieces
};

// Of 16, 32, 64 or 128 tokens. Without a division, so that it need not be kept in registers.
__device__ __forceinline__ PieceCut CutOf(int chunk_tokens) {
  if (chunk_tokens >= kBlockKeys) return {kBlockKeys, chunk_tokens / (2 * kBlockKeys), 1};
  return {chunk_tokens, 0, chunk_tokens == 32 ? 2 : 4};
}

struct Piece {
  int32_t chunk = 0;
  int32_t first_token = 0;
  int32_t first_key = 0;
  int32_t tokens = 0;
};

// What a tile's rows see of its keys: some row sees [low_min, high_max), all [low_max, high_min).
struct KeySight {
  int32_t low_min, low_max, high_min, high_max;
};

// The pieces of one tile.
class TilePieces {
 public:
  // What each row sees, [low, high), counts where the tile is bundled.
  __device__ TilePieces(const AttentionTile& tile, const TileLists& lists, const PieceCut& cut,
                        const KeySight& sight, const int32_t* low, const int32_t* high)
      : tile_(tile), lists_(lists), cut_(cut), sight_(sight), low_(low), high_(high) {}

  // Piece x, without what no row sees behind it.
  __device__ Piece At(int32_t x) const {
    const int32_t i = tile_.chunk_begin + (x >> cut_.parts_log2);
    const TileChunk chunk = lists_.chunks[i];
    int32_t key_end = i + 1 < tile_.chunk_end ? lists_.chunks[i + 1].key_begin : tile_.key_end;
    key_end = key_end < sight_.high_max ? key_end : sight_.high_max;
    Piece piece;
    piece.chunk = chunk.chunk;
    piece.first_token = (x & ((1 << cut_.parts_log2) - 1)) * kBlockKeys;
    piece.first_key = chunk.key_begin + piece.first_token;
    if (tile_.bundled != 0) key_end = EndOfSeen(piece.first_key, key_end);
    const int32_t tokens = key_end - piece.first_key;
    piece.tokens = tokens < 0 ? 0 : tokens > cut_.rows ? cut_.rows : tokens;
    return piece;
  }

  // Those that hold a key somebody sees, [begin, end): they follow one another.
  __device__ void Find(int lane, int32_t& begin, int32_t& end) const {
    begin = end = 0;
    if (sight_.low_min >= sight_.high_max) return;
    const int32_t pieces = (tile_.chunk_end - tile_.chunk_begin) << cut_.parts_log2;
    begin = pieces;
#pragma unroll 1
    for (int32_t x = lane; x < pieces; x += 32) {
      const Piece piece = At(x);
      if (piece.tokens == 0 || piece.first_key + piece.tokens <= sight_.low_min) continue;
      begin = x < begin ? x : begin;
      end = x + 1;
    }
    begin = WarpMin(begin);
    end = WarpMax(end);
  }

 private:
  // How far some row sees keys of [begin, end), which are one member's: what lies behind it in the
  // member's last chunk was not written yet.
  __device__ int32_t EndOfSeen(int32_t begin, int32_t end) const {
    int32_t seen = begin;
#pragma unroll 1
    for (int32_t row = 0; row < tile_.num_rows; ++row) {
      const int32_t high = high_[row] < end ? high_[row] : end;
      if (low_[row] < end && high > seen) seen = high;
    }
    return seen;
  }

  const AttentionTile& tile_;
  const TileLists& lists_;
  const PieceCut cut_;
  const KeySight& sight_;
  const int32_t* const low_;
  const int32_t* const high_;
};

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_HOPPER_ATTENTION_PIECES_H_
