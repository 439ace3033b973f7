#include <immintrin.h>

#include "kernels/cpu/dense_avx512_tile.h"
#include "kernels/cpu/dense_kernels.h"

namespace refrain::kernels::cpu {
namespace {

// sums + x[1] w[1] + x[0] w[0] for one pair of k, in the instruction's own order.
struct Bf16Dot {
  static constexpr int kUnit = 1;
  static constexpr int64_t kStepBytes = 64;
  using Vector = __m512i;
  static void Load(const std::byte* b, Vector (&w)[kUnit]) { w[0] = _mm512_loadu_si512(b); }
  static __m512 MultiplyAdd(__m512 sums, const int32_t* x, Vector w) {
    return _mm512_dpbf16_ps(sums, reinterpret_cast<__m512bh>(_mm512_set1_epi32(*x)),
                            reinterpret_cast<__m512bh>(w));
  }
};

}  // namespace

DenseKernels Avx512Bf16DenseKernels() {
  DenseKernels kernels = Avx512DenseKernels();
  kernels.bf16_dot = RunAvx512Tile<Bf16Dot>;
  return kernels;
}

}  // namespace refrain::kernels::cpu
