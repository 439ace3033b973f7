#ifndef REFRAIN_KERNELS_CPU_ATTENTION_HALF_OPERANDS_H_
#define REFRAIN_KERNELS_CPU_ATTENTION_HALF_OPERANDS_H_

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/attention_blocks.h"
#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/attention_pieces.h"
#include "kernels/cpu/attention_word_operands.h"
#include "kernels/cpu/attention_word_scales.h"

// What attention_word_operands.h makes of K and V in f16, bit for bit, by instructions on f16
// (AVX-512 FP16): 32 elements at a time, and none of them widened. A power of two times an f16 is
// exact, and where it is too small for one it rounds to no integer but 0. Include only from files
// that are compiled for one level.
namespace refrain::kernels::cpu {
namespace {

class HalfOperands : public WordOperands {
 public:
  static void Keys(const SegmentArgs& a, int32_t tile, TileRange range,
                   float (&scales)[kTileKeys + 16]) {
    if (a.type != KvElementType::kF16) return WordOperands::Keys(a, tile, range, scales);
    ForPieces(
        a, range.begin, range.end, [&](const KeyPiece& piece, int token, int32_t key, int count) {
          const auto* const k = reinterpret_cast<const uint16_t*>(piece.k + a.head_offset) + token;
          const int at = key - tile;
          auto* const out = reinterpret_cast<uint32_t*>(a.k_tile) + at;
          int j = 0;
          for (; j + 16 < count; j += 32) PackKeys(a, k + j, out + j, scales + at + j);
          if (j < count) {
            WordOperands::PackKeys(a, F16Keys(piece.k + a.head_offset, token + j, a.chunk_tokens),
                                   count - j, at + j, scales + at + j);
          }
        });
  }

  static bool Values(const SegmentArgs& a, int32_t tile, TileRange range,
                     float (&scales)[kMostHeadDim]) {
    if (a.type != KvElementType::kF16) return WordOperands::Values(a, tile, range, scales);
    const int begin = range.begin - tile, end = range.end - tile;
    const F16Values rows = RowsOf<F16Values>(a, tile, range);
    auto* const out = reinterpret_cast<uint32_t*>(a.v_tile);
    bool finite = true;
    int i = 0;
    for (; i + 32 <= a.head_dim; i += 32) {
      __m512i greatest = _mm512_setzero_si512();
      for (int j = begin; j < end; ++j) greatest = Greater(greatest, rows.rows[j] + i);
      const Scales by(greatest, kValueBits, scales + i);
      finite &= by.AllFinite();
      for (int g = 0; g < kTileKeys / 32; ++g) {
        for (int l = 0; l < 16; ++l) {
          const int j = 32 * g + l;
          Put(by.Words(rows.rows[j] + i), by.Words(rows.rows[j + 16] + i),
              out + (16 * g + l) * a.o_stride + i);
        }
      }
    }
    if (i < a.head_dim) finite &= PackValues(a, rows, begin, end, i, scales);
    return finite;
  }

 private:
  // Of 32 numbers: powers of two for f16, as their exponents.
  class Scales {
   public:
    // `greatest` in f16, whose scales back go to `down`.
    Scales(__m512i greatest, int bits, float* down) {
      const __m512 low = Exponents(_mm512_castsi512_si256(greatest), bits, down);
      const __m512 high = Exponents(_mm512_extracti64x4_epi64(greatest, 1), bits, down + 16);
      const __m512 zero = _mm512_setzero_ps();
      up_ = _mm512_castsi512_ph(_mm512_inserti64x4(
          _mm512_castsi256_si512(_mm512_cvtps_ph(_mm512_sub_ps(zero, low), kRound)),
          _mm512_cvtps_ph(_mm512_sub_ps(zero, high), kRound), 1));
      constexpr int kNaNOrInfinity = 0x99;
      finite_ = ~_mm512_fpclass_ph_mask(up_, kNaNOrInfinity);
    }
    bool AllFinite() const { return finite_ == 0xffffffffu; }
    // Zeros where there is no finite scale.
    __m512i Words(const uint16_t* x) const {
      return _mm512_cvtph_epi16(_mm512_maskz_scalef_ph(finite_, _mm512_loadu_ph(x), up_));
    }

   private:
    static constexpr int kRound = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    static __m512 Exponents(__m256i greatest, int bits, float* down) {
      const __m512 exponent = UnitExponent(_mm512_cvtph_ps(greatest), bits);
      _mm512_storeu_ps(down, _mm512_scalef_ps(_mm512_set1_ps(1.0f), exponent));
      return exponent;
    }
    __m512h up_;
    __mmask32 finite_;
  };

  static __m512i Greater(__m512i greatest, const uint16_t* x) {
    return _mm512_max_epu16(greatest,
                            _mm512_and_si512(_mm512_loadu_si512(x), _mm512_set1_epi16(0x7fff)));
  }

  // Two times 32 words as 32 pairs.
  static void Put(__m512i even, __m512i odd, uint32_t* out) {
    const __m512i low = _mm512_unpacklo_epi16(even, odd);   // pairs 0 to 3 of each 8
    const __m512i high = _mm512_unpackhi_epi16(even, odd);  // and 4 to 7
    const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    const __m512i second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    _mm512_storeu_si512(out, _mm512_permutex2var_epi64(low, first, high));
    _mm512_storeu_si512(out + 16, _mm512_permutex2var_epi64(low, second, high));
  }

  static void PackKeys(const SegmentArgs& a, const uint16_t* k, uint32_t* out, float* scales) {
    const int64_t c = a.chunk_tokens;
    __m512i greatest = _mm512_setzero_si512();
    for (int i = 0; i < a.head_dim; ++i) greatest = Greater(greatest, k + i * c);
    const Scales by(greatest, kKeyBits, scales);
    for (int i = 0; i < a.head_dim; i += 2) {
      Put(by.Words(k + i * c), by.Words(k + (i + 1) * c), out + i / 2 * int64_t{kKeyTileStride});
    }
  }
};

}  // namespace
}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_ATTENTION_HALF_OPERANDS_H_
