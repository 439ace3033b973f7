#ifndef REFRAIN_KERNELS_SAMPLING_ARGS_H_
#define REFRAIN_KERNELS_SAMPLING_ARGS_H_

#include <cmath>
#include <cstdint>
#include <span>

#include "kernels/tensor_view.h"

// What choosing tokens from logits on a device is told: the rules of engine/sampler.h, in the same
// order: allowed tokens, bias and penalties, temperature, min-p, top-k, top-p, then one draw. And
// what log-probabilities it is asked for.

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

// What is asked of one row's distribution: the model's own, at temperature 1 and before any edit.
struct LogprobsRow {
  static constexpr int32_t kSampled = -1;       // the newest token of `slot`
  static constexpr int32_t kMostProbable = -2;  // the lowest id of equal ones

  int32_t token = kSampled;  // whose log-probability, in [0, vocab) or one of those
  int32_t top = 0;           // how many of the most probable tokens beside it, in [0, vocab]
  int32_t logits_row = 0;    // of LogprobsArgs::logits
  int32_t slot = 0;          // read with kSampled
  // Of the call's entries, where its 1 + top ones begin: the token's, then those of the most
  // probable, in no order.
  int32_t entry_begin = 0;
};

// One token of a row's distribution. Of equal ones those with the lowest ids are the more probable.
struct alignas(16) LogprobEntry {
  int32_t token = -1;    // -1: there is none, or the best logit is infinite
  int32_t rank = 0;      // of the token asked for: 1 = the most probable; of others not told
  float logit = 0.0f;    // NaN counts as -infinity
  float logprob = 0.0f;  // natural log
};

struct LogprobsArgs {
  std::span<const LogprobsRow> rows;  // in host memory, ascending entry_begin, without gaps
  TensorView logits;                  // [any number of rows, vocab], f32, unedited
};

}  // namespace refrain::kernels

#endif  // REFRAIN_KERNELS_SAMPLING_ARGS_H_
