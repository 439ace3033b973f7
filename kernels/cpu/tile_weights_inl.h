// Quantised weights unpacked to tiles of bf16, and multiplied: for inclusion by the files of single
// instruction-set levels only. V as quantized_kernels_inl.h says, of 16 lanes and kShifted; Tiles
// as amx_tiles.h says.

#ifndef REFRAIN_KERNELS_CPU_TILE_WEIGHTS_INL_H_
#define REFRAIN_KERNELS_CPU_TILE_WEIGHTS_INL_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/quantized_operands_inl.h"
#include "kernels/cpu/quantized_weights_ahead_inl.h"
#include "kernels/cpu/tile_product_inl.h"
#include "kernels/cpu/tile_rows_inl.h"

namespace refrain::kernels::cpu {

// Of k, unpacked at a time: 32 KiB for two panels, which stay in a first-level cache of 48 KiB
// while all rows pass by.
inline constexpr int kStretchSteps = 18;

namespace {  // not over types of the level: each level's own

constexpr int kAndOr = 0xea;  // of _mm512_ternarylogic_epi32: (a & b) | c

// Halves up: two thirds of the time of vcvtne2ps2bf16 and a shuffle. The upper halves of the
// results are bf16.
inline __m512i HalfUp(__m512 x) {
  return _mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000));
}

inline __m512 UpperHalf(__m512i x) {
  return _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32(static_cast<int>(0xffff0000))));
}

// NaN without the lower bits with which HalfUp would make a number of it.
inline __m512 QuietNaN(__m512 x) {
  return _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q),
                            _mm512_set1_ps(__builtin_nanf("")));
}

// The upper halves of a and b as [16][2].
inline __m512i PairsOf(__m512i a, __m512i b) {
  return _mm512_ternarylogic_epi32(b, _mm512_set1_epi32(static_cast<int>(0xffff0000)),
                                   _mm512_srli_epi32(a, 16), kAndOr);
}

// a and b as one row of a right operand: high, and what is left if kExact.
template <bool kExact>
inline void StorePair(__m512 a, __m512 b, uint16_t* high, uint16_t* low) {
  const __m512i x = HalfUp(a), y = HalfUp(b);
  _mm512_store_si512(high, PairsOf(x, y));
  if constexpr (kExact) {
    _mm512_store_si512(low, PairsOf(HalfUp(_mm512_sub_ps(a, UpperHalf(x))),
                                    HalfUp(_mm512_sub_ps(b, UpperHalf(y)))));
  }
}

// Byte i of each lane of an operand, q, as d * q + m: q becomes the mantissa's upper bits of a
// float from 1 to 2, 1 + q / 256. `scale` is 256 d, `offset` m - 256 d.
template <int i>
inline __m512 ElementOf(__m512i operand, __m512 scale, __m512 offset) {
  constexpr int kUp = 15 - 8 * i;
  if constexpr (kUp > 0) {
    operand = _mm512_slli_epi32(operand, kUp);
  } else {
    operand = _mm512_srli_epi32(operand, -kUp);
  }
  operand = _mm512_ternarylogic_epi32(operand, _mm512_set1_epi32(0xff << 15),
                                      _mm512_set1_epi32(0x3f800000), kAndOr);
  return _mm512_fmadd_ps(_mm512_castsi512_ps(operand), scale, offset);
}

}  // namespace

// Block `block` of a tile as a right operand of one step.
template <class V, class T, bool kExact>
inline void UnpackTile(const uint8_t* scales, const uint8_t* quants, int64_t block, uint16_t* high,
                       uint16_t* low) {
  __m512i operands[kOperands];
  UnpackBlock<V, T>(quants, operands);
  const BlockScales<V> s = LoadScales<V, T>(scales, block, 0);
  __m512 scales_of[T::kSums], offsets[T::kSums];
  for (int sum = 0; sum < T::kSums; ++sum) {
    const __m512 scale = _mm512_mul_ps(s.scale[sum], _mm512_set1_ps(256.0f));
    // The zero point of types without a minimum is 128.
    const __m512 offset =
        T::kHasMin ? _mm512_sub_ps(s.min, scale) : _mm512_mul_ps(scale, _mm512_set1_ps(-1.5f));
    scales_of[sum] = QuietNaN(scale);
    offsets[sum] = QuietNaN(offset);
  }
#pragma GCC unroll 8
  for (int j = 0; j < kOperands; ++j) {
    const __m512 scale = scales_of[T::kHalves ? j / 4 : 0];
    const __m512 offset = offsets[T::kHalves ? j / 4 : 0];
    const int64_t at = int64_t{j} * 2 * kTileRows * 2;
    StorePair<kExact>(ElementOf<0>(operands[j], scale, offset),
                      ElementOf<1>(operands[j], scale, offset), high + at, low + at);
    StorePair<kExact>(ElementOf<2>(operands[j], scale, offset),
                      ElementOf<3>(operands[j], scale, offset), high + at + 2 * kTileRows,
                      low + at + 2 * kTileRows);
  }
}

template <class V, class Tiles, class T>
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
  // Steps of k that are unpacked before they are multiplied: what was just stored is not there for
  // a tile to load. A ring of twice as many is enough where no other rows want them.
  static constexpr int64_t kLead = 2;
  static constexpr int64_t kRing = 2 * kLead;

  // Unpacks steps [step, step + steps) of `panels` tiles from `tile` on into tiles i % `ring` of
  // the panels, kLead of them before it is called.
  struct Unpacking {
    QuantizedTileProduct& product;
    int64_t tile;
    int panels;
    int64_t step, steps, ring;

    Unpacking(QuantizedTileProduct& p, int64_t first_tile, int num_panels, int64_t first_step,
              int64_t num_steps, int64_t ring_steps)
        : product(p),
          tile(first_tile),
          panels(num_panels),
          step(first_step),
          steps(num_steps),
          ring(ring_steps) {
      for (int64_t i = 0; i < kLead; ++i) Unpack(i);
    }

    int64_t operator()(int64_t i) const {
      Unpack(i + kLead);
      return i % ring * kTileElements;
    }

    void Unpack(int64_t i) const {
      if (i >= steps) return;
      for (int panel = 0; panel < panels; ++panel) {
        product.exact_ ? product.Unpack<true>(tile + panel, panel, step + i, i % ring)
                       : product.Unpack<false>(tile + panel, panel, step + i, i % ring);
      }
    }
  };

  template <int kPanels>
  void Multiply(int64_t tile) {
    const TileRange range = TilesOf(range_, tile, kPanels);
    const bool one_block = PanelProduct<Tiles>::BlocksOf(range) == 1 && SameTerms(range);
    // The sums of a single block stay in tiles over all of k.
    const int64_t stretches = one_block ? 1 : (w_.blocks + kStretchSteps - 1) / kStretchSteps;
    for (int64_t stretch = 0; stretch < stretches; ++stretch) {
      const int64_t step = stretch * w_.blocks / stretches;
      const int64_t steps = (stretch + 1) * w_.blocks / stretches - step;
      const TilePanels panels = {high_[0], exact_ ? low_[0] : nullptr,
                                 kStretchSteps * kTileElements};
      // The next stretch, of the same tiles or of those behind, which the next job has most often.
      const bool last = stretch + 1 == stretches;
      const int64_t next = last ? 0 : (stretch + 1) * w_.blocks / stretches;
      const int64_t next_end = last ? w_.blocks / stretches : (stretch + 2) * w_.blocks / stretches;
      const int64_t next_tile = last ? tile + kPanels : tile;
      const Unpacking unpacking(*this, tile, kPanels, step, steps,
                                one_block ? kRing : kStretchSteps);
      PanelProduct<Tiles> product(x_, range, panels, step, steps, range.accumulate || stretch > 0);
      if ((next_tile + kPanels) * kTileRows > w_.n) {
        product.template Run<kPanels>(NothingAhead(), unpacking);
      } else {
        const StretchAhead<T, kPanels> ahead(w_, next_tile, next, next_end - next,
                                             PanelProduct<Tiles>::BlocksOf(range),
                                             static_cast<int>(steps));
        product.template Run<kPanels>(ahead, unpacking);
      }
    }
  }

  // Whether one block has all rows of a range of no more than 32.
  bool SameTerms(const TileRange& range) const {
    const int64_t group = range.row_begin / kTileRows;
    return x_.exact == nullptr || range.row_end <= (group + 1) * kTileRows ||
           x_.exact[group] == x_.exact[group + 1];
  }

  template <bool kExact>
  void Unpack(int64_t tile, int panel, int64_t step, int64_t to) {
    const uint8_t* const scales = w_.data + tile * w_.tile_bytes;
    UnpackTile<V, T, kExact>(scales, scales + w_.scale_bytes + step * T::kQuantBytes, step,
                             high_[panel] + to * kTileElements, low_[panel] + to * kTileElements);
  }

  const QuantizedPanels& w_;
  const TileRows& x_;
  const TileRange& range_;
  bool exact_ = false;
  alignas(64) uint16_t high_[2][kStretchSteps * kTileElements];
  alignas(64) uint16_t low_[2][kStretchSteps * kTileElements];
};

template <class V, class Tiles, class T>
void MultiplyQuantizedTiles(const QuantizedPanels& w, const TileRows& x, const TileRange& range) {
  QuantizedTileProduct<V, Tiles, T>(w, x, range).Run();
}

template <class V, class Bf16, class Tiles>
constexpr TileKernels TileKernelsFor() {
  return {
      PackTileRow<Bf16>,
      MultiplyDenseByTiles<Tiles>,
      MultiplyQuantizedTiles<V, Tiles, Format<8, ScaleKind::kScale, 1>>,
      MultiplyQuantizedTiles<V, Tiles, Format<4, ScaleKind::kScale, 1>>,
      MultiplyQuantizedTiles<V, Tiles, Format<4, ScaleKind::kScaleMin, 1>>,
      MultiplyQuantizedTiles<V, Tiles, Format<5, ScaleKind::kScale, 1>>,
      MultiplyQuantizedTiles<V, Tiles, Format<5, ScaleKind::kScaleMin, 1>>,
      MultiplyQuantizedTiles<V, Tiles, Format<4, ScaleKind::kSuperMin, 1>>,
      MultiplyQuantizedTiles<V, Tiles, Format<5, ScaleKind::kSuperMin, 1>>,
      MultiplyQuantizedTiles<V, Tiles, Format<6, ScaleKind::kSuperScale, 1>>,
  };
}

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_TILE_WEIGHTS_INL_H_
