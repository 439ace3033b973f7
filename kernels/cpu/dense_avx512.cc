#include <immintrin.h>

#include "kernels/cpu/dense_avx512_tile.h"
#include "kernels/cpu/dense_kernels.h"

namespace refrain::kernels::cpu {
namespace {

__m512 Broadcast(const int32_t* x) { return _mm512_set1_ps(*reinterpret_cast<const float*>(x)); }

struct F32 {
  static constexpr int kUnit = 1;
  static constexpr int64_t kStepBytes = 64;
  using Vector = __m512;
  static void Load(const std::byte* b, Vector (&w)[kUnit]) { w[0] = _mm512_loadu_ps(b); }
  static __m512 MultiplyAdd(__m512 sums, const int32_t* x, Vector w) {
    return _mm512_fmadd_ps(Broadcast(x), w, sums);
  }
};

struct F16 {
  static constexpr int kUnit = 1;
  static constexpr int64_t kStepBytes = 32;
  using Vector = __m512;
  static void Load(const std::byte* b, Vector (&w)[kUnit]) {
    w[0] = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(b)));
  }
  static __m512 MultiplyAdd(__m512 sums, const int32_t* x, Vector w) {
    return _mm512_fmadd_ps(Broadcast(x), w, sums);
  }
};

struct Bf16 {
  static constexpr int kUnit = 2;
  static constexpr int64_t kStepBytes = 32;
  using Vector = __m512;
  static void Load(const std::byte* b, Vector (&w)[kUnit]) {
    const __m512i pairs = _mm512_loadu_si512(b);
    const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000));
    w[0] = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
    w[1] = _mm512_castsi512_ps(_mm512_and_si512(pairs, high));
  }
  static __m512 MultiplyAdd(__m512 sums, const int32_t* x, Vector w) {
    return _mm512_fmadd_ps(Broadcast(x), w, sums);
  }
};

template <class Form>
void Widen(const std::byte* panel, int64_t steps, float* out) {
  for (int64_t step = 0; step < steps; step += Form::kUnit) {
    __m512 w[Form::kUnit];
    Form::Load(panel + step * Form::kStepBytes, w);
    for (int u = 0; u < Form::kUnit && step + u < steps; ++u) {
      _mm512_storeu_ps(out + (step + u) * 16, w[u]);
    }
  }
}

int Panels(int) { return 4; }

}  // namespace

DenseKernels Avx512DenseKernels() {
  return {.max_rows = kAvx512TileRows,
          .panels = Panels,
          .f32 = RunAvx512Tile<F32>,
          .f16 = RunAvx512Tile<F16>,
          .bf16 = RunAvx512Tile<Bf16>,
          .widen_f16 = Widen<F16>,
          .widen_bf16 = Widen<Bf16>};
}

}  // namespace refrain::kernels::cpu
