// Products of few rows, straight from the packed weight.
// For inclusion by the files of single instruction-set levels only: see quantized_kernels_inl.h,
// which says what V is and why.

#ifndef REFRAIN_KERNELS_CPU_QUANTIZED_DIRECT_INL_H_
#define REFRAIN_KERNELS_CPU_QUANTIZED_DIRECT_INL_H_

#include <cstdint>

#include "kernels/cpu/quantized_kernels.h"
#include "kernels/cpu/quantized_operands_inl.h"

namespace refrain::kernels::cpu {

// How far ahead of its use a line of weights is asked for, of the second-level cache (for the first
// one few misses can be under way). The hardware's own prefetcher stops at 4 KiB borders.
inline constexpr int kPrefetchBytes = 4096;

// Few rows: every byte of the weight is read once, unpacked in registers and used for all rows.
template <class V, class T, int kRows>
void MultiplyDirect(const QuantizedPanels& w, const FixedRows& x, const ProductRange& range,
                    int64_t row_begin) {
  constexpr int kParts = kTile / V::kLanes;
  for (int64_t tile = range.tile_begin; tile < range.tile_end; ++tile) {
    const uint8_t* scales = w.data + tile * w.tile_bytes;
    const uint8_t* quants = scales + w.scale_bytes;
    const int columns = ColumnsIn<V, 1>(w.n, tile);
    float* out[kRows];
    for (int r = 0; r < kRows; ++r) out[r] = OutRow<V>(range, row_begin + r) + tile * kTile;
    for (int part = 0; part < kParts; ++part) {
      const int lanes = columns - part * V::kLanes;
      typename V::F total[kRows];
      for (int r = 0; r < kRows; ++r) {
        total[r] = range.accumulate ? V::LoadN(out[r] + part * V::kLanes, lanes) : V::SetF(0.0f);
      }
      for (int64_t block = 0; block < w.blocks; ++block) {
        const uint8_t* q = quants + block * T::kQuantBytes + part * V::kLanes * 4;
        if (part == 0) {
          for (int line = 0; line < T::kQuantBytes; line += 64) {
            V::Prefetch(q + kPrefetchBytes + line);
          }
        }
        typename V::I operands[kOperands * T::kVectorsPerOperand];
        UnpackOperands<V, T>(q, operands);
        const BlockScales<V> s = LoadScales<V, T>(scales, block, part);
        for (int r = 0; r < kRows; ++r) {
          total[r] = MultiplyBlock<V, T>(operands, s, At<V, T>(x, row_begin + r, block), total[r]);
        }
      }
      for (int r = 0; r < kRows; ++r) {
        V::StoreN(out[r] + part * V::kLanes, total[r], lanes);
      }
    }
  }
}

// Calls MultiplyDirect for all of 1 to kRows rows; does nothing for none.
template <class V, class T, int kRows>
void MultiplyDirectRows(int rows, const QuantizedPanels& w, const FixedRows& x,
                        const ProductRange& range) {
  if (rows == kRows) return MultiplyDirect<V, T, kRows>(w, x, range, range.row_begin);
  if constexpr (kRows > 1) MultiplyDirectRows<V, T, kRows - 1>(rows, w, x, range);
}

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_QUANTIZED_DIRECT_INL_H_
