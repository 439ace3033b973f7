#ifndef REFRAIN_KERNELS_CPU_ATTENTION_WORD_OPERANDS_H_
#define REFRAIN_KERNELS_CPU_ATTENTION_WORD_OPERANDS_H_

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/attention_blocks.h"
#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/attention_pieces.h"

// q, K and V as pairs of 16-bit integers times powers of two, for attention_words.h. Whole numbers
// stay exact while they need no more bits than there are. What is no finite number, and all that
// shares its scale, comes out as zeros with a scale by which they become NaN. Level avx512; include
// only from files that are compiled for one level.
namespace refrain::kernels::cpu {
namespace {

// Bits of magnitude of K. Sums of products stay below 2^31 as the magnitudes of a row of q sum up
// to less than 2^kQueryBits: where a few elements are far greater than the others, which is usual,
// that leaves more bits to all than a bound of each would.
inline constexpr int kKeyBits = 14;
inline constexpr int kQueryBits = 17;
// Of V, and of the greatest weight: 2^14 (2^11 - 1) kTileKeys < 2^31.
inline constexpr int kValueBits = 11;
inline constexpr int kWeightBits = 14;

// The greatest powers of two of which numbers of magnitude up to x are less than 2^bits, also
// rounded, or 256 of them that x is the sum of. NaN and infinity stay what they are; of what lies
// below 2^-100 nothing is left.
inline __m512 UnitExponent(__m512 x, int bits) {
  const float slack = 1.0f + 1.0f / static_cast<float>(1 << Least(bits, 9));
  const __m512 exponent = _mm512_getexp_ps(_mm512_mul_ps(x, _mm512_set1_ps(slack)));
  return _mm512_max_ps(_mm512_set1_ps(-100.0f),  // the second operand where there is NaN
                       _mm512_sub_ps(exponent, _mm512_set1_ps(static_cast<float>(bits - 1))));
}

// `up` turns numbers into integers, and `down` is 1 / up.
struct WordScales {
  __m512 up, down;

  explicit WordScales(__m512 exponent) {
    const __m512 one = _mm512_set1_ps(1.0f);
    up = _mm512_scalef_ps(one, _mm512_sub_ps(_mm512_setzero_ps(), exponent));
    down = _mm512_scalef_ps(one, exponent);
  }
};

// Integers x * up, the first of a pair in the lower half. Rounded by adding what leaves no bits
// behind the point. NaN becomes anything.
inline __m512i AsWords(__m512 first, __m512 second, __m512 up) {
  const __m512 whole = _mm512_set1_ps(0x1.8p23f);
  const __m512i low = _mm512_castps_si512(_mm512_fmadd_ps(first, up, whole));
  const __m512i high = _mm512_castps_si512(_mm512_fmadd_ps(second, up, whole));
  return _mm512_mask_blend_epi16(0xaaaaaaaau, low, _mm512_slli_epi32(high, 16));
}

inline __m256i Load256(const uint16_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
inline constexpr int kUpperHalf = static_cast<int>(0xffff0000u);

// Magnitudes compare as their bits do, NaN above all numbers.
class GreatestF16 {
 public:
  void Add(__m256i x) {
    bits_ = _mm256_max_epu16(bits_, _mm256_and_si256(x, _mm256_set1_epi16(0x7fff)));
  }
  __m512 value() const { return _mm512_cvtph_ps(bits_); }

 private:
  __m256i bits_ = _mm256_setzero_si256();
};

class GreatestBf16 {
 public:
  void Add(__m512i pairs) {
    bits_ = _mm512_max_epu16(bits_, _mm512_and_si512(pairs, _mm512_set1_epi16(0x7fff)));
  }
  // Of the lower and upper elements of all pairs; the upper ones alone.
  __m512 value() const { return Upper(_mm512_max_epu16(bits_, _mm512_slli_epi32(bits_, 16))); }
  __m512 upper() const { return Upper(bits_); }

 private:
  static __m512 Upper(__m512i bits) {
    return _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(kUpperHalf)));
  }

  __m512i bits_ = _mm512_setzero_si512();
};

// Keys of one piece from some token on, 16 at a time: their elements 2i and 2i + 1, and the
// greatest magnitude of each.
struct F16Keys {
  const uint16_t* k;
  int64_t chunk_tokens;

  F16Keys(const std::byte* head, int token, int c)
      : k(reinterpret_cast<const uint16_t*>(head) + token), chunk_tokens(c) {}
  void Load(int i, int j, __m512& even, __m512& odd) const {
    const uint16_t* const row = k + 2 * i * chunk_tokens + j;
    even = _mm512_cvtph_ps(Load256(row));
    odd = _mm512_cvtph_ps(Load256(row + chunk_tokens));
  }
  __m512 Greatest(int head_dim, int j) const {
    GreatestF16 greatest;
    for (int i = 0; i < head_dim; ++i) greatest.Add(Load256(k + i * chunk_tokens + j));
    return greatest.value();
  }
};

struct Bf16Keys {
  const uint32_t* k;
  int64_t chunk_tokens;

  Bf16Keys(const std::byte* head, int token, int c)
      : k(reinterpret_cast<const uint32_t*>(head) + token), chunk_tokens(c) {}
  void Load(int i, int j, __m512& even, __m512& odd) const {
    const __m512i pairs = _mm512_loadu_si512(k + i * chunk_tokens + j);
    even = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
    odd = _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(kUpperHalf)));
  }
  __m512 Greatest(int head_dim, int j) const {
    GreatestBf16 greatest;
    for (int i = 0; i < head_dim / 2; ++i) {
      greatest.Add(_mm512_loadu_si512(k + i * chunk_tokens + j));
    }
    return greatest.value();
  }
};

// The values of a tile's keys, 16 elements from i on: those of key j, and the greatest magnitudes
// of the keys [begin, end).
struct F16Values {
  const uint16_t* rows[kTileKeys];

  void Set(int j, const std::byte* head, int token, int head_dim) {
    rows[j] = reinterpret_cast<const uint16_t*>(head) + int64_t{token} * head_dim;
  }
  void SetZeros(int j, const uint32_t* zeros) {
    rows[j] = reinterpret_cast<const uint16_t*>(zeros);
  }
  __m512 Load(int j, int i) const { return _mm512_cvtph_ps(Load256(rows[j] + i)); }
  __m512 Greatest(int begin, int end, int i) const {
    GreatestF16 greatest;
    for (int j = begin; j < end; ++j) greatest.Add(Load256(rows[j] + i));
    return greatest.value();
  }
};

struct Bf16Values {
  const uint32_t* rows[kTileKeys];
  int shifts[kTileKeys];  // by which the token's half becomes the upper one

  void Set(int j, const std::byte* head, int token, int head_dim) {
    rows[j] = reinterpret_cast<const uint32_t*>(head) + int64_t{token / 2} * head_dim;
    shifts[j] = token % 2 == 0 ? 16 : 0;
  }
  void SetZeros(int j, const uint32_t* zeros) {
    rows[j] = zeros;
    shifts[j] = 0;
  }
  __m512 Load(int j, int i) const {
    return _mm512_castsi512_ps(_mm512_and_si512(Shifted(j, i), _mm512_set1_epi32(kUpperHalf)));
  }
  __m512 Greatest(int begin, int end, int i) const {
    GreatestBf16 greatest;
    for (int j = begin; j < end; ++j) greatest.Add(Shifted(j, i));
    return greatest.upper();
  }

 private:
  __m512i Shifted(int j, int i) const {
    return _mm512_sll_epi32(_mm512_loadu_si512(rows[j] + i), _mm_cvtsi32_si128(shifts[j]));
  }
};

// Operands of one tile, and of all rows.
class WordOperands {
 public:
  // Elements of heads go in whole vectors, and zeros are at hand for this many.
  static constexpr int kMostHeadDim = 256;

  // q as words: [rows, QueryStride] with the row's scale, a float, behind its head_dim / 2 pairs.
  static int QueryStride(const SegmentArgs& a) { return a.head_dim / 2 + 16; }

  static void Queries(const SegmentArgs& a) {
    auto* out = reinterpret_cast<uint32_t*>(a.q_pairs);
    // The even elements of two vectors, then the odd ones.
    const __m512i evens =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odds = _mm512_add_epi32(evens, _mm512_set1_epi32(1));
    for (int r = 0; r < a.num_rows; ++r, out += QueryStride(a)) {
      const float* const q = a.q + r * a.q_stride;
      const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
      __m512i greatest = _mm512_setzero_si512();  // by the bits: above them are those of NaN
      __m512 sum = _mm512_setzero_ps();
      for (int i = 0; i < a.head_dim; i += 16) {
        const __m512i x = _mm512_and_si512(_mm512_loadu_si512(q + i), magnitude);
        greatest = _mm512_max_epu32(greatest, x);
        sum = _mm512_add_ps(sum, _mm512_castsi512_ps(x));
      }
      const auto largest = static_cast<int>(_mm512_reduce_max_epu32(greatest));
      const WordScales scales(
          _mm512_max_ps(UnitExponent(_mm512_castsi512_ps(_mm512_set1_epi32(largest)), 15),
                        UnitExponent(_mm512_set1_ps(_mm512_reduce_add_ps(sum)), kQueryBits)));
      for (int i = 0; i < a.head_dim; i += 32) {
        const __m512 low = _mm512_loadu_ps(q + i);
        const __m512 high = i + 16 < a.head_dim ? _mm512_loadu_ps(q + i + 16) : _mm512_setzero_ps();
        _mm512_storeu_si512(out + i / 2,
                            AsWords(_mm512_permutex2var_ps(low, evens, high),
                                    _mm512_permutex2var_ps(low, odds, high), scales.up));
      }
      const float down = _mm512_cvtss_f32(scales.down);
      __builtin_memcpy(out + a.head_dim / 2, &down, sizeof(down));
    }
  }

  // The tile's keys of `range` as words in k_tile: [head_dim / 2, kKeyTileStride] by key - tile.
  // What lies around them can be read and means nothing.
  static void Keys(const SegmentArgs& a, int32_t tile, TileRange range,
                   float (&scales)[kTileKeys + 16]) {
    ForPieces(a, range.begin, range.end,
              [&](const KeyPiece& piece, int token, int32_t key, int count) {
                const std::byte* const head = piece.k + a.head_offset;
                const int at = key - tile;
                if (a.type == KvElementType::kF16) {
                  PackKeys(a, F16Keys(head, token, a.chunk_tokens), count, at, scales + at);
                } else {
                  PackKeys(a, Bf16Keys(head, token, a.chunk_tokens), count, at, scales + at);
                }
              });
  }

  // The tile's values of `range` as words in v_tile: [kTileKeys / 2, o_stride], row 16 g + l having
  // keys 32 g + l and 32 g + 16 + l, zeros for those that `range` does not have. False where some
  // are no finite numbers: then nothing else can be said of what shares their scale.
  static bool Values(const SegmentArgs& a, int32_t tile, TileRange range,
                     float (&scales)[kMostHeadDim]) {
    const int begin = range.begin - tile, end = range.end - tile;
    return a.type == KvElementType::kF16
               ? PackValues(a, RowsOf<F16Values>(a, tile, range), begin, end, scales)
               : PackValues(a, RowsOf<Bf16Values>(a, tile, range), begin, end, scales);
  }

  // o += weight(key) V of the tile's keys of `range` that the row sees, one by one.
  template <class Weight>
  static void AddValues(const SegmentArgs& a, int32_t tile, TileRange range, int row,
                        const Weight& weight) {
    a.type == KvElementType::kF16
        ? AddRows(a, RowsOf<F16Values>(a, tile, range), tile, range, row, weight)
        : AddRows(a, RowsOf<Bf16Values>(a, tile, range), tile, range, row, weight);
  }

 private:
  alignas(64) static constexpr uint32_t kZeros[kMostHeadDim] = {};

  template <class Loader>
  static void PackKeys(const SegmentArgs& a, const Loader keys, int count, int at, float* scales) {
    const int pairs = a.head_dim / 2;
    auto* const out = reinterpret_cast<uint32_t*>(a.k_tile) + at;
    __m512 even, odd;
    for (int j = 0; j < count; j += 16) {
      const WordScales by(UnitExponent(keys.Greatest(a.head_dim, j), kKeyBits));
      _mm512_storeu_ps(scales + j, by.down);
      for (int i = 0; i < pairs; ++i) {
        keys.Load(i, j, even, odd);
        _mm512_storeu_si512(out + i * int64_t{kKeyTileStride} + j, AsWords(even, odd, by.up));
      }
    }
  }

  template <class Rows>
  static Rows RowsOf(const SegmentArgs& a, int32_t tile, TileRange range) {
    Rows rows;
    for (int j = 0; j < range.begin - tile; ++j) rows.SetZeros(j, kZeros);
    for (int j = range.end - tile; j < kTileKeys; ++j) rows.SetZeros(j, kZeros);
    ForPieces(a, range.begin, range.end,
              [&](const KeyPiece& piece, int token, int32_t key, int count) {
                for (int j = 0; j < count; ++j) {
                  rows.Set(key - tile + j, piece.v + a.head_offset, token + j, a.head_dim);
                }
              });
    return rows;
  }

  template <class Rows, class Weight>
  static void AddRows(const SegmentArgs& a, const Rows& rows, int32_t tile, TileRange range,
                      int row, const Weight& weight) {
    const int32_t end = Least(range.end, a.row_limits[row]);
    float* const o = a.o + row * a.o_stride;
    for (int32_t key = range.begin; key < end; ++key) {
      const int32_t index = key - a.segment_begin;
      if (a.row_oldest != nullptr && a.positions[index] <= a.row_oldest[row]) continue;
      const __m512 p = _mm512_set1_ps(weight(index));
      for (int i = 0; i < a.head_dim; i += 16) {
        _mm512_storeu_ps(o + i,
                         _mm512_fmadd_ps(p, rows.Load(key - tile, i), _mm512_loadu_ps(o + i)));
      }
    }
  }

  template <class Rows>
  static bool PackValues(const SegmentArgs& a, const Rows& rows, int begin, int end,
                         float* scales) {
    auto* const out = reinterpret_cast<uint32_t*>(a.v_tile);
    __mmask16 not_finite = 0;
    for (int i = 0; i < a.head_dim; i += 16) {
      const WordScales by(UnitExponent(rows.Greatest(begin, end, i), kValueBits));
      _mm512_storeu_ps(scales + i, by.down);
      constexpr int kNaNOrInfinity = 0x99;
      not_finite |= _mm512_fpclass_ps_mask(by.down, kNaNOrInfinity);
      for (int g = 0; g < kTileKeys / 32; ++g) {
        for (int l = 0; l < 16; ++l) {
          const int j = 32 * g + l;
          _mm512_storeu_si512(out + (16 * g + l) * a.o_stride + i,
                              AsWords(rows.Load(j, i), rows.Load(j + 16, i), by.up));
        }
      }
    }
    return not_finite == 0;
  }
};

}  // namespace
}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_ATTENTION_WORD_OPERANDS_H_
