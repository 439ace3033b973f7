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

// cos and sin of positions that follow one another, times rope.attention_factor under YaRN.
struct RopeAngles {
  std::vector<float> cos;  // [num_positions, dim / 2]
  std::vector<float> sin;  // [num_positions, dim / 2]
};

// Of the positions [begin, begin + num_positions). A table over all that a model file claims may
// be larger than memory: the caller makes it piece by piece, where it has room for it.
RopeAngles MakeRopeAngles(const RopeConfig& rope, std::span<const float> freq_factors,
                          int32_t begin, int32_t num_positions);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_MODEL_ROPE_TABLE_H_
