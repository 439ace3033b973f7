// Products of few rows, straight from the packed weight.
// For inclusion by the files of single instruction-set levels only: see quantized_kernels_inl.h,
// which says what V is and why.

#ifndef REFRAIN_KERNELS_CPU_QUANTIZED_DIRECT_INL_H_
#define REFRAIN_KERNELS_CPU_QUANTIZED_DIRECT_INL_H_

#include <cstdint>

#include "kernels/cpu/quantized_kernels.h"
#include "kernels/cpu/quantized_operands_inl.h"

namespace refrain::kernels::cpu {

// How far ahead of its use a line of weights is asked for. The hardware's own prefetcher stops at
// 4 KiB borders.
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
        typename V::I operands[kOperands];
        UnpackBlock<V, T>(q, operands);
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

// Operand j of kVectors vectors.
template <class V, int kVectors>
[[gnu::always_inline]] inline void LoadOperand(const uint8_t* operands, int j,
                                               typename V::I (&w)[kVectors]) {
  constexpr int kParts = kTile / V::kLanes;
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    w[v] = V::Load(operands + v / kParts * kOperands * 64 + v % kParts * V::kLanes * 4 + j * 64);
  }
}

// sum += the dot products of operands [kBegin, kEnd) with a block's digits of kRows rows. Inlined
// wherever it is called, so that sums and totals stay in registers.
template <class V, class T, int kVectors, int kRows, int kBegin, int kEnd>
[[gnu::always_inline]] inline void DotDigit(const uint8_t* operands,
                                            const int8_t* const (&digits)[kRows],
                                            typename V::I sum[kRows][kVectors]) {
  if constexpr (V::kShifted) {
#pragma GCC unroll 8
    for (int j = kBegin; j < kEnd; j += 2) {
      typename V::I w0[kVectors], w1[kVectors];
      LoadOperand<V>(operands, j, w0);
      LoadOperand<V>(operands, j + 1, w1);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const typename V::I a0 = V::Broadcast32(digits[r] + 4 * j);
        const typename V::I a1 = V::Broadcast32(digits[r] + 4 * j + 4);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          sum[r][v] = V::DotPair(sum[r][v], w0[v], w1[v], a0, a1);
        }
      }
    }
  } else {
    constexpr int kGroup = OperandsPerSum16(T::kBits);
    static_assert((kEnd - kBegin) % kGroup == 0);
#pragma GCC unroll 8
    for (int group = kBegin; group < kEnd; group += kGroup) {
      typename V::I words[kRows][kVectors];
#pragma GCC unroll 8
      for (int j = group; j < group + kGroup; ++j) {
        typename V::I w[kVectors];
        LoadOperand<V>(operands, j, w);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          const typename V::I a = V::Broadcast32(digits[r] + 4 * j);
#pragma GCC unroll 4
          for (int v = 0; v < kVectors; ++v) {
            const typename V::I products = V::template Products16<T::kBits>(w[v], a);
            words[r][v] = j == group ? products : V::Add16(words[r][v], products);
          }
        }
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) sum[r][v] = V::AddPairs(sum[r][v], words[r][v]);
      }
    }
  }
}

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_QUANTIZED_DIRECT_INL_H_
