#include <immintrin.h>

#include "kernels/cpu/dense_kernels.h"

namespace refrain::kernels::cpu {
namespace {

constexpr int kMaxRows = 6;

// Forms of a panel: Load gives the two halves of kUnit steps.
struct F32 {
  static constexpr int kUnit = 1;  // steps per load
  static constexpr int64_t kStepBytes = 64;
  static void Load(const std::byte* b, __m256 (&w)[kUnit][2]) {
    w[0][0] = _mm256_loadu_ps(reinterpret_cast<const float*>(b));
    w[0][1] = _mm256_loadu_ps(reinterpret_cast<const float*>(b) + 8);
  }
};

struct F16 {
  static constexpr int kUnit = 1;
  static constexpr int64_t kStepBytes = 32;
  static void Load(const std::byte* b, __m256 (&w)[kUnit][2]) {
    const auto* halves = reinterpret_cast<const __m128i*>(b);
    w[0][0] = _mm256_cvtph_ps(_mm_loadu_si128(halves));
    w[0][1] = _mm256_cvtph_ps(_mm_loadu_si128(halves + 1));
  }
};

struct Bf16 {
  static constexpr int kUnit = 2;
  static constexpr int64_t kStepBytes = 32;
  static void Load(const std::byte* b, __m256 (&w)[kUnit][2]) {
    const __m256i high = _mm256_set1_epi32(static_cast<int>(0xffff0000));
    for (int half = 0; half < 2; ++half) {
      const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b) + half);
      w[0][half] = _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
      w[1][half] = _mm256_castsi256_ps(_mm256_and_si256(pairs, high));
    }
  }
};

template <int kRows, int kPanels>
struct Sums {
  __m256 v[kRows][kPanels][2];
};

// kUnit steps from `b`, of which the last `kUnit - used` are padding and skipped.
template <class Form, int kRows, int kPanels>
[[gnu::always_inline]] inline void Step(Sums<kRows, kPanels>& sums, const float* a,
                                        int64_t a_stride, const std::byte* b, int64_t b_panel_bytes,
                                        int used) {
  __m256 w[kPanels][Form::kUnit][2];
#pragma GCC unroll 4
  for (int p = 0; p < kPanels; ++p) Form::Load(b + p * b_panel_bytes, w[p]);
#pragma GCC unroll 2
  for (int u = 0; u < Form::kUnit; ++u) {
    if (u >= used) break;
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const __m256 x = _mm256_broadcast_ss(a + r * a_stride + u);
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) {
        sums.v[r][p][0] = _mm256_fmadd_ps(x, w[p][u][0], sums.v[r][p][0]);
        sums.v[r][p][1] = _mm256_fmadd_ps(x, w[p][u][1], sums.v[r][p][1]);
      }
    }
  }
}

void StorePart(float* out, __m256 low, __m256 high, int columns, bool add) {
  alignas(32) float values[16];
  _mm256_store_ps(values, low);
  _mm256_store_ps(values + 8, high);
  for (int i = 0; i < columns; ++i) out[i] = add ? out[i] + values[i] : values[i];
}

template <int kRows, int kPanels>
void Store(const DenseTile& tile, const Sums<kRows, kPanels>& sums) {
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kPanels; ++p) {
      float* out = tile.out + r * tile.out_stride + p * 16;
      __m256 low = sums.v[r][p][0];
      __m256 high = sums.v[r][p][1];
      if (p == kPanels - 1 && tile.last_columns < 16) {
        StorePart(out, low, high, tile.last_columns, tile.add_to_out);
        continue;
      }
      if (tile.add_to_out) {
        low = _mm256_add_ps(_mm256_loadu_ps(out), low);
        high = _mm256_add_ps(_mm256_loadu_ps(out + 8), high);
      }
      _mm256_storeu_ps(out, low);
      _mm256_storeu_ps(out + 8, high);
    }
  }
}

template <class Form, int kRows, int kPanels>
void Tile(const DenseTile& tile) {
  Sums<kRows, kPanels> sums;
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
      const float* start = tile.start + r * tile.start_stride + p * 16;
      sums.v[r][p][0] = tile.start == nullptr ? _mm256_setzero_ps() : _mm256_loadu_ps(start);
      sums.v[r][p][1] = tile.start == nullptr ? _mm256_setzero_ps() : _mm256_loadu_ps(start + 8);
    }
  }
  const auto* a = static_cast<const float*>(tile.a);
  const int64_t a_stride = kRows > kDenseFreeStrideRows ? kDensePackedStride : tile.a_stride;
  const std::byte* b = tile.b;
  const std::byte* prefetch = tile.prefetch;
  int64_t step = 0;
  for (; step + 8 <= tile.steps; step += 8) {
    for (int line = 0; line < tile.prefetch_lines; ++line, prefetch += 64) {
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) {
        _mm_prefetch(reinterpret_cast<const char*>(prefetch + p * tile.prefetch_panel_bytes),
                     _MM_HINT_T0);
      }
    }
#pragma GCC unroll 8
    for (int u = 0; u < 8; u += Form::kUnit) {
      Step<Form>(sums, a + u, a_stride, b + u * Form::kStepBytes, tile.b_panel_bytes, Form::kUnit);
    }
    a += 8;
    b += 8 * Form::kStepBytes;
  }
  for (; step + Form::kUnit <= tile.steps; step += Form::kUnit) {
    Step<Form>(sums, a, a_stride, b, tile.b_panel_bytes, Form::kUnit);
    a += Form::kUnit;
    b += Form::kUnit * Form::kStepBytes;
  }
  if (step < tile.steps) Step<Form>(sums, a, a_stride, b, tile.b_panel_bytes, 1);
  Store(tile, sums);
}

int Panels(int rows) { return rows == 1 ? 4 : rows <= 3 ? 2 : 1; }

template <class Form>
void RunTile(const DenseTile& tile) {
  static constexpr DenseTileKernel kTiles[kMaxRows][3] = {
      {Tile<Form, 1, 1>, Tile<Form, 1, 2>, Tile<Form, 1, 4>},
      {Tile<Form, 2, 1>, Tile<Form, 2, 2>, nullptr},
      {Tile<Form, 3, 1>, Tile<Form, 3, 2>, nullptr},
      {Tile<Form, 4, 1>, nullptr, nullptr},
      {Tile<Form, 5, 1>, nullptr, nullptr},
      {Tile<Form, 6, 1>, nullptr, nullptr},
  };
  kTiles[tile.rows - 1][tile.panels / 2](tile);
}

template <class Form>
void Widen(const std::byte* panel, int64_t steps, float* out) {
  for (int64_t step = 0; step < steps; step += Form::kUnit) {
    __m256 w[Form::kUnit][2];
    Form::Load(panel + step * Form::kStepBytes, w);
    for (int u = 0; u < Form::kUnit && step + u < steps; ++u) {
      _mm256_storeu_ps(out + (step + u) * 16, w[u][0]);
      _mm256_storeu_ps(out + (step + u) * 16 + 8, w[u][1]);
    }
  }
}

}  // namespace

DenseKernels Avx2DenseKernels() {
  return {.max_rows = kMaxRows,
          .panels = Panels,
          .f32 = RunTile<F32>,
          .f16 = RunTile<F16>,
          .bf16 = RunTile<Bf16>,
          .widen_f16 = Widen<F16>,
          .widen_bf16 = Widen<Bf16>};
}

}  // namespace refrain::kernels::cpu
