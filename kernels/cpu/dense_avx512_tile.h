#ifndef REFRAIN_KERNELS_CPU_DENSE_AVX512_TILE_H_
#define REFRAIN_KERNELS_CPU_DENSE_AVX512_TILE_H_

#include <immintrin.h>

#include "kernels/cpu/dense_kernels.h"

// Register tiles of up to 6 rows x 64 columns in 32 zmm registers: 24 sums, 4 vectors of W, one
// broadcast element of x. 10 loads for 24 multiply-adds; the taller 14 x 32 needs 16 for 28 and was
// measured 10 % slower, since loads are what two hardware threads of a core compete for. Included
// by the AVX-512 files only.
//
// Everything here is a template over a Form that the including file declares in an unnamed
// namespace. Its instances are therefore local to that file, and the linker cannot share code
// between files compiled for different levels. A Form says how W is read and multiplied:
//   struct Form {
//     static constexpr int kUnit;            // steps that one Load gives
//     static constexpr int64_t kStepBytes;   // of one panel
//     using Vector = ...;                    // 16 columns of one step
//     static void Load(const std::byte* b, Vector (&w)[kUnit]);
//     static __m512 MultiplyAdd(__m512 sums, const int32_t* x, Vector w);  // x: one step of a row
//   };

namespace refrain::kernels::cpu {

inline constexpr int kAvx512TileRows = 6;

// The sums of one register tile while it runs.
template <class Form, int kRows, int kPanels>
struct Avx512Tile {
  using Vector = typename Form::Vector;

  __m512 sums[kRows][kPanels];

  [[gnu::always_inline]] void Start(const DenseTile& tile) {
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) {
        sums[r][p] = tile.start == nullptr
                         ? _mm512_setzero_ps()
                         : _mm512_loadu_ps(tile.start + r * tile.start_stride + p * 16);
      }
    }
  }

  // The first `used` steps of one unit.
  [[gnu::always_inline]] void Add(const int32_t* a, int64_t a_stride, const std::byte* b,
                                  int64_t b_panel_bytes, int used) {
    Vector w[kPanels][Form::kUnit];
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) Form::Load(b + p * b_panel_bytes, w[p]);
#pragma GCC unroll 2
    for (int u = 0; u < Form::kUnit; ++u) {
      if (u >= used) break;
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (int p = 0; p < kPanels; ++p) {
          sums[r][p] = Form::MultiplyAdd(sums[r][p], a + r * a_stride + u, w[p][u]);
        }
      }
    }
  }

  [[gnu::always_inline]] void Store(const DenseTile& tile) const {
    const __mmask16 last = static_cast<__mmask16>((1u << tile.last_columns) - 1);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) {
        float* out = tile.out + r * tile.out_stride + p * 16;
        const __mmask16 mask = p == kPanels - 1 ? last : static_cast<__mmask16>(0xffff);
        __m512 sum = sums[r][p];
        if (tile.add_to_out) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, out), sum);
        _mm512_mask_storeu_ps(out, mask, sum);
      }
    }
  }

  static void Run(const DenseTile& tile) {
    constexpr int kUnroll = kRows * kPanels > 16 ? 2 : 8;
    Avx512Tile self;
    self.Start(tile);
    const auto* a = static_cast<const int32_t*>(tile.a);
    const int64_t a_stride = kRows > kDenseFreeStrideRows ? kDensePackedStride : tile.a_stride;
    const std::byte* b = tile.b;
    const std::byte* prefetch = tile.prefetch;
    int64_t step = 0;
    for (; step + 8 <= tile.steps; step += 8) {
      for (int line = 0; line < tile.prefetch_lines; ++line, prefetch += 64) {
#pragma GCC unroll 4
        for (int p = 0; p < kPanels; ++p) {
          _mm_prefetch(reinterpret_cast<const char*>(prefetch + p * tile.prefetch_panel_bytes),
                       _MM_HINT_T1);
        }
      }
#pragma GCC unroll 1
      for (int i = 0; i < 8; i += kUnroll) {
#pragma GCC unroll 8
        for (int u = 0; u < kUnroll; u += Form::kUnit) {
          self.Add(a + u, a_stride, b + u * Form::kStepBytes, tile.b_panel_bytes, Form::kUnit);
        }
        a += kUnroll;
        b += kUnroll * Form::kStepBytes;
      }
    }
#pragma GCC unroll 1
    for (; step + Form::kUnit <= tile.steps; step += Form::kUnit) {
      self.Add(a, a_stride, b, tile.b_panel_bytes, Form::kUnit);
      a += Form::kUnit;
      b += Form::kUnit * Form::kStepBytes;
    }
    if (step < tile.steps) self.Add(a, a_stride, b, tile.b_panel_bytes, 1);
    self.Store(tile);
  }
};

template <class Form>
void RunAvx512Tile(const DenseTile& tile) {
  static constexpr DenseTileKernel kTiles[kAvx512TileRows][3] = {
      {Avx512Tile<Form, 1, 1>::Run, Avx512Tile<Form, 1, 2>::Run, Avx512Tile<Form, 1, 4>::Run},
      {Avx512Tile<Form, 2, 1>::Run, Avx512Tile<Form, 2, 2>::Run, Avx512Tile<Form, 2, 4>::Run},
      {Avx512Tile<Form, 3, 1>::Run, Avx512Tile<Form, 3, 2>::Run, Avx512Tile<Form, 3, 4>::Run},
      {Avx512Tile<Form, 4, 1>::Run, Avx512Tile<Form, 4, 2>::Run, Avx512Tile<Form, 4, 4>::Run},
      {Avx512Tile<Form, 5, 1>::Run, Avx512Tile<Form, 5, 2>::Run, Avx512Tile<Form, 5, 4>::Run},
      {Avx512Tile<Form, 6, 1>::Run, Avx512Tile<Form, 6, 2>::Run, Avx512Tile<Form, 6, 4>::Run},
  };
  kTiles[tile.rows - 1][tile.panels / 2](tile);
}

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_DENSE_AVX512_TILE_H_
