#ifndef REFRAIN_KERNELS_CPU_ELEMENTWISE_KERNELS_H_
#define REFRAIN_KERNELS_CPU_ELEMENTWISE_KERNELS_H_

#include <cstdint>

namespace refrain::kernels::cpu {

// One level's loops over one row, for elementwise.cc and rope_append.cc. Included by files of every
// level, so it holds declarations only.
struct ElementwiseKernels {
  // out = x / sqrt(mean(x^2) + eps) * weight
  void (*rms_norm)(const float* x, const float* weight, float* out, int64_t n, double eps);
  // out = silu(gate) * up; out may be gate or up.
  void (*swiglu)(const float* gate, const float* up, float* out, int64_t n);
  // x += y
  void (*add)(float* x, const float* y, int64_t n);
  // Half-split rotation in place, of `heads` heads `head_dim` apart: (x[i], x[i + half]) by the
  // angle of cos[i], sin[i].
  void (*rotate)(float* x, int64_t heads, int64_t head_dim, const float* cos, const float* sin,
                 int64_t half);
  // Rounds to f16 or bf16, to nearest even.
  void (*to_f16)(const float* x, uint16_t* out, int64_t n);
  void (*to_bf16)(const float* x, uint16_t* out, int64_t n);
  // Rounds to E4M3, to nearest even, +-448 beyond it, infinities too; NaN stays NaN.
  void (*to_e4m3)(const float* x, uint8_t* out, int64_t n);
  // For x of which element i may be off by norms[i] * by_norm: what the elements of each 16 are at
  // most into ceilings [(n + 15) / 16]; returns what the greatest of all is at least.
  float (*bound)(const float* x, const float* norms, int64_t n, float by_norm, float* ceilings);
};

extern const ElementwiseKernels kElementwisePortable;
extern const ElementwiseKernels kElementwiseAvx2;
extern const ElementwiseKernels kElementwiseAvx512;

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_ELEMENTWISE_KERNELS_H_
