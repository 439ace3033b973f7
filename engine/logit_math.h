#ifndef REFRAIN_ENGINE_LOGIT_MATH_H_
#define REFRAIN_ENGINE_LOGIT_MATH_H_

#include <cstddef>
#include <span>
#include <vector>

namespace refrain::engine {

// Passes over the logits of a whole vocabulary (49,152 to 128,256 floats), once or more per sampled
// token on the engine thread: written so that compilers vectorise them. NaN counts as minus
// infinity everywhere.

// exp for x <= 0, relative error under 2e-7; 0 below -87 and for NaN.
float ExpNonPositive(float x);

// Logits come in blocks of this many, so that a sum over all of them keeps its digits and a search
// skips most of them.
inline constexpr size_t kLogitBlock = 64;

// The greatest logit of each block.
std::vector<float> BlockMaxima(std::span<const float> logits);

// The greatest of `values`; minus infinity if there are none.
float Greatest(std::span<const float> values);

// sum[b] = the sum over block b of exp((x - max) * inverse), for max no less than any x.
std::vector<double> BlockSums(std::span<const float> logits, float max, float inverse);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_LOGIT_MATH_H_
