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

  template <int kBits>
  static I DotPair(I sum, I w0, I w1, I a0, I a1) {
    const I ones = _mm512_set1_epi16(1);
    if constexpr (kBits == 8) {
      // s8 times s8 as |w| times (a with the sign of w): 2 * 128 * 127 fits 16 bits.
      const I zero = Zero();
      const I s0 = _mm512_mask_sub_epi8(a0, _mm512_movepi8_mask(w0), zero, a0);
      const I s1 = _mm512_mask_sub_epi8(a1, _mm512_movepi8_mask(w1), zero, a1);
      const I p0 = _mm512_maddubs_epi16(_mm512_abs_epi8(w0), s0);
      const I p1 = _mm512_maddubs_epi16(_mm512_abs_epi8(w1), s1);
      sum = Add32(sum, _mm512_madd_epi16(p0, ones));
      return Add32(sum, _mm512_madd_epi16(p1, ones));
    } else {
      // At most 6 bits: 4 * 63 * 127 fits 16 bits.
      const I p = _mm512_add_epi16(_mm512_maddubs_epi16(w0, a0), _mm512_maddubs_epi16(w1, a1));
      return Add32(sum, _mm512_madd_epi16(p, ones));
    }
  }
};

}  // namespace

extern constinit const QuantizedKernels kQuantizedKernelsAvx512 = KernelsFor<Vectors>();

}  // namespace refrain::kernels::cpu
