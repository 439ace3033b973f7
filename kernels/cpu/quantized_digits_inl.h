// What a product is made for (Format), and dot products of operands with digits of activations.
// For inclusion by the files of single instruction-set levels only: see quantized_kernels_inl.h,
// which says what V is and why.

#ifndef REFRAIN_KERNELS_CPU_QUANTIZED_DIGITS_INL_H_
#define REFRAIN_KERNELS_CPU_QUANTIZED_DIGITS_INL_H_

#include <cstdint>

#include "kernels/cpu/quantized_kernels.h"

namespace refrain::kernels::cpu {

inline constexpr int kTile = 16;
inline constexpr int kOperands = 8;  // per block: 32 k, 4 per operand

template <int kBitsValue, ScaleKind kKindValue, int kDigitsValue>
struct Format {
  static constexpr int kBits = kBitsValue;
  static constexpr ScaleKind kKind = kKindValue;
  static constexpr int kDigits = kDigitsValue;  // of the activations it is multiplied with
  static constexpr bool kHasMin = kKind == ScaleKind::kScaleMin || kKind == ScaleKind::kSuperMin;
  static constexpr bool kHalves = kKind == ScaleKind::kSuperScale;  // a scale per 16
  static constexpr int kSums = kHalves ? 2 : 1;                     // integer sums per block
  static constexpr int kQuantBytes = QuantBytesPerBlock(kBits);
  static constexpr bool kWords = false;
  static constexpr int kVectorsPerOperand = 1;  // as it is unpacked
};

// The same beside activations in words (FixedRows::words): an operand is two vectors of 16-bit
// quants then, of k = 4 j and 4 j + 2 and of the others.
template <class T>
struct InWords : T {
  static_assert(T::kDigits == 2);
  static constexpr bool kWords = true;
  static constexpr int kVectorsPerOperand = 2;
};

// From how many rows on words are multiplied where they are there; 0: never. Where there are no dot
// products of bytes, two digits take more instructions the fewer products add up within 16 bits: 10
// for 32 products of 8 bits, where words take 4 with any number of bits; but a weight's quants must
// be widened for words, which rows share. Measured: docs/results/words.md.
template <class V>
constexpr int LeastRowsOfWords(int bits) {
  if (V::kShifted) return 0;
  if (bits == 8) return 1;
  if (bits == 6) return 3;
  if (bits == 5) return 12;
  return V::kLanes == 8 ? 16 : 0;
}

// Operands in a row whose products add up within 16 bits where V is not kShifted: 4 digits meet an
// operand's lane of 32 bits, 2 of them a sum of 16.
constexpr int OperandsPerSum16(int bits) {
  const int largest_quant = bits == 8 ? 128 : (1 << bits) - 1;
  int operands = kOperands;
  while (operands * 2 * largest_quant * kMaxOneDigit > 32767) operands /= 2;
  return operands;
}
static_assert(OperandsPerSum16(4) == 8 && OperandsPerSum16(5) == 4 && OperandsPerSum16(6) == 2 &&
              OperandsPerSum16(8) == 1);

// sum + the dot products of operands [kBegin, kEnd) with a block's digits of one kind.
template <class V, class T, int kBegin, int kEnd>
inline typename V::I DotOneDigit(typename V::I sum, const typename V::I w[kOperands],
                                 const int8_t* digits) {
  if constexpr (V::kShifted) {
#pragma GCC unroll 8
    for (int j = kBegin; j < kEnd; j += 2) {
      sum = V::DotPair(sum, w[j], w[j + 1], V::Broadcast32(digits + 4 * j),
                       V::Broadcast32(digits + 4 * j + 4));
    }
  } else {
    constexpr int kGroup = OperandsPerSum16(T::kBits);
    static_assert((kEnd - kBegin) % kGroup == 0);
#pragma GCC unroll 8
    for (int group = kBegin; group < kEnd; group += kGroup) {
      typename V::I words =
          V::template Products16<T::kBits>(w[group], V::Broadcast32(digits + 4 * group));
#pragma GCC unroll 8
      for (int j = group + 1; j < group + kGroup; ++j) {
        words =
            V::Add16(words, V::template Products16<T::kBits>(w[j], V::Broadcast32(digits + 4 * j)));
      }
      sum = V::AddPairs(sum, words);
    }
  }
  return sum;
}

// Vector j of each tile's operands, for kVectors vectors.
template <class V, class T, int kVectors>
[[gnu::always_inline]] inline void LoadOperand(const uint8_t* operands, int j,
                                               typename V::I (&w)[kVectors]) {
  constexpr int kParts = kTile / V::kLanes;
  constexpr int kTileBytes = kOperands * T::kVectorsPerOperand * 64;
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    w[v] = V::Load(operands + v / kParts * kTileBytes + v % kParts * V::kLanes * 4 + j * 64);
  }
}

// sum += the dot products of operands [kBegin, kEnd) with a block's words of kRows rows.
template <class V, class T, int kVectors, int kRows, int kBegin, int kEnd>
[[gnu::always_inline]] inline void DotWords(const uint8_t* operands,
                                            const int16_t* const (&words)[kRows],
                                            typename V::I sum[kRows][kVectors]) {
#pragma GCC unroll 16
  for (int j = 2 * kBegin; j < 2 * kEnd; ++j) {
    typename V::I w[kVectors];
    LoadOperand<V, T>(operands, j, w);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const typename V::I a = V::Broadcast32(words[r] + 2 * j);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[r][v] = V::AddWords(sum[r][v], w[v], a);
    }
  }
}

template <class V>
constexpr bool WithFewRegisters() {
  if constexpr (V::kShifted) return V::kFewRegisters;
  return false;
}

// sum += the dot products of operands [kBegin, kEnd) with a block's digits of kRows rows. Inlined
// wherever it is called, so that sums and totals stay in registers.
template <class V, class T, int kVectors, int kRows, int kBegin, int kEnd>
[[gnu::always_inline]] inline void DotDigit(const uint8_t* operands,
                                            const int8_t* const (&digits)[kRows],
                                            typename V::I sum[kRows][kVectors]) {
  if constexpr (WithFewRegisters<V>()) {
#pragma GCC unroll 8
    for (int j = kBegin; j < kEnd; ++j) {
      typename V::I w[kVectors];
      LoadOperand<V, T>(operands, j, w);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const typename V::I a = V::Broadcast32(digits[r] + 4 * j);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) sum[r][v] = V::Dot(sum[r][v], w[v], a);
      }
    }
  } else if constexpr (V::kShifted) {
#pragma GCC unroll 8
    for (int j = kBegin; j < kEnd; j += 2) {
      typename V::I w0[kVectors], w1[kVectors];
      LoadOperand<V, T>(operands, j, w0);
      LoadOperand<V, T>(operands, j + 1, w1);
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
        LoadOperand<V, T>(operands, j, w);
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

#endif  // REFRAIN_KERNELS_CPU_QUANTIZED_DIGITS_INL_H_
