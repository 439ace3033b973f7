#ifndef REFRAIN_ENGINE_MODEL_FINITE_WEIGHTS_H_
#define REFRAIN_ENGINE_MODEL_FINITE_WEIGHTS_H_

#include <cstdint>
#include <optional>

#include "engine/model/tensor_role.h"

namespace refrain::engine {

// A value of a weight that is an infinity or no number.
struct NotFinite {
  int64_t row = 0;
  int64_t column = 0;  // of quantised ones the first of the block whose scale or minimum it is
};

// The first such value, if there is one. A file with flipped bits often has some, and one is enough
// for answers that are noise or nothing, so a model with any is refused at load.
//
// Reads every value of floats and the scales and minima of quantised blocks: as fast as memory for
// the one, half a nanosecond a weight at most for the other. Pure, any thread.
std::optional<NotFinite> FindNotFinite(const WeightView& weight);

// Whether every byte is zero, as where a file was given its size before it was downloaded. Reads up
// to the first other byte. Pure, any thread.
bool HoldsOnlyZeros(const WeightView& weight);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_MODEL_FINITE_WEIGHTS_H_
