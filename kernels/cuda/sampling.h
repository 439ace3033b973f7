#ifndef REFRAIN_KERNELS_CUDA_SAMPLING_H_
#define REFRAIN_KERNELS_CUDA_SAMPLING_H_

#include <cstdint>

#include "kernels/sampling_args.h"

namespace refrain::kernels::cuda {

class Stream;

// Choosing tokens on the device, by the rules of kernels/sampling_args.h. Greedy rows choose the
// token that the host would; other rows keep the same tokens, each with the same probability, but
// walk them in order of id, so that the same random number may stand for another of them.
//
// One block per row. Probabilities are summed as whole numbers (in units of 2^-44), so the result
// does not depend on the order in which threads add: equal inputs choose equal tokens.

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
  float* logits = nullptr;  // [any number of rows, vocab]
  int64_t stride = 0;       // elements between rows
  // output
  int32_t* tokens = nullptr;  // [slots]
};

inline constexpr int kMaxSamplingVocab = 1 << 18;
inline constexpr int kMaxSamplingThreads = 512;

// False where a row of so many tokens cannot be looked at by so many threads, which the stream
// keeps.
bool CheckSampling(Stream& stream, int vocab, int threads);

// A refusal is kept in the stream.
void LaunchSampling(Stream& stream, const SamplingLaunch& launch);

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_SAMPLING_H_
