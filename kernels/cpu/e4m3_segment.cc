#include "kernels/cpu/e4m3_segment.h"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/attention_pieces.h"

namespace refrain::kernels::cpu {
namespace {

// From one pair of the head's elements to the next: no power of two, which would put all rows into
// the same few sets of a cache.
constexpr int64_t kKeyStride = kScoreStride;
constexpr int kMaxHeadDim = 256;
// Rows of keys are widened in steps of so many tokens, as long as the longest vector of any level.
constexpr int kKeyStep = 16;

constexpr uint8_t kZeros[kMaxHeadDim] = {};

const uint8_t* Head(const SegmentArgs& a, const std::byte* layer) {
  return reinterpret_cast<const uint8_t*>(layer + a.head_offset);
}

// Where one key's values are.
const uint8_t* ValueRow(const SegmentArgs& a, const KeyPiece& piece, int32_t key) {
  return Head(a, piece.v) + int64_t{piece.token + key - piece.begin} * a.head_dim;
}

// K [d][c] to [d / 2][tokens][2]. Steps may run over the end of a piece, by less than kKeyStep
// bytes, behind which the chunk's values lie; the next piece overwrites what they leave, or nobody
// reads it.
void WidenKeys(void (*widen)(const E4m3Rows& rows), const SegmentArgs& a, uint32_t* out) {
  ForPieces(a, a.begin, a.hi, [&](const KeyPiece& piece, int token, int32_t key, int count) {
    const bool last = piece.begin + piece.count >= a.hi;
    const uint8_t* const k = Head(a, piece.k) + token;
    widen({.even = k,
           .odd = k + a.chunk_tokens,
           .stride = int64_t{2} * a.chunk_tokens,
           .rows = a.head_dim / 2,
           .count = DivideUp(count, kKeyStep) * kKeyStep,
           .ahead = Head(a, last ? a.pieces->v : (&piece + 1)->k),
           .out = out + (key - a.segment_begin),
           .out_stride = kKeyStride});
  });
}

// V [c][d] to [pairs of keys, counted from the segment's begin][d][2]; zeros for a key outside
// [begin, hi).
void WidenValues(void (*widen)(const E4m3Rows& rows), const SegmentArgs& a, uint32_t* out) {
  const int64_t d = a.head_dim;
  const std::byte* const behind = KeysBehind(a);
  const KeyPiece* piece = a.pieces;
  int32_t key = a.begin - (a.begin - a.segment_begin) % 2;
  while (key < a.hi) {
    while (piece->begin + piece->count <= Most(key, a.begin)) ++piece;
    const int32_t end = Least(piece->begin + piece->count, a.hi);
    E4m3Rows rows = {.stride = 2 * d,
                     .rows = 1,
                     .count = a.head_dim,
                     .out = out + (key - a.segment_begin) / 2 * d,
                     .out_stride = d};
    const int whole = key < a.begin ? 0 : (end - key) / 2;
    if (whole > 0) {
      const std::byte* const next = end < a.hi ? piece[1].v : behind;
      rows.even = ValueRow(a, *piece, key);
      rows.odd = rows.even + d;
      rows.rows = whole;
      rows.ahead = next == nullptr ? rows.even : Head(a, next);
    } else {  // one of the pair is outside, or in the next piece
      const int32_t upper = key + 1;
      rows.even = key < a.begin ? kZeros : ValueRow(a, *piece, key);
      rows.odd = upper < a.hi ? ValueRow(a, upper < end ? *piece : piece[1], upper) : kZeros;
      rows.ahead = rows.even;
    }
    widen(rows);
    key += 2 * rows.rows;
  }
}

}  // namespace

void E4m3Segment::Reserve(int head_dim) {
  assert(head_dim <= kMaxHeadDim);
  keys_.Reserve(head_dim / 2 * kKeyStride);
  values_.Reserve(int64_t{kMaxSegmentKeys / 2} * head_dim);
}

void E4m3Segment::Widen(void (*widen)(const E4m3Rows& rows), SegmentArgs& a) {
  WidenKeys(widen, a, reinterpret_cast<uint32_t*>(keys_.data()));
  WidenValues(widen, a, reinterpret_cast<uint32_t*>(values_.data()));
  piece_ = {.k = reinterpret_cast<const std::byte*>(keys_.data()),
            .v = reinterpret_cast<const std::byte*>(values_.data()),
            .positions = nullptr,  // those of the segment have been gathered
            .token = a.begin - a.segment_begin,
            .begin = a.begin,
            .count = a.hi - a.begin};
  a.type = KvElementType::kBF16Pairs;
  a.chunk_tokens = kKeyStride;
  a.pieces = &piece_;
  a.pieces_end = &piece_ + 1;
  a.behind = {};
  a.head_offset = 0;
}

}  // namespace refrain::kernels::cpu
