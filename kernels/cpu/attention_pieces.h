#ifndef REFRAIN_KERNELS_CPU_ATTENTION_PIECES_H_
#define REFRAIN_KERNELS_CPU_ATTENTION_PIECES_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/attention_kernels.h"

// Walking the pieces of a segment. Include only from files that are compiled for one level: the
// unnamed namespace keeps each level's copies apart (see simd_avx512.h).
namespace refrain::kernels::cpu {

namespace {

inline int Least(int a, int b) { return a < b ? a : b; }
inline int Most(int a, int b) { return a > b ? a : b; }
inline int DivideUp(int a, int b) { return (a + b - 1) / b; }
inline float MinusInfinity() { return -__builtin_inff(); }

// Calls fn(piece, token, key, count) on the parts of pieces that lie in [begin, end), in order.
template <class Fn>
inline void ForPieces(const SegmentArgs& a, int32_t begin, int32_t end, const Fn& fn) {
  const KeyPiece* piece = a.pieces;
  while (piece->begin + piece->count <= begin) ++piece;
  for (int32_t key = begin; key < end; ++piece) {
    const int32_t skipped = key - piece->begin;
    const int32_t count = Least(piece->count - skipped, end - key);
    fn(*piece, piece->token + skipped, key, count);
    key += count;
  }
}

// What the next segment or task begins with, from its first key on; k may be null.
inline KeyPiece PieceBehind(const SegmentArgs& a) {
  const KeyPiece* piece = a.pieces;
  while (piece < a.pieces_end && piece->begin + piece->count <= a.hi) ++piece;
  if (piece == a.pieces_end) return a.behind;
  KeyPiece rest = *piece;
  const int32_t skipped = Most(a.hi - rest.begin, 0);
  rest.token += skipped;
  rest.begin += skipped;
  rest.count -= skipped;
  return rest;
}

inline const std::byte* KeysBehind(const SegmentArgs& a) { return PieceBehind(a).k; }

}  // namespace
}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_ATTENTION_PIECES_H_
