#include "engine/logit_math.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

namespace refrain::engine {
namespace {

constexpr float kLeast = -std::numeric_limits<float>::infinity();
constexpr size_t kLanes = 16;
static_assert(kLogitBlock % kLanes == 0);

// Without branches, and no value depends on whether the loop around it was vectorised.
inline float Exp(float x) {
  const float clamped = x > -87.0f ? x : -87.0f;
  const float n = (clamped * 1.44269504f + 12582912.0f) - 12582912.0f;  // round to nearest
  const float r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const float y = (p * r * r + r) + 1.0f;
  const auto scale = std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
  return x >= -87.0f ? y * scale : 0.0f;
}

// As many lanes side by side as the widest vectors have. `x` may be short of a whole block.
float BlockMax(const float* x, size_t count) {
  float best[kLanes];
  std::fill_n(best, kLanes, kLeast);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      best[lane] = x[i + lane] > best[lane] ? x[i + lane] : best[lane];
    }
  }
  for (size_t lane = 0; i + lane < count; ++lane) {
    best[lane] = x[i + lane] > best[lane] ? x[i + lane] : best[lane];
  }
  for (size_t half = kLanes / 2; half > 0; half /= 2) {
    for (size_t lane = 0; lane < half; ++lane) {
      best[lane] = best[lane + half] > best[lane] ? best[lane + half] : best[lane];
    }
  }
  return best[0];
}

double BlockSum(const float* x, size_t count, float max, float inverse) {
  float sums[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += Exp((x[i + lane] - max) * inverse);
  }
  for (size_t lane = 0; i + lane < count; ++lane) sums[lane] += Exp((x[i + lane] - max) * inverse);
  double sum = 0;
  for (const float part : sums) sum += part;
  return sum;
}

}  // namespace

float ExpNonPositive(float x) { return Exp(x); }

std::vector<float> BlockMaxima(std::span<const float> logits) {
  std::vector<float> maxima;
  maxima.reserve(logits.size() / kLogitBlock + 1);
  for (size_t i = 0; i < logits.size(); i += kLogitBlock) {
    maxima.push_back(BlockMax(logits.data() + i, std::min(kLogitBlock, logits.size() - i)));
  }
  return maxima;
}

float Greatest(std::span<const float> values) {
  float best = kLeast;
  for (const float value : values) best = value > best ? value : best;
  return best;
}

std::vector<double> BlockSums(std::span<const float> logits, float max, float inverse) {
  std::vector<double> sums;
  sums.reserve(logits.size() / kLogitBlock + 1);
  for (size_t i = 0; i < logits.size(); i += kLogitBlock) {
    sums.push_back(
        BlockSum(logits.data() + i, std::min(kLogitBlock, logits.size() - i), max, inverse));
  }
  return sums;
}

}  // namespace refrain::engine
