// Products of rows of 16 bits with weights of 8 by AMX tiles of bytes, for inclusion by the files
// of single instruction-set levels only. Tiles is as amx_tiles.h says; see tile_kernels.h for the
// layouts.

#ifndef REFRAIN_KERNELS_CPU_TILE_BYTES_INL_H_
#define REFRAIN_KERNELS_CPU_TILE_BYTES_INL_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/tile_kernels.h"

namespace refrain::kernels::cpu {

// Of one digit, the high one with at most 127: no rounding goes beyond it.
inline constexpr int kByteDigit = 256;
inline constexpr int kMostByteFixed = 127 * kByteDigit;

// Tiles makes it each level's own.
template <class Tiles>
void PackByteRow(const float* x, int64_t k, int8_t* high, int8_t* low, ByteRowScale* scale) {
  const auto load = [&](int64_t i) {
    const int64_t left = k - i;
    const auto lanes = left >= 16  ? __mmask16{0xffff}
                       : left <= 0 ? __mmask16{0}
                                   : static_cast<__mmask16>((1 << left) - 1);
    return _mm512_maskz_loadu_ps(lanes, x + i);
  };
  __m512 most = _mm512_setzero_ps();
  __mmask16 is_nan = 0;
  for (int64_t i = 0; i < k; i += 16) {
    const __m512 size = _mm512_abs_ps(load(i));
    is_nan |= _mm512_cmp_ps_mask(size, size, _CMP_UNORD_Q);
    most = _mm512_max_ps(most, size);
  }
  const float size = is_nan != 0 ? __builtin_nanf("") : _mm512_reduce_max_ps(most);
  // Of so little nothing needs to be seen; its inverse might not be finite.
  constexpr float kNothing = 1e-30f;
  scale->scale = size < kNothing ? 0.0f : size / kMostByteFixed;
  const __m512 by = _mm512_set1_ps(size < kNothing ? 0.0f : kMostByteFixed / size);
  const __m512i limit = _mm512_set1_epi32(kMostByteFixed);
  __m512i high_sum = _mm512_setzero_si512(), low_sum = _mm512_setzero_si512();
  const int64_t end = (k + kByteTileK - 1) / kByteTileK * kByteTileK;
  for (int64_t i = 0; i < end; i += 16) {
    __m512i fixed = _mm512_cvtps_epi32(_mm512_mul_ps(load(i), by));
    fixed = _mm512_max_epi32(_mm512_min_epi32(fixed, limit),
                             _mm512_sub_epi32(_mm512_setzero_si512(), limit));
    const __m512i h =
        _mm512_srai_epi32(_mm512_add_epi32(fixed, _mm512_set1_epi32(kByteDigit / 2)), 8);
    const __m512i l = _mm512_sub_epi32(fixed, _mm512_slli_epi32(h, 8));
    high_sum = _mm512_add_epi32(high_sum, h);
    low_sum = _mm512_add_epi32(low_sum, l);
    const int64_t at = i / kByteTileK * (kTileRows * kByteTileK) + i % kByteTileK;
    _mm_storeu_si128(reinterpret_cast<__m128i*>(high + at), _mm512_cvtepi32_epi8(h));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(low + at), _mm512_cvtepi32_epi8(l));
  }
  scale->high_zero = -128 * _mm512_reduce_add_epi32(high_sum);
  scale->low_zero = -128 * _mm512_reduce_add_epi32(low_sum);
}

// One product, two panels by 16 rows at a time.
template <class Tiles>
class ByteTileProduct {
 public:
  ByteTileProduct(const BytePanels& w, const ByteRows& x, const TileRange& range)
      : w_(w), x_(x), range_(range) {}

  void Run() {
    AmxTileConfig config;
    for (int i = 0; i < 8; ++i) {
      config.rows[i] = kTileRows;
      config.row_bytes[i] = kByteTileK;
    }
    Tiles::Configure(config);
    int64_t tile = range_.tile_begin;
    for (; tile + 2 <= range_.tile_end; tile += 2) MultiplyPanels<2>(tile);
    if (tile < range_.tile_end) MultiplyPanels<1>(tile);
    Tiles::Release();
  }

 private:
  static constexpr int64_t kTileBytes = kTileRows * kByteTileK;
  static constexpr int64_t kLineBytes = 64;

  template <int kPanels>
  void MultiplyPanels(int64_t tile) {
    const int64_t groups = (range_.row_end - range_.row_begin + kTileRows - 1) / kTileRows;
    // What comes next of the weights, a part with each group's step.
    const int64_t lines = (kPanels * kTileRows + groups - 1) / groups;
    const uint8_t* ahead = w_.data + (tile + kPanels) * w_.steps * kTileBytes;
    for (int64_t row = range_.row_begin; row < range_.row_end; row += kTileRows) {
      Sum<kPanels>(tile, row, lines, ahead);
      ahead += w_.steps * lines * kLineBytes;
      Scale<kPanels>(tile, row);
    }
  }

  // Tiles 0 and 1 are the sums of the high digits with both panels, 2 and 3 of the low ones, 4 and
  // 5 the digits, 6 and 7 the panels.
  template <int kPanels>
  void Sum(int64_t tile, int64_t row, int64_t lines, const uint8_t* ahead) {
    Tiles::template Zero<0>();
    Tiles::template Zero<2>();
    if constexpr (kPanels > 1) {
      Tiles::template Zero<1>();
      Tiles::template Zero<3>();
    }
    const int64_t group = row / kTileRows * w_.steps * kTileBytes;
    for (int64_t step = 0; step < w_.steps; ++step) {
      const int64_t at = step * kTileBytes;
      Tiles::template Load<4>(x_.high + group + at, kByteTileK);
      Tiles::template Load<6>(w_.data + tile * w_.steps * kTileBytes + at, kByteTileK);
      Tiles::template DotI8U8<0, 4, 6>();
      Tiles::template Load<5>(x_.low + group + at, kByteTileK);
      Tiles::template DotI8U8<2, 5, 6>();
      if constexpr (kPanels > 1) {
        Tiles::template Load<7>(w_.data + (tile + 1) * w_.steps * kTileBytes + at, kByteTileK);
        Tiles::template DotI8U8<1, 4, 7>();
        Tiles::template DotI8U8<3, 5, 7>();
      }
      for (int64_t line = 0; line < lines; ++line, ahead += kLineBytes) {
        _mm_prefetch(reinterpret_cast<const char*>(ahead), _MM_HINT_T1);
      }
    }
    Tiles::template Store<0>(sums_[0][0], kLineBytes);
    Tiles::template Store<2>(sums_[1][0], kLineBytes);
    if constexpr (kPanels > 1) {
      Tiles::template Store<1>(sums_[0][1], kLineBytes);
      Tiles::template Store<3>(sums_[1][1], kLineBytes);
    }
  }

  template <int kPanels>
  void Scale(int64_t tile, int64_t row) {
    const int64_t rows = range_.row_end - row < kTileRows ? range_.row_end - row : kTileRows;
    for (int panel = 0; panel < kPanels; ++panel) {
      const int64_t column = (tile + panel) * kTileRows;
      const int64_t columns = range_.n - column;
      const __mmask16 lanes =
          columns >= kTileRows ? __mmask16{0xffff} : static_cast<__mmask16>((1 << columns) - 1);
      const __m512 scales = _mm512_loadu_ps(w_.scales + column);
      for (int64_t r = 0; r < rows; ++r) {
        const ByteRowScale& of_row = x_.scales[row + r];
        const __m512i high = _mm512_add_epi32(_mm512_load_si512(sums_[0][panel][r]),
                                              _mm512_set1_epi32(of_row.high_zero));
        const __m512i low = _mm512_add_epi32(_mm512_load_si512(sums_[1][panel][r]),
                                             _mm512_set1_epi32(of_row.low_zero));
        const __m512 sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(high), _mm512_set1_ps(kByteDigit),
                                           _mm512_cvtepi32_ps(low));
        _mm512_mask_storeu_ps(
            range_.out + (row + r) * range_.out_stride + column, lanes,
            _mm512_mul_ps(_mm512_mul_ps(sum, scales), _mm512_set1_ps(of_row.scale)));
      }
    }
  }

  const BytePanels& w_;
  const ByteRows& x_;
  const TileRange& range_;
  alignas(64) int32_t sums_[2][2][kTileRows][kTileRows];  // [digit][panel][row][column]
};

template <class Tiles>
void MultiplyByteTiles(const BytePanels& w, const ByteRows& x, const TileRange& range) {
  ByteTileProduct<Tiles>(w, x, range).Run();
}

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_TILE_BYTES_INL_H_
