// SwiGLU's gate.
// For inclusion by the files of single instruction-set levels only: see quantized_kernels_inl.h,
// which says what V is and why.

#ifndef REFRAIN_KERNELS_CPU_SILU_INL_H_
#define REFRAIN_KERNELS_CPU_SILU_INL_H_

#include <cstdint>

namespace refrain::kernels::cpu {

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

// x / (1 + e^-x)
template <class V>
inline typename V::F GateSilu(typename V::F x) {
  const typename V::F negated = V::Mul(x, V::SetF(-1.0f));
  const typename V::F e = Exp<V>(V::Max(V::Min(negated, V::SetF(87.0f)), V::SetF(-87.0f)));
  return V::Div(x, V::Add(e, V::SetF(1.0f)));
}

template <class V>
void SiluMul(float* gate, const float* up, int64_t count) {
  for (int64_t i = 0; i < count; i += V::kLanes) {
    const int lanes = count - i < V::kLanes ? static_cast<int>(count - i) : V::kLanes;
    const typename V::F silu = GateSilu<V>(V::LoadN(gate + i, lanes));
    V::StoreN(gate + i, V::Mul(silu, V::LoadN(up + i, lanes)), lanes);
  }
}

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_SILU_INL_H_
