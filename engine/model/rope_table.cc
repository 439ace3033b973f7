#include "engine/model/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace refrain::engine {
namespace {

// Llama 3: long wavelengths are stretched, short ones kept, those between blended.
double ScaleLlama3(double frequency, const RopeConfig& rope) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  const double original = rope.original_context_tokens;
  if (wavelength < original / rope.high_freq_factor) return frequency;
  if (wavelength > original / rope.low_freq_factor) return frequency / rope.factor;
  const double keep = (original / wavelength - rope.low_freq_factor) /
                      (rope.high_freq_factor - rope.low_freq_factor);
  return (1 - keep) * frequency / rope.factor + keep * frequency;
}

// How far a pair is divided: 0 keeps its frequency, 1 divides it by the factor.
double YarnShare(int pair, const YarnRamp& ramp) {
  const double width = ramp.end > ramp.begin ? ramp.end - ramp.begin : 0.001;
  return std::clamp((pair - ramp.begin) / width, 0.0, 1.0);
}

}  // namespace

std::vector<double> RopeFrequencies(const RopeConfig& rope, std::span<const float> freq_factors) {
  const int half = rope.dim / 2;
  std::vector<double> frequencies(half);
  for (int i = 0; i < half; ++i) {
    double frequency = std::pow(rope.theta, -2.0 * i / rope.dim);
    switch (rope.scaling) {
      case RopeScaling::kNone:
        if (!freq_factors.empty()) frequency /= freq_factors[i];
        break;
      case RopeScaling::kLinear:
        frequency /= rope.factor;
        break;
      case RopeScaling::kLlama3:
        frequency = ScaleLlama3(frequency, rope);
        break;
      case RopeScaling::kYarn: {
        const double share = YarnShare(i, YarnRampOf(rope));
        frequency = frequency * (1 - share) + frequency / rope.factor * share;
        break;
      }
    }
    frequencies[i] = frequency;
  }
  return frequencies;
}

RopeAngles MakeRopeAngles(const RopeConfig& rope, std::span<const float> freq_factors,
                          int32_t begin, int32_t num_positions) {
  const std::vector<double> frequencies = RopeFrequencies(rope, freq_factors);
  const double magnitude = rope.scaling == RopeScaling::kYarn ? rope.attention_factor : 1.0;
  RopeAngles angles;
  angles.cos.reserve(num_positions * frequencies.size());
  angles.sin.reserve(num_positions * frequencies.size());
  for (int32_t i = 0; i < num_positions; ++i) {
    for (const double frequency : frequencies) {
      const double angle = (int64_t{begin} + i) * frequency;
      angles.cos.push_back(static_cast<float>(std::cos(angle) * magnitude));
      angles.sin.push_back(static_cast<float>(std::sin(angle) * magnitude));
    }
  }
  return angles;
}

}  // namespace refrain::engine
