#ifndef REFRAIN_KERNELS_CPU_ATTENTION_PAIRS_H_
#define REFRAIN_KERNELS_CPU_ATTENTION_PAIRS_H_

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/attention_blocks.h"
#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/attention_pieces.h"

// K and V of a segment as matrices of bf16 pairs, the right operand of bf16 dot products: in place
// where the chunks have them so (kPairs is made for it), else copied. Level avx512 and above;
// include only from files that are compiled for one level.
namespace refrain::kernels::cpu {
namespace {

// [rows][columns] of pairs of bf16, the first of a pair in the lower half.
struct PairMatrix {
  const uint32_t* p;
  int64_t stride;  // pairs from one row to the next
};

inline const KeyPiece& PieceOf(const SegmentArgs& a, int32_t key) {
  const KeyPiece* piece = a.pieces;
  while (piece->begin + piece->count <= key) ++piece;
  return *piece;
}

inline const uint32_t* Pairs(const std::byte* head) {
  return reinterpret_cast<const uint32_t*>(head);
}

// Copies the keys of `range` to k_tile, `rows` >= head_dim / 2 of them, zeros behind head_dim.
// Vectors may run over the end of a piece; the next piece overwrites what they leave, or nobody
// reads it.
inline PairMatrix CopyKeys(const SegmentArgs& a, TileRange range, int rows) {
  auto* const out = reinterpret_cast<uint32_t*>(a.k_tile);
  const int half = a.head_dim / 2;
  ForPieces(a, range.begin, range.end,
            [&](const KeyPiece& piece, int token, int32_t key, int count) {
              const uint32_t* k = Pairs(piece.k + a.head_offset) + token;
              uint32_t* to = out + (key - range.begin);
              for (int i = 0; i < half; ++i, k += a.chunk_tokens, to += kKeyTileStride) {
                for (int j = 0; j < count; j += 16) {
                  _mm512_storeu_si512(to + j, _mm512_loadu_si512(k + j));
                }
              }
            });
  for (int64_t i = int64_t{half} * kKeyTileStride; i < int64_t{rows} * kKeyTileStride; i += 16) {
    _mm512_storeu_si512(out + i, _mm512_setzero_si512());
  }
  return {out, kKeyTileStride};
}

// The keys of `range` as [rows][range.end - range.begin], rows of k being pairs of the head's
// elements. Columns up to the next whole vector can be read and mean nothing.
inline PairMatrix KeysOf(const SegmentArgs& a, TileRange range, int rows) {
  const KeyPiece& piece = PieceOf(a, range.begin);
  if (rows > a.head_dim / 2 || piece.begin + piece.count < range.end) {
    return CopyKeys(a, range, rows);
  }
  return {Pairs(piece.k + a.head_offset) + piece.token + (range.begin - piece.begin),
          a.chunk_tokens};
}

// The values of the keys [begin, end) as [(end - begin) / 2][head_dim] where a chunk has them so:
// pairs are counted from the segment's begin, but lie in a chunk counted from its own. Null where
// they have to be gathered.
inline const uint32_t* ValuesInPlace(const SegmentArgs& a, int32_t begin, int32_t end) {
  if (begin < a.begin || end > a.hi || a.head_dim % 16 != 0) return nullptr;
  const KeyPiece& piece = PieceOf(a, begin);
  const int token = piece.token + (begin - piece.begin);
  if (token % 2 != 0 || piece.begin + piece.count < end) return nullptr;
  return Pairs(piece.v + a.head_offset) + token / 2 * int64_t{a.head_dim};
}

// One token's values in the half of a pair that they have in the chunk.
struct HalfRow {
  const uint32_t* row = nullptr;  // null: zeros
  bool upper = false;

  __m512i Load(int i, __mmask16 lanes) const {
    return row == nullptr ? _mm512_setzero_si512() : _mm512_maskz_loadu_epi32(lanes, row + i);
  }
  __m512i AsLower(int i, __mmask16 lanes) const {
    const __m512i pairs = Load(i, lanes);
    return upper ? _mm512_srli_epi32(pairs, 16)
                 : _mm512_and_si512(pairs, _mm512_set1_epi32(0xffff));
  }
  __m512i AsUpper(int i, __mmask16 lanes) const {
    const __m512i pairs = Load(i, lanes);
    return upper ? _mm512_andnot_si512(_mm512_set1_epi32(0xffff), pairs)
                 : _mm512_slli_epi32(pairs, 16);
  }
};

// Copies the values of `pairs` pairs of keys from `begin` on to out [pairs][o_stride]; zeros for
// keys outside [a.begin, a.hi) and behind head_dim.
inline void GatherValues(const SegmentArgs& a, int32_t begin, int pairs, uint32_t* out) {
  const KeyPiece* piece = a.pieces;
  const auto half = [&](int32_t key) {
    if (key < a.begin || key >= a.hi) return HalfRow{};
    while (piece->begin + piece->count <= key) ++piece;
    const int token = piece->token + (key - piece->begin);
    return HalfRow{Pairs(piece->v + a.head_offset) + token / 2 * int64_t{a.head_dim},
                   token % 2 != 0};
  };
  const int d = a.head_dim;
  for (int j = 0; j < pairs; ++j, out += a.o_stride) {
    const HalfRow lower = half(begin + 2 * j);
    const HalfRow upper = half(begin + 2 * j + 1);
    for (int i = 0; i < d; i += 16) {
      const auto lanes = static_cast<__mmask16>(d - i < 16 ? (1u << (d - i)) - 1 : 0xffffu);
      _mm512_storeu_si512(out + i,
                          _mm512_or_si512(lower.AsLower(i, lanes), upper.AsUpper(i, lanes)));
    }
  }
}

}  // namespace
}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_ATTENTION_PAIRS_H_
