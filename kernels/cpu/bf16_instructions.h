#ifndef REFRAIN_KERNELS_CPU_BF16_INSTRUCTIONS_H_
#define REFRAIN_KERNELS_CPU_BF16_INSTRUCTIONS_H_

#include <immintrin.h>

// The instructions of AVX-512 BF16 that attention_dot.h is a template over. Include only from files
// that are compiled for that level.
namespace refrain::kernels::cpu {
namespace {

struct HardwareBf16 {
  // VDPBF16PS. By Intel's manual, volume 2: the products of the odd elements are added first, then
  // those of the even ones, each by a fused multiply-add that rounds to nearest even; denormals are
  // zeros on both sides, MXCSR is neither read nor written.
  static __m512 Dot(__m512 sums, __m512i x, __m512i w) {
    return _mm512_dpbf16_ps(sums, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(w));
  }

  // VCVTNE2PS2BF16: to nearest even, denormals become zeros.
  static __m512i Round(__m512 low, __m512 high) {
    return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
  }
};

}  // namespace
}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_BF16_INSTRUCTIONS_H_
