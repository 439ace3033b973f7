#ifndef REFRAIN_KERNELS_CUDA_SCALED_ROW_H_
#define REFRAIN_KERNELS_CUDA_SCALED_ROW_H_

#include <cstdint>

#include "kernels/cuda/device_language.h"
#include "kernels/cuda/logits_row.h"

namespace refrain::kernels::cuda {

// A row of logits as distances from the best one, which are never above 0: their magnitudes' bits
// order the candidates from best (0) to worst, eight bins an octave at the first level (Row of
// best_tokens.h). For .cu files.
struct ScaledRow {
  static constexpr int kKeyBits = 31;

  const float* logits;
  int vocab;
  float best;
  float inverse_temperature;
  float least;  // further than this below the best there are no candidates

  // Whether a token with this logit is a candidate, and the bits of its magnitude.
  __device__ bool Candidate(float logit, uint32_t& magnitude) const {
    const float scaled = (logit - best) * inverse_temperature;
    magnitude = __float_as_uint(scaled) & 0x7fffffffu;
    return scaled >= least;  // false for NaN
  }
};

// Its probability, in units of 1 / kMassOfOne of the best one's.
__device__ __forceinline__ Mass MassOf(uint32_t magnitude) {
  const float e = expf(-__uint_as_float(magnitude));
  return static_cast<Mass>(e * kMassOfOne);
}

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_SCALED_ROW_H_
