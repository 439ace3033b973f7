#ifndef REFRAIN_KERNELS_CUDA_SAMPLING_H_
#define REFRAIN_KERNELS_CUDA_SAMPLING_H_

#include <cstdint>

namespace refrain::kernels::cuda {

class Stream;

// Choosing tokens on the device, so that sampled ids can be the next step's input without the host.
// The same rules as engine/sampler.h, in the same order: allowed tokens, bias and penalties,
// temperature, min-p, top-k, top-p, then one draw. Greedy rows choose the same token; other rows
// keep the same tokens, each with the same probability, but walk them in order of id, so that the
// same random number may stand for another of them.
//
// One block per row. Probabilities are summed as whole numbers (in units of 2^-44), so the result
// does not depend on the order in which threads add: equal inputs choose equal tokens.

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
  int32_t edit_begin = 0, edit_end = 0;          // into SamplingLaunch::edits
  int32_t allowed_begin = 0, allowed_end = 0;    // into ::allowed; empty = every token
};

// The row for parameters as in a request (temperature 0 = greedy, min_p 0 = none), no edits.
SamplingRow MakeSamplingRow(double temperature, int32_t top_k, double top_p, double min_p,
                            double uniform);

// Every pointer is device memory.
struct SamplingLaunch {
  // sizes
  int num_rows = 0;
  int vocab = 0;      // at most kMaxSamplingVocab
  int threads = 512;  // per row: whole warps, at most kMaxSamplingThreads
  // inputs
  const SamplingRow* rows = nullptr;  // [num_rows]
  const LogitEdit* edits = nullptr;   // of all rows
  const int32_t* allowed = nullptr;   // of all rows, each in [0, vocab)
  // scratch
  float* allowed_logits = nullptr;  // as many as `allowed`
  // changed in place by edits
  float* logits = nullptr;  // [num_rows, vocab]
  int64_t stride = 0;       // elements between rows
  // output
  int32_t* tokens = nullptr;  // [num_rows]
};

inline constexpr int kMaxSamplingVocab = 1 << 18;
inline constexpr int kMaxSamplingThreads = 512;

// A refusal is kept in the stream.
void LaunchSampling(Stream& stream, const SamplingLaunch& launch);

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_SAMPLING_H_
