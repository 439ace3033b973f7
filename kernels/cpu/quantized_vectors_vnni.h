// The vectors of AVX-512 with VNNI that the loops of quantized_kernels_inl.h are templates over.
// For inclusion by the files of single instruction-set levels only.

#ifndef REFRAIN_KERNELS_CPU_QUANTIZED_VECTORS_VNNI_H_
#define REFRAIN_KERNELS_CPU_QUANTIZED_VECTORS_VNNI_H_

#include "kernels/cpu/quantized_vectors_avx512.h"

namespace refrain::kernels::cpu {
namespace {

struct VnniVectors : Avx512Vectors {
  static constexpr int kGemmRows = 6;
  static constexpr int kDirectRows = 12;
  static constexpr bool kShifted = true;

  static I DotPair(I sum, I w0, I w1, I a0, I a1) {
    return _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(sum, w0, a0), w1, a1);
  }
};

}  // namespace
}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_QUANTIZED_VECTORS_VNNI_H_
