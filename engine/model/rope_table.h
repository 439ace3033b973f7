#ifndef REFRAIN_ENGINE_MODEL_ROPE_TABLE_H_
#define REFRAIN_ENGINE_MODEL_ROPE_TABLE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/model/model_config.h"

namespace refrain::engine {

// Inverse frequencies [rope.dim / 2] in radians per position, scaling applied. `freq_factors` is
// the model's kRopeFreqs tensor or empty. Double precision: at position 8,000 angles in float are
// off by 2e-4 rad.
std::vector<double> RopeFrequencies(const RopeConfig& rope, std::span<const float> freq_factors);

// cos and sin of every position in [0, max_positions), times rope.attention_factor under YaRN.
struct RopeAngles {
  int32_t max_positions = 0;
  int dim = 0;
  std::vector<float> cos;  // [max_positions, dim / 2]
  std::vector<float> sin;  // [max_positions, dim / 2]
};

RopeAngles MakeRopeAngles(const RopeConfig& rope, std::span<const float> freq_factors,
                          int32_t max_positions);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_MODEL_ROPE_TABLE_H_
