// Blocks of a quantised weight as operands of dot products and float scales, in registers, and the
// product of one with one row of activations.
// For inclusion by the files of single instruction-set levels only: see quantized_kernels_inl.h,
// which says what V is and why.

#ifndef REFRAIN_KERNELS_CPU_QUANTIZED_OPERANDS_INL_H_
#define REFRAIN_KERNELS_CPU_QUANTIZED_OPERANDS_INL_H_

#include <cstdint>

#include "kernels/cpu/quantized_digits_inl.h"
#include "kernels/cpu/quantized_kernels.h"

namespace refrain::kernels::cpu {

// Quants as operands: shifted to the top of the byte if their zero point is to be 128.
template <class V, class T>
inline constexpr bool kTopBits = V::kShifted && !T::kHasMin;

// Scales of one block for the lanes of one part.
template <class V>
struct BlockScales {
  typename V::F scale[2];  // [1] where a block has two
  typename V::F min;
};

template <class V, class T>
inline BlockScales<V> LoadScales(const uint8_t* scales, int64_t block, int part) {
  constexpr int kHalfBytes = 2 * V::kLanes;
  BlockScales<V> s;
  if constexpr (T::kKind == ScaleKind::kScale) {
    // The sum is 2^(8 - bits) times too large (see kShifted); exact.
    constexpr float kUnshift = 1.0f / (1 << (8 - T::kBits));
    s.scale[0] = V::LoadF16(scales + block * 32 + part * kHalfBytes);
    if constexpr (T::kBits != 8) s.scale[0] = V::Mul(s.scale[0], V::SetF(kUnshift));
  } else if constexpr (T::kKind == ScaleKind::kScaleMin) {
    const uint8_t* p = scales + block * 64 + part * kHalfBytes;
    s.scale[0] = V::LoadF16(p);
    s.min = V::LoadF16(p + 32);
  } else {
    constexpr int kSuperBytes = ScaleBytesPerSuperBlock(T::kKind);
    const uint8_t* super = scales + block / kBlocksPerSuperBlock * kSuperBytes;
    const typename V::F d = V::LoadF16(super + part * kHalfBytes);
    const int64_t in_super = block % kBlocksPerSuperBlock * 32 + part * V::kLanes;
    if constexpr (T::kKind == ScaleKind::kSuperMin) {
      const uint8_t* p = super + 64 + in_super;
      s.scale[0] = V::Mul(d, V::LoadU8(p));
      s.min = V::Mul(V::LoadF16(super + 32 + part * kHalfBytes), V::LoadU8(p + 16));
    } else {
      const uint8_t* p = super + 32 + in_super;
      const typename V::F unshifted = V::Mul(d, V::SetF(0.25f));
      s.scale[0] = V::Mul(unshifted, V::LoadI8(p));
      s.scale[1] = V::Mul(unshifted, V::LoadI8(p + 16));
    }
  }
  return s;
}

// Bits `kFrom` and up of every byte of x, moved to bit `kTo` and up; neighbours come along.
template <class V, int kFrom, int kTo>
inline typename V::I MoveBits(typename V::I x) {
  if constexpr (kFrom < kTo) {
    return V::template ShiftLeft16<kTo - kFrom>(x);
  } else if constexpr (kFrom > kTo) {
    return V::template ShiftRight16<kFrom - kTo>(x);
  } else {
    return x;
  }
}

// Operand j of a block whose quants begin at `q` (already moved to the part's bytes).
template <class V, class T, int j>
inline typename V::I Operand(const uint8_t* q) {
  if constexpr (T::kBits == 8) {
    const typename V::I x = V::Load(q + 64 * j);
    return V::kShifted ? x : V::Xor(x, V::Set8(0x80));
  } else {
    constexpr int kUp = kTopBits<V, T> ? 8 - T::kBits : 0;
    const typename V::I low =
        V::And(MoveBits<V, j % 2 * 4, kUp>(V::Load(q + 64 * (j / 2))), V::Set8(0x0f << kUp));
    if constexpr (T::kBits == 4) {
      return low;
    } else if constexpr (T::kBits == 5) {
      return V::Or(low,
                   V::And(MoveBits<V, j, 4 + kUp>(V::Load(q + 256)), V::Set8(0x10 << kUp & 0xff)));
    } else {
      return V::Or(low, V::And(MoveBits<V, 2 * (j % 4), 4 + kUp>(V::Load(q + 256 + 64 * (j / 4))),
                               V::Set8(0x30 << kUp & 0xff)));
    }
  }
}

template <class V, class T>
inline void UnpackBlock(const uint8_t* q, typename V::I w[kOperands]) {
  w[0] = Operand<V, T, 0>(q);
  w[1] = Operand<V, T, 1>(q);
  w[2] = Operand<V, T, 2>(q);
  w[3] = Operand<V, T, 3>(q);
  w[4] = Operand<V, T, 4>(q);
  w[5] = Operand<V, T, 5>(q);
  w[6] = Operand<V, T, 6>(q);
  w[7] = Operand<V, T, 7>(q);
}

// Operand w of bytes as two vectors of 16-bit numbers: bytes 0 and 2 of each lane, and 1 and 3.
template <class V, class T>
inline void WidenOperand(typename V::I w, typename V::I& even, typename V::I& odd) {
  if constexpr (T::kBits == 8) {  // signed
    even = V::template ShiftRightSigned16<8>(V::template ShiftLeft16<8>(w));
    odd = V::template ShiftRightSigned16<8>(w);
  } else {
    even = V::And(w, V::Set32(0x00ff00ff));
    odd = V::template ShiftRight16<8>(w);
  }
}

// UnpackBlock into what T multiplies.
template <class V, class T>
inline void UnpackOperands(const uint8_t* q, typename V::I w[kOperands * T::kVectorsPerOperand]) {
  if constexpr (T::kWords) {
    typename V::I bytes[kOperands];
    UnpackBlock<V, T>(q, bytes);
#pragma GCC unroll 8
    for (int j = 0; j < kOperands; ++j) WidenOperand<V, T>(bytes[j], w[2 * j], w[2 * j + 1]);
  } else {
    UnpackBlock<V, T>(q, w);
  }
}

// The value that the sum of the high digits, or of the only ones, starts from: with the zero point
// at 128, what it contributes is 128 times the negated sum of q, which is in units of low digits.
template <class V, class T>
inline typename V::I SumBegin(const int32_t* negated_sum) {
  if constexpr (!V::kShifted || T::kHasMin) return V::Zero();
  return V::Broadcast32(negated_sum);
}

// The integer sum as a float: sum over k of 2^(8 - bits) (q - zero) a, or of q a with a minimum.
// `sum` is of both digits if kJoined, else of high ones; the float is in units of low digits where
// all blocks have them, else in units of high ones.
template <class V, class T, bool kJoined>
inline typename V::F SumEnd(typename V::I sum, const int32_t* negated_sum) {
  if constexpr (!V::kShifted && !T::kHasMin && T::kBits != 8) {
    typename V::I zero = V::Broadcast32(negated_sum);
    if constexpr (kJoined) zero = V::template ShiftLeft32<kDigitBits>(zero);
    sum = V::Add32(V::template ShiftLeft32<8 - T::kBits>(sum), zero);
  }
  if constexpr (!kJoined || T::kDigits == 2) return V::ToFloat(sum);
  // By a power of two: the bits are those of a sum of high digits where the low ones are zeros.
  return V::Mul(V::ToFloat(sum), V::SetF(1.0f / (1 << kDigitBits)));
}

// One row of activations at one block.
struct RowBlock {
  const int8_t* digits;  // the block's 32 high ones; of two digits, then its 32 low ones
  const float* scale;
  const float* scaled_sum;
  const int32_t* negated_sum;  // one, or two where a block has two scales
  const int8_t* low;           // of one digit: the 32 low ones, if it has any
  bool has_low;                // of one digit
  const int16_t* words;        // if T::kWords
};

template <class V, class T>
inline RowBlock At(const FixedRows& x, int64_t row, int64_t block) {
  const int64_t i = row * x.blocks + block;
  RowBlock at = {x.digits + i * T::kDigits * kBlockK,
                 x.scales + i,
                 x.scaled_sums + i,
                 T::kHalves ? x.half_negated_sums + 2 * i : x.negated_sums + i,
                 nullptr,
                 false,
                 nullptr};
  if constexpr (T::kWords) at.words = x.words + i * kBlockK;
  if constexpr (T::kDigits == 1) {
    at.low = x.low + i * kBlockK;
    at.has_low = x.has_low[i] != 0;
  }
  return at;
}

// sum + the product of one block of one row: the arithmetic that every kernel shares.
template <class V, class T>
inline typename V::F AddScaled(typename V::F total, const typename V::F dot[2],
                               const BlockScales<V>& s, const RowBlock& x) {
  const typename V::F scale = V::BroadcastF(x.scale);
  total = V::Fma(dot[0], V::Mul(s.scale[0], scale), total);
  if constexpr (T::kHalves) total = V::Fma(dot[1], V::Mul(s.scale[1], scale), total);
  if constexpr (T::kHasMin) total = V::Fma(s.min, V::BroadcastF(x.scaled_sum), total);
  return total;
}

// The float of SumEnd from the sums of both digits.
template <class V, class T>
inline typename V::F JoinDigits(typename V::I high, typename V::I low, const int32_t* negated_sum) {
  return SumEnd<V, T, /*kJoined=*/true>(V::Add32(V::template ShiftLeft32<kDigitBits>(high), low),
                                        negated_sum);
}

// The integer dot products of operands [kBegin, kEnd) with digits, as a float. The sums of the two
// digits are chains of their own, which fill each other's gaps.
template <class V, class T, int kBegin, int kEnd>
inline typename V::F DotDigits(const typename V::I w[kOperands], const RowBlock& x,
                               const int32_t* negated_sum) {
  const typename V::I high =
      DotOneDigit<V, T, kBegin, kEnd>(SumBegin<V, T>(negated_sum), w, x.digits);
  if constexpr (T::kDigits == 1) {
    if (!x.has_low) return SumEnd<V, T, /*kJoined=*/false>(high, negated_sum);
  }
  const int8_t* const low_digits = T::kDigits == 2 ? x.digits + kBlockK : x.low;
  const typename V::I low = DotOneDigit<V, T, kBegin, kEnd>(V::Zero(), w, low_digits);
  return JoinDigits<V, T>(high, low, negated_sum);
}

// The same with what the activations have of T.
template <class V, class T, int kBegin, int kEnd>
inline typename V::F DotBlock(const typename V::I w[kOperands * T::kVectorsPerOperand],
                              const RowBlock& x, const int32_t* negated_sum) {
  if constexpr (T::kWords) {
    typename V::I sums[2] = {V::Zero(), V::Zero()};  // two chains
#pragma GCC unroll 16
    for (int j = 2 * kBegin; j < 2 * kEnd; ++j) {
      sums[j % 2] = V::AddWords(sums[j % 2], w[j], V::Broadcast32(x.words + 2 * j));
    }
    return SumEnd<V, T, /*kJoined=*/true>(V::Add32(sums[0], sums[1]), negated_sum);
  } else {
    return DotDigits<V, T, kBegin, kEnd>(w, x, negated_sum);
  }
}

template <class V, class T>
inline typename V::F MultiplyBlock(const typename V::I w[kOperands * T::kVectorsPerOperand],
                                   const BlockScales<V>& s, const RowBlock& x,
                                   typename V::F total) {
  typename V::F dot[2];
  if constexpr (T::kHalves) {
    dot[0] = DotBlock<V, T, 0, 4>(w, x, x.negated_sum);
    dot[1] = DotBlock<V, T, 4, 8>(w, x, x.negated_sum + 1);
  } else {
    dot[0] = DotBlock<V, T, 0, 8>(w, x, x.negated_sum);
  }
  return AddScaled<V, T>(total, dot, s, x);
}

// Column 0 of the products of row `row` of the activations.
template <class V>
inline float* OutRow(const ProductRange& range, int64_t row) {
  return range.out + (range.out_rows == nullptr ? row : range.out_rows[row]) * range.out_stride;
}

// Output columns of kTiles tiles from `tile` on: the last may be part-full.
template <class V, int kTiles>
inline int ColumnsIn(int64_t n, int64_t tile) {
  const int64_t left = n - tile * kTile;
  return left < kTiles * kTile ? static_cast<int>(left) : kTiles * kTile;
}

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_QUANTIZED_OPERANDS_INL_H_
