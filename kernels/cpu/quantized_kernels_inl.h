// The loops of quantized_kernels.h over a vector type V, for inclusion by the one file of each
// instruction-set level. V is a struct in that file's unnamed namespace, so that every function
// here, being a template over V, is private to the file that was compiled for V's instructions.
// For the same reason nothing of the standard library is called.
//
// V has kLanes 32-bit lanes (a tile of 16 rows is kParts = 16 / kLanes of them), F and I for
// floats and bytes or integers, and
//   kShifted    8-bit dot products take any u8 operand: quants of 4 to 6 bits are shifted to the
//               top of their byte, which makes every zero point 128 and the offset of the sum a
//               value to start from; else they stay small, so that sums of 16 bits cannot overflow
//   kFewRegisters, if kShifted: rows go over one operand at a time instead of two
//   Dot(sum, w, a), if both: sum + the dot products of 4 bytes per lane
//   DotPair(sum, w0, w1, a0, a1), if kShifted: the same of two operands
//   Products16<bits>(w, a), Add16, AddPairs(sum, words), if not: the sums of 2 products of bytes,
//               16 bits each; theirs; and sum + the two of each lane
//   AddWords(sum, w, a), ShiftRightSigned16, StoreWords(p, x), if not: sum + the 2 products of 16
//               bits of each lane; and x in 16 bits, each four lanes in the order 0, 2, 1, 3
//   MaxSize, ReduceMaxSize(x): the largest of absolute values; NaN, by its bits, is above all
//   kGemmTiles, kGemmRows: the block of outputs kept in registers where there are many rows.
//   kDirectRows: up to this many rows, weights are unpacked into registers and used at once.

#ifndef REFRAIN_KERNELS_CPU_QUANTIZED_KERNELS_INL_H_
#define REFRAIN_KERNELS_CPU_QUANTIZED_KERNELS_INL_H_

#include "kernels/cpu/quantized_kernels.h"
#include "kernels/cpu/quantized_product_inl.h"
#include "kernels/cpu/quantized_rows_inl.h"
#include "kernels/cpu/silu_inl.h"

namespace refrain::kernels::cpu {

template <class V, int kDigits>
constexpr FixedKernels FixedKernelsFor() {
  return {
      MultiplyQuantized<V, Format<8, ScaleKind::kScale, kDigits>>,
      MultiplyQuantized<V, Format<4, ScaleKind::kScale, kDigits>>,
      MultiplyQuantized<V, Format<4, ScaleKind::kScaleMin, kDigits>>,
      MultiplyQuantized<V, Format<5, ScaleKind::kScale, kDigits>>,
      MultiplyQuantized<V, Format<5, ScaleKind::kScaleMin, kDigits>>,
      MultiplyQuantized<V, Format<4, ScaleKind::kSuperMin, kDigits>>,
      MultiplyQuantized<V, Format<5, ScaleKind::kSuperMin, kDigits>>,
      MultiplyQuantized<V, Format<6, ScaleKind::kSuperScale, kDigits>>,
      QuantizeRow<V, kDigits>,
  };
}

template <class V>
constexpr QuantizedKernels KernelsFor() {
  return {.by_digits = {FixedKernelsFor<V, 1>(), FixedKernelsFor<V, 2>()},
          .silu_mul = SiluMul<V>,
          .least_rows_of_words = V::kShifted ? nullptr : LeastRowsOfWords<V>};
}

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_QUANTIZED_KERNELS_INL_H_
