// AVX-512 F, BW, DQ, VL.

#include "kernels/cpu/quantized_kernels.h"
#include "kernels/cpu/quantized_kernels_inl.h"
#include "kernels/cpu/quantized_vectors_avx512.h"

namespace refrain::kernels::cpu {
namespace {

struct Vectors : Avx512Vectors {
  static constexpr int kGemmRows = 4;
  static constexpr int kDirectRows = 12;
  static constexpr bool kShifted = false;

  static I Add16(I x, I y) {
    I sum = _mm512_add_epi16(x, y);
    // One after the other: g++ makes all products of a sum first, and has no registers for them.
    __asm__("" : "+v"(sum));
    return sum;
  }
  template <int kBits>
  static I Products16(I w, I a) {
    // s8 times s8 as |w| times (a with the sign of w).
    if constexpr (kBits == 8) {
      const I signed_a = _mm512_mask_sub_epi8(a, _mm512_movepi8_mask(w), Zero(), a);
      return _mm512_maddubs_epi16(_mm512_abs_epi8(w), signed_a);
    } else {
      return _mm512_maddubs_epi16(w, a);
    }
  }
  static I AddPairs(I sum, I words) {
    return Add32(sum, _mm512_madd_epi16(words, _mm512_set1_epi16(1)));
  }
  template <int kCount>
  static I ShiftRightSigned16(I x) {
    return _mm512_srai_epi16(x, kCount);
  }
  static I AddWords(I sum, I w, I a) {
    sum = Add32(sum, _mm512_madd_epi16(w, a));
    __asm__("" : "+v"(sum));  // as in Add16
    return sum;
  }
  static void StoreWords(int16_t* p, I x) {
    const __m256i words = _mm512_cvtsepi32_epi16(x);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(words, 0xd8), 0xd8));
  }
};

}  // namespace

extern constinit const QuantizedKernels kQuantizedKernelsAvx512 = KernelsFor<Vectors>();

}  // namespace refrain::kernels::cpu
