#ifndef REFRAIN_KERNELS_SAMPLING_ARGS_H_
#define REFRAIN_KERNELS_SAMPLING_ARGS_H_

#include <cmath>
#include <cstdint>
#include <span>

#include "kernels/tensor_view.h"

// What choosing tokens from logits on a device is told: the rules of engine/sampler.h, in the same
// order: allowed tokens, bias and penalties, temperature, min-p, top-k, top-p, then one draw.

namespace refrain::kernels {

// One change of one logit, its members applied from top to bottom. A row's edits are sorted by
// token; those of one token are applied in order.
struct LogitEdit {
  int32_t token = 0;                // outside of [0, vocab): no effect
  int32_t banned = 0;               // 1: never chosen; the others are not read
  float bias = 0.0f;                // added
  float repetition_penalty = 1.0f;  // positive logits are divided by it, others multiplied
  float subtracted = 0.0f;          // presence and frequency penalties of an output token
};

// Scaled logits further than this below the best have no probability in f32.
inline constexpr float kLeastScaledLogit = -87.0f;

// How one row's token is chosen.
struct SamplingRow {
  double uniform = 0.0;                          // in [0, 1)
  double top_p = 1.0;                            // (0, 1]
  float inverse_temperature = 0.0f;              // 0 = greedy
  float least_scaled_logit = kLeastScaledLogit;  // log(min_p) where that is set
  int32_t top_k = 0;                             // 0 = all
  int32_t edit_begin = 0, edit_end = 0;          // into SampleArgs::edits
  int32_t allowed_begin = 0, allowed_end = 0;    // into ::allowed; empty = every token
  int32_t logits_row = 0;                        // of ::logits
  int32_t slot = 0;                              // the token is the newest one of this slot
};

// The row for parameters as in a request (temperature 0 = greedy, min_p 0 = none), no edits.
inline SamplingRow MakeSamplingRow(double temperature, int32_t top_k, double top_p, double min_p,
                                   double uniform) {
  SamplingRow row;
  row.uniform = uniform;
  row.top_p = top_p;
  row.top_k = top_k;
  if (temperature > 0) row.inverse_temperature = static_cast<float>(1.0 / temperature);
  if (min_p > 0) row.least_scaled_logit = static_cast<float>(std::log(min_p));
  return row;
}

struct SampleArgs {
  // inputs, in host memory
  std::span<const SamplingRow> rows;  // of different slots
  std::span<const LogitEdit> edits;   // of all rows
  std::span<const int32_t> allowed;   // of all rows, each in [0, vocab)
  // changed in place by edits
  TensorView logits;  // [any number of rows, vocab], f32
};

}  // namespace refrain::kernels

#endif  // REFRAIN_KERNELS_SAMPLING_ARGS_H_
