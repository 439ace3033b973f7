// Quantised weights unpacked to tiles of bf16, and multiplied: for inclusion by the files of single
// instruction-set levels only. V as quantized_kernels_inl.h says, of 16 lanes and kShifted; Round is
// the instruction of bf16_instructions.h; Tiles as amx_tiles.h says.

#ifndef REFRAIN_KERNELS_CPU_TILE_WEIGHTS_INL_H_
#define REFRAIN_KERNELS_CPU_TILE_WEIGHTS_INL_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/quantized_operands_inl.h"
#include "kernels/cpu/tile_product_inl.h"
#include "kernels/cpu/tile_rows_inl.h"

namespace refrain::kernels::cpu {

// Of k, unpacked at a time: 32 KiB for two panels, which stay in a first-level cache of 48 KiB
// while all rows pass by.
inline constexpr int kStretchSteps = 18;

namespace {  // not templates: each level's own

// Rounded words of two vectors, [16] and [16], as [16][2].
inline __m512i Interleave(__m512i words) {
  alignas(64) static constexpr uint16_t kOrder[32] = {
      0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return _mm512_permutexvar_epi16(_mm512_load_si512(kOrder), words);
}

}  // namespace

// a and b as one row of a right operand: high, and what is left if kExact.
template <class Bf16, bool kExact>
inline void StorePair(__m512 a, __m512 b, uint16_t* high, uint16_t* low) {
  const __m512i words = Bf16::Round(a, b);
  _mm512_store_si512(high, Interleave(words));
  if constexpr (kExact) {
    const __m512i rest =
        Bf16::Round(_mm512_sub_ps(a, WidenLower(words)), _mm512_sub_ps(b, WidenUpper(words)));
    _mm512_store_si512(low, Interleave(rest));
  }
}

// Element i of each lane of operand j of a block: d * q + m.
template <int i>
inline __m512 ElementOf(__m512i operand, __m512 scale, __m512 offset) {
  if constexpr (i > 0) operand = _mm512_srli_epi32(operand, 8 * i);
  if constexpr (i < 3) operand = _mm512_and_si512(operand, _mm512_set1_epi32(0xff));
  return _mm512_fmadd_ps(_mm512_cvtepi32_ps(operand), scale, offset);
}

// Block `block` of a tile as a right operand of one step.
template <class V, class Bf16, class T, bool kExact>
inline void UnpackTile(const uint8_t* scales, const uint8_t* quants, int64_t block, uint16_t* high,
                       uint16_t* low) {
  __m512i operands[kOperands];
  UnpackBlock<V, T>(quants, operands);
  const BlockScales<V> s = LoadScales<V, T>(scales, block, 0);
#pragma GCC unroll 8
  for (int j = 0; j < kOperands; ++j) {
    const __m512 scale = s.scale[T::kHalves ? j / 4 : 0];
    __m512 offset;
    if constexpr (T::kHasMin) {
      offset = s.min;
    } else {
      offset = _mm512_mul_ps(scale, _mm512_set1_ps(-128.0f));
    }
    const int64_t at = int64_t{j} * 2 * kTileRows * 2;
    StorePair<Bf16, kExact>(ElementOf<0>(operands[j], scale, offset),
                            ElementOf<1>(operands[j], scale, offset), high + at, low + at);
    StorePair<Bf16, kExact>(ElementOf<2>(operands[j], scale, offset),
                            ElementOf<3>(operands[j], scale, offset), high + at + 2 * kTileRows,
                            low + at + 2 * kTileRows);
  }
}

template <class V, class Bf16, class Tiles, class T>
class QuantizedTileProduct {
 public:
  QuantizedTileProduct(const QuantizedPanels& w, const TileRows& x, const TileRange& range)
      : w_(w), x_(x), range_(range) {
    static_assert(V::kLanes == kTileRows && V::kShifted);
    for (int64_t group = range.row_begin / kTileRows; group * kTileRows < range.row_end; ++group) {
      exact_ |= x.exact != nullptr && x.exact[group] != 0;
    }
  }

  void Run() {
    ConfigureWholeTiles<Tiles>();
    for (int64_t tile = range_.tile_begin; tile < range_.tile_end; tile += 2) {
      if (range_.tile_end - tile >= 2) {
        Multiply<2>(tile);
      } else {
        Multiply<1>(tile);
      }
    }
    // Left in use, the tiles would be saved at every context switch.
    Tiles::Release();
  }

 private:
  template <int kPanels>
  void Multiply(int64_t tile) {
    const TileRange range = TilesOf(range_, tile, kPanels);
    const int64_t stretches = (w_.blocks + kStretchSteps - 1) / kStretchSteps;
    for (int64_t stretch = 0; stretch < stretches; ++stretch) {
      const int64_t step = stretch * w_.blocks / stretches;
      const int64_t steps = (stretch + 1) * w_.blocks / stretches - step;
      for (int panel = 0; panel < kPanels; ++panel) {
        exact_ ? Unpack<true>(tile + panel, panel, step, steps)
               : Unpack<false>(tile + panel, panel, step, steps);
      }
      const TilePanels panels = {high_[0], exact_ ? low_[0] : nullptr,
                                 kStretchSteps * kTileElements};
      PanelProduct<Tiles>(x_, range, panels, step, steps, range.accumulate || stretch > 0)
          .template Run<kPanels>();
    }
  }

  template <bool kExact>
  void Unpack(int64_t tile, int panel, int64_t step, int64_t steps) {
    const uint8_t* const scales = w_.data + tile * w_.tile_bytes;
    const uint8_t* const quants = scales + w_.scale_bytes + step * T::kQuantBytes;
    for (int64_t i = 0; i < steps; ++i) {
      UnpackTile<V, Bf16, T, kExact>(scales, quants + i * T::kQuantBytes, step + i,
                                     high_[panel] + i * kTileElements,
                                     low_[panel] + i * kTileElements);
    }
  }

  const QuantizedPanels& w_;
  const TileRows& x_;
  const TileRange& range_;
  bool exact_ = false;
  alignas(64) uint16_t high_[2][kStretchSteps * kTileElements];
  alignas(64) uint16_t low_[2][kStretchSteps * kTileElements];
};

template <class V, class Bf16, class Tiles, class T>
void MultiplyQuantizedTiles(const QuantizedPanels& w, const TileRows& x, const TileRange& range) {
  QuantizedTileProduct<V, Bf16, Tiles, T>(w, x, range).Run();
}

template <class V, class Bf16, class Tiles>
constexpr TileKernels TileKernelsFor() {
  return {
      PackTileRow<Bf16>,
      MultiplyDenseByTiles<Tiles>,
      MultiplyQuantizedTiles<V, Bf16, Tiles, Format<8, ScaleKind::kScale, 1>>,
      MultiplyQuantizedTiles<V, Bf16, Tiles, Format<4, ScaleKind::kScale, 1>>,
      MultiplyQuantizedTiles<V, Bf16, Tiles, Format<4, ScaleKind::kScaleMin, 1>>,
      MultiplyQuantizedTiles<V, Bf16, Tiles, Format<5, ScaleKind::kScale, 1>>,
      MultiplyQuantizedTiles<V, Bf16, Tiles, Format<5, ScaleKind::kScaleMin, 1>>,
      MultiplyQuantizedTiles<V, Bf16, Tiles, Format<4, ScaleKind::kSuperMin, 1>>,
      MultiplyQuantizedTiles<V, Bf16, Tiles, Format<5, ScaleKind::kSuperMin, 1>>,
      MultiplyQuantizedTiles<V, Bf16, Tiles, Format<6, ScaleKind::kSuperScale, 1>>,
  };
}

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_TILE_WEIGHTS_INL_H_
