#ifndef REFRAIN_KERNELS_CPU_SIMD_MATH_H_
#define REFRAIN_KERNELS_CPU_SIMD_MATH_H_

// Functions over the vector types of simd_portable.h, simd_avx2.h and simd_avx512.h. Include only
// from files that are compiled for one level.
namespace refrain::kernels::cpu {

// e^x to 2 units in the last place; 0 below -87.3 (-infinity included), clamped to e^88.3 above;
// NaN stays NaN.
template <class S>
inline typename S::F Exp(typename S::F x) {
  const auto lowest = S::Set1(-87.33654f);
  const auto clamped = S::Max(lowest, S::Min(S::Set1(88.37626f), x));
  // x = n ln 2 + r, |r| <= ln 2 / 2, with ln 2 in two parts: n times the first is exact. e^r by a
  // polynomial of least relative error.
  const auto n = S::Round(S::Mul(clamped, S::Set1(1.44269504f)));
  auto r = S::Fma(n, S::Set1(-0.693359375f), clamped);
  r = S::Fma(n, S::Set1(2.12194440e-4f), r);
  auto p = S::Set1(1.9875691500e-4f);
  p = S::Fma(p, r, S::Set1(1.3981999507e-3f));
  p = S::Fma(p, r, S::Set1(8.3334519073e-3f));
  p = S::Fma(p, r, S::Set1(4.1665795894e-2f));
  p = S::Fma(p, r, S::Set1(1.6666665459e-1f));
  p = S::Fma(p, r, S::Set1(5.0000001201e-1f));
  p = S::Fma(p, r, S::Set1(1.0f));
  p = S::Fma(p, r, S::Set1(1.0f));
  return S::TimesPow2OrZero(p, n, x, lowest);
}

// 2^x for x <= 127 to 2 units in the last place; 0 below -126 (-infinity included); NaN stays NaN.
// Two thirds of the instructions of Exp: scores that are kept in units of ln 2 need no more.
template <class S>
inline typename S::F Exp2(typename S::F x) {
  // x = n + r, |r| <= 1/2; 2^r by a polynomial of least relative error, 1 at 0.
  const auto n = S::Round(x);
  const auto r = S::Sub(x, n);
  auto p = S::Set1(1.327647198e-3f);
  p = S::Fma(p, r, S::Set1(9.675541334e-3f));
  p = S::Fma(p, r, S::Set1(5.550713274e-2f));
  p = S::Fma(p, r, S::Set1(2.402211972e-1f));
  p = S::Fma(p, r, S::Set1(6.931469671e-1f));
  p = S::Fma(p, r, S::Set1(1.0f));
  return S::TimesPow2OrZero(p, n, x, S::Set1(-126.0f));
}

// 2^x as Exp2, to 2^-13: for results that are rounded to the 8 bits of bf16. 1 at 0 and exact at
// every whole x. For levels whose S has Fraction and whose TimesPow2OrZero rounds n down.
template <class S>
inline typename S::F Exp2Coarse(typename S::F x) {
  // x = n + r, 0 <= r < 1: with n rounded down nothing but r has to be computed.
  const auto r = S::Fraction(x);
  auto p = S::Set1(7.706704200e-2f);
  p = S::Fma(p, r, S::Set1(2.276449912e-1f));
  p = S::Fma(p, r, S::Set1(6.951167864e-1f));
  p = S::Fma(p, r, S::Set1(1.0f));
  return S::TimesPow2OrZero(p, x, x, S::Set1(-126.0f));
}

// x / (1 + e^-x)
template <class S>
inline typename S::F Silu(typename S::F x) {
  const auto one = S::Set1(1.0f);
  return S::Div(x, S::Add(one, Exp<S>(S::Sub(S::Zero(), x))));
}

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_SIMD_MATH_H_
