// Blocks of a quantised weight unpacked to operands and float scales in memory, for many rows.
// For inclusion by the files of single instruction-set levels only: see quantized_kernels_inl.h,
// which says what V is and why.

#ifndef REFRAIN_KERNELS_CPU_QUANTIZED_UNPACKED_INL_H_
#define REFRAIN_KERNELS_CPU_QUANTIZED_UNPACKED_INL_H_

#include <cstdint>

#include "kernels/cpu/quantized_kernels.h"
#include "kernels/cpu/quantized_operands_inl.h"

namespace refrain::kernels::cpu {

// Most blocks along k that are unpacked at a time where there are more rows: 23 KiB for two tiles,
// which stay in a first-level cache of 32 KiB while all rows pass by. A k of 576 is one stretch.
inline constexpr int kUnpackBlocks = 18;

// The same of T: words of two tiles are twice as much.
template <class T, int kTiles>
inline constexpr int kStretchBlocks = T::kWords&& kTiles > 1 ? kUnpackBlocks / 2 : kUnpackBlocks;

// Up to kStretchBlocks blocks of kTiles tiles as operands and float scales.
template <class V, class T, int kTiles>
struct Unpacked {
  static constexpr int kBlocks = kStretchBlocks<T, kTiles>;
  static constexpr int kVectors = kOperands * T::kVectorsPerOperand;
  alignas(64) uint8_t operands[kBlocks][kTiles][kVectors][64];
  alignas(64) float scales[kBlocks][kTiles][T::kSums][kTile];
  alignas(64) float mins[kBlocks][kTiles][T::kHasMin ? kTile : 1];
};

template <class V, class T, int kTiles>
inline void Unpack(const QuantizedPanels& w, int64_t tile_begin, int64_t block_begin, int blocks,
                   Unpacked<V, T, kTiles>& to) {
  constexpr int kParts = kTile / V::kLanes;
  for (int t = 0; t < kTiles; ++t) {
    const uint8_t* scales = w.data + (tile_begin + t) * w.tile_bytes;
    const uint8_t* quants = scales + w.scale_bytes + block_begin * T::kQuantBytes;
    for (int b = 0; b < blocks; ++b) {
      for (int part = 0; part < kParts; ++part) {
        typename V::I operands[Unpacked<V, T, kTiles>::kVectors];
        UnpackOperands<V, T>(quants + b * T::kQuantBytes + part * V::kLanes * 4, operands);
        for (int j = 0; j < Unpacked<V, T, kTiles>::kVectors; ++j) {
          V::Store(&to.operands[b][t][j][part * V::kLanes * 4], operands[j]);
        }
        const BlockScales<V> s = LoadScales<V, T>(scales, block_begin + b, part);
        V::StoreF(&to.scales[b][t][0][part * V::kLanes], s.scale[0]);
        if constexpr (T::kHalves) V::StoreF(&to.scales[b][t][1][part * V::kLanes], s.scale[1]);
        if constexpr (T::kHasMin) V::StoreF(&to.mins[b][t][part * V::kLanes], s.min);
      }
    }
  }
}

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_QUANTIZED_UNPACKED_INL_H_
