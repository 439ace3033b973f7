// AVX2 with the byte dot products of AVX-VNNI: vectors for the loops of quantized_kernels_inl.h.
// For inclusion by the files of single instruction-set levels only.

#ifndef REFRAIN_KERNELS_CPU_QUANTIZED_VECTORS_AVX_VNNI_H_
#define REFRAIN_KERNELS_CPU_QUANTIZED_VECTORS_AVX_VNNI_H_

#include "kernels/cpu/quantized_vectors_avx2.h"

namespace refrain::kernels::cpu {
namespace {

// How VPDPBUSD is encoded: processors with AVX-VNNI know the one, those with AVX-512 VNNI and VL
// the other. All else is AVX2's.
enum class VnniEncoding { kVex, kEvex };

template <VnniEncoding kEncoding>
struct AvxVnniVectors : Avx2Vectors {
  static constexpr int kGemmRows = 4;
  static constexpr int kDirectRows = 3;
  static constexpr bool kShifted = true;
  static constexpr bool kFewRegisters = true;

  static I Dot(I sum, I w, I a) {
    if constexpr (kEncoding == VnniEncoding::kVex) {
      __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(w), "xm"(a));
    } else {
      __asm__("%{evex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(w), "xm"(a));
    }
    return sum;
  }
  static I DotPair(I sum, I w0, I w1, I a0, I a1) { return Dot(Dot(sum, w0, a0), w1, a1); }
};

}  // namespace
}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_QUANTIZED_VECTORS_AVX_VNNI_H_
