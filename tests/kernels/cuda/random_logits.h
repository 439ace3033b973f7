#ifndef REFRAIN_TESTS_KERNELS_CUDA_RANDOM_LOGITS_H_
#define REFRAIN_TESTS_KERNELS_CUDA_RANDOM_LOGITS_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace refrain::kernels::cuda {

// Normally distributed; `whole`: whole numbers, many of which are equal.
inline std::vector<float> RandomLogits(int count, uint32_t seed, float scale, bool whole = false) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> logits(static_cast<size_t>(count));
  for (float& x : logits) x = whole ? std::round(normal(random)) : normal(random);
  return logits;
}

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_TESTS_KERNELS_CUDA_RANDOM_LOGITS_H_
