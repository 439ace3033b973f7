// Rounding of rows of activations to fixed point.
// For inclusion by the files of single instruction-set levels only: see quantized_kernels_inl.h,
// which says what V is and why.

#ifndef REFRAIN_KERNELS_CPU_QUANTIZED_ROWS_INL_H_
#define REFRAIN_KERNELS_CPU_QUANTIZED_ROWS_INL_H_

#include <cstdint>

#include "kernels/cpu/quantized_kernels.h"

namespace refrain::kernels::cpu {

// out[i] = the largest lane of x[i], of absolute values.
template <class V, int kCount>
inline void ReduceMaxSize(const typename V::F (&x)[kCount], float (&out)[kCount]) {
  if constexpr (kCount == 4 && requires { &V::ReduceMaxSize4; }) {
    V::ReduceMaxSize4(x, out);
  } else {
    for (int i = 0; i < kCount; ++i) out[i] = V::ReduceMaxSize(x[i]);
  }
}

// out[i] = the sum of x[i]'s lanes.
template <class V, int kCount>
inline void ReduceAdd32(const typename V::I (&x)[kCount], int32_t (&out)[kCount]) {
  if constexpr (kCount == 4 && requires { &V::ReduceAdd4; }) {
    V::ReduceAdd4(x, out);
  } else {
    for (int i = 0; i < kCount; ++i) out[i] = V::ReduceAdd32(x[i]);
  }
}

// How a block is rounded: to the two digits that all of its row have, to one, or to two in a row of
// blocks of one.
enum class Rounding { kTwoDigits, kOneDigit, kOneDigitAndLow };

// max[b] = the largest absolute value of block `block` + b, or NaN if one is: its scale will be
// NaN, and so will be every product of the row.
template <class V, int kBlocks>
[[gnu::always_inline]] inline void LargestOfBlocks(const float* x, int64_t block,
                                                   float (&max)[kBlocks]) {
  typename V::F largest[kBlocks];
#pragma GCC unroll 4
  for (int b = 0; b < kBlocks; ++b) {
    const float* at = x + (block + b) * kBlockK;
    largest[b] = V::Abs(V::LoadF(at));
#pragma GCC unroll 8
    for (int i = 1; i < kBlockK / V::kLanes; ++i) {
      largest[b] = V::MaxSize(V::Abs(V::LoadF(at + i * V::kLanes)), largest[b]);
    }
  }
  ReduceMaxSize<V>(largest, max);
}

// kBlocks blocks at a time: sums over lanes, and divisions, of four cost little more than of one.
// `max` is what LargestOfBlocks says.
template <class V, Rounding kRounding, int kBlocks>
inline void QuantizeBlocks(const float* x, int64_t block, const float (&max)[kBlocks],
                           const FixedRowOut& out) {
  constexpr int kVectors = kBlockK / V::kLanes;
  constexpr int kHalf = kVectors / 2;
  constexpr bool kOne = kRounding == Rounding::kOneDigit;
  constexpr float kMaxQ = kOne ? kMaxOneDigit : kMaxTwoDigits;
  float unit[kBlocks], inverse[kBlocks];
#pragma GCC unroll 4
  for (int b = 0; b < kBlocks; ++b) {
    unit[b] = max[b] / kMaxQ;
    // Below this the inverse would overflow; such a block is nothing beside the others.
    inverse[b] = max[b] > 1e-30f ? kMaxQ / max[b] : 0.0f;
  }
  typename V::I first[kBlocks], second[kBlocks];  // sums of the halves, lane by lane
#pragma GCC unroll 4
  for (int b = 0; b < kBlocks; ++b) {
    const float* at = x + (block + b) * kBlockK;
    int8_t* high_digits;
    int8_t* low_digits;
    if constexpr (kRounding == Rounding::kTwoDigits) {
      high_digits = out.digits + (block + b) * 2 * kBlockK;
      low_digits = high_digits + kBlockK;
    } else {
      high_digits = out.digits + (block + b) * kBlockK;
      low_digits = out.low + (block + b) * kBlockK;
    }
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      const typename V::I q = V::Round(V::Mul(V::LoadF(at + i * V::kLanes), V::SetF(inverse[b])));
      if constexpr (kRounding == Rounding::kTwoDigits && !V::kShifted) {
        if (out.words != nullptr) {
          V::StoreWords(out.words + (block + b) * kBlockK + i * V::kLanes, q);
        }
      }
      if constexpr (kOne) {
        V::StoreI8(high_digits + i * V::kLanes, q);
      } else {
        const typename V::I high = V::template ShiftRightSigned32<kDigitBits>(
            V::Add32(q, V::Set32(1 << (kDigitBits - 1))));
        V::StoreI8(high_digits + i * V::kLanes, high);
        V::StoreI8(low_digits + i * V::kLanes,
                   V::Sub32(q, V::template ShiftLeft32<kDigitBits>(high)));
      }
      typename V::I& half = i < kHalf ? first[b] : second[b];
      half = i % kHalf == 0 ? q : V::Add32(half, q);
    }
  }
  int32_t sums[2][kBlocks];
  ReduceAdd32<V>(first, sums[0]);
  ReduceAdd32<V>(second, sums[1]);
#pragma GCC unroll 4
  for (int b = 0; b < kBlocks; ++b) {
    // Unsigned: of numbers that are not finite come sums that an int cannot hold.
    constexpr int kShift = kOne ? kDigitBits : 0;  // negated sums are in units of low digits
    const uint32_t halves[2] = {static_cast<uint32_t>(sums[0][b]),
                                static_cast<uint32_t>(sums[1][b])};
    const uint32_t sum = halves[0] + halves[1];
    out.scales[block + b] =
        kRounding == Rounding::kOneDigitAndLow ? unit[b] * (1 << kDigitBits) : unit[b];
    out.scaled_sums[block + b] = unit[b] * static_cast<float>(static_cast<int32_t>(sum));
    out.half_negated_sums[2 * (block + b)] = static_cast<int32_t>(0 - (halves[0] << kShift));
    out.half_negated_sums[2 * (block + b) + 1] = static_cast<int32_t>(0 - (halves[1] << kShift));
    out.negated_sums[block + b] = static_cast<int32_t>(0 - (sum << kShift));
    if constexpr (kRounding != Rounding::kTwoDigits) out.has_low[block + b] = kOne ? 0 : 1;
  }
}

// Between cores that share no cache a line takes as long as two rows.
inline constexpr int kRowsAhead = 3;

// Asks for where four blocks of the row kRowsAhead rows ahead, from `block` on, will be put. All
// threads have read what was there: each line must be taken from them, which alone takes longer
// than to fill it.
template <class V, int kDigits>
[[gnu::always_inline]] inline void AskForRowAhead(int64_t blocks, int64_t block,
                                                  const FixedRowOut& out) {
  const int64_t next = kRowsAhead * blocks + block;
  const int8_t* const digits = out.digits + next * kDigits * kBlockK;
  for (int i = 0; i < 4 * kDigits * kBlockK; i += 64) V::PrefetchToWrite(digits + i);
  V::PrefetchToWrite(out.scales + next);
  V::PrefetchToWrite(out.scaled_sums + next);
  V::PrefetchToWrite(out.negated_sums + next);
  V::PrefetchToWrite(out.half_negated_sums + 2 * next);
  if constexpr (kDigits == 1) V::PrefetchToWrite(out.has_low + next);
}

// Blocks [block, block + kBlocks) of a row of two digits.
template <class V, int kBlocks>
inline void QuantizeToTwoDigits(const float* x, int64_t block, const FixedRowOut& out) {
  float max[kBlocks];
  LargestOfBlocks<V>(x, block, max);
  QuantizeBlocks<V, Rounding::kTwoDigits>(x, block, max, out);
}

// The same of a row of one digit, where blocks with a value above `large` have a second one.
// out.scales holds their largest values.
template <class V, int kBlocks>
inline void QuantizeToOneDigit(const float* x, int64_t block, float large, const FixedRowOut& out) {
  float max[kBlocks];
  for (int b = 0; b < kBlocks; ++b) max[b] = out.scales[block + b];
  QuantizeBlocks<V, Rounding::kOneDigit>(x, block, max, out);
  for (int b = 0; b < kBlocks; ++b) {
    const float own[1] = {max[b]};
    if (max[b] > large) {
      QuantizeBlocks<V, Rounding::kOneDigitAndLow>(x, block + b, own, out);
    }
  }
}

// The largest values of blocks [block, block + kBlocks) into out.scales; returns their sum.
template <class V, int kBlocks>
inline float MeasureBlocks(const float* x, int64_t block, const FixedRowOut& out) {
  float max[kBlocks], sum = 0;
  LargestOfBlocks<V>(x, block, max);
  for (int b = 0; b < kBlocks; ++b) {
    out.scales[block + b] = max[b];
    sum += max[b];
  }
  return sum;
}

template <class V, int kDigits>
void QuantizeRow(const float* x, int64_t blocks, float stands_out, const FixedRowOut& out) {
  const int64_t fours = blocks / 4 * 4;
  if constexpr (kDigits == 2) {
    for (int64_t block = 0; block < fours; block += 4) {
      AskForRowAhead<V, kDigits>(blocks, block, out);
      QuantizeToTwoDigits<V, 4>(x, block, out);
    }
    for (int64_t block = fours; block < blocks; ++block) QuantizeToTwoDigits<V, 1>(x, block, out);
  } else {
    float sum = 0;
    for (int64_t block = 0; block < fours; block += 4) {
      AskForRowAhead<V, kDigits>(blocks, block, out);
      sum += MeasureBlocks<V, 4>(x, block, out);
    }
    for (int64_t block = fours; block < blocks; ++block) sum += MeasureBlocks<V, 1>(x, block, out);
    const float large = stands_out * (sum / static_cast<float>(blocks));
    for (int64_t block = 0; block < fours; block += 4) {
      QuantizeToOneDigit<V, 4>(x, block, large, out);
    }
    for (int64_t block = fours; block < blocks; ++block) {
      QuantizeToOneDigit<V, 1>(x, block, large, out);
    }
  }
}

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_QUANTIZED_ROWS_INL_H_
