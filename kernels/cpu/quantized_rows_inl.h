// What the products need done to rows of activations: rounding to fixed point, SwiGLU.
// For inclusion by the files of single instruction-set levels only: see quantized_kernels_inl.h,
// which says what V is and why.

#ifndef REFRAIN_KERNELS_CPU_QUANTIZED_ROWS_INL_H_
#define REFRAIN_KERNELS_CPU_QUANTIZED_ROWS_INL_H_

#include <cstdint>

#include "kernels/cpu/quantized_kernels.h"

namespace refrain::kernels::cpu {

template <class V>
void QuantizeRow(const float* x, int64_t blocks, const FixedRowOut& out) {
  constexpr int kVectors = kBlockK / V::kLanes;
  for (int64_t block = 0; block < blocks; ++block) {
    typename V::F v[kVectors];
    for (int i = 0; i < kVectors; ++i) v[i] = V::LoadF(x + block * kBlockK + i * V::kLanes);
    typename V::F largest = V::Abs(v[0]);
    for (int i = 1; i < kVectors; ++i) largest = V::Max(V::Abs(v[i]), largest);
    const float max = V::ReduceMax(largest);
    const float scale = max / kMaxQ;
    // Below this the inverse would overflow; such a block is nothing beside the others.
    const float inverse = max > 1e-30f ? kMaxQ / max : 0.0f;
    int8_t* digits = out.digits + block * 2 * kBlockK;
    int32_t sum[2] = {0, 0};
    for (int i = 0; i < kVectors; ++i) {
      const typename V::I q = V::Round(V::Mul(v[i], V::SetF(inverse)));
      const typename V::I high =
          V::template ShiftRightSigned32<kDigitBits>(V::Add32(q, V::Set32(1 << (kDigitBits - 1))));
      V::StoreI8(digits + i * V::kLanes, high);
      V::StoreI8(digits + kBlockK + i * V::kLanes,
                 V::Sub32(q, V::template ShiftLeft32<kDigitBits>(high)));
      sum[2 * i / kVectors] += V::ReduceAdd32(q);
    }
    out.scales[block] = scale;
    out.scaled_sums[block] = scale * static_cast<float>(sum[0] + sum[1]);
    out.half_negated_sums[2 * block] = -sum[0];
    out.half_negated_sums[2 * block + 1] = -sum[1];
    out.negated_sums[block] = -(sum[0] + sum[1]);
  }
}

// e^x for x in [-87, 87], relative error below 2e-7: e^x = 2^i e^r, |r| <= ln 2 / 2, and a Taylor
// polynomial for e^r.
template <class V>
inline typename V::F Exp(typename V::F x) {
  using F = typename V::F;
  const typename V::I i = V::Round(V::Mul(x, V::SetF(1.44269504f)));
  const F n = V::ToFloat(i);
  // ln 2 in two parts, so that n ln 2 is subtracted to more than float precision.
  F r = V::Fma(n, V::SetF(-0.693359375f), x);
  r = V::Fma(n, V::SetF(2.12194440e-4f), r);
  F p = V::SetF(1.0f / 5040);
  p = V::Fma(p, r, V::SetF(1.0f / 720));
  p = V::Fma(p, r, V::SetF(1.0f / 120));
  p = V::Fma(p, r, V::SetF(1.0f / 24));
  p = V::Fma(p, r, V::SetF(1.0f / 6));
  p = V::Fma(p, r, V::SetF(0.5f));
  p = V::Fma(p, r, V::SetF(1.0f));
  p = V::Fma(p, r, V::SetF(1.0f));
  return V::Mul(p, V::PowerOfTwo(i));
}

template <class V>
void SiluMul(float* gate, const float* up, int64_t count) {
  using F = typename V::F;
  for (int64_t i = 0; i < count; i += V::kLanes) {
    const int lanes = count - i < V::kLanes ? static_cast<int>(count - i) : V::kLanes;
    const F g = V::LoadN(gate + i, lanes);
    const F negated = V::Mul(g, V::SetF(-1.0f));
    const F e = Exp<V>(V::Max(V::Min(negated, V::SetF(87.0f)), V::SetF(-87.0f)));
    const F silu = V::Div(g, V::Add(e, V::SetF(1.0f)));
    V::StoreN(gate + i, V::Mul(silu, V::LoadN(up + i, lanes)), lanes);
  }
}

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_QUANTIZED_ROWS_INL_H_
