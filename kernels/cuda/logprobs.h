#ifndef REFRAIN_KERNELS_CUDA_LOGPROBS_H_
#define REFRAIN_KERNELS_CUDA_LOGPROBS_H_

#include <cstdint>

#include "kernels/sampling_args.h"

namespace refrain::kernels::cuda {

class Stream;

// Log-probabilities on the device: log(softmax(logits)) of one token of a row, its rank, and those
// of the row's most probable tokens. One block per row. The probabilities are summed as sampling
// sums them (sampling.h), so equal inputs give equal bits; against double precision a
// log-probability is off by a rounding to f32 and 8e-7 (distances from the best are rounded to
// f32).

// Every pointer is memory that the device can reach.
struct LogprobsLaunch {
  // sizes
  int num_rows = 0;
  int vocab = 0;      // at most kMaxSamplingVocab
  int threads = 512;  // per row: whole warps, at most kMaxSamplingThreads
  // inputs
  const LogprobsRow* rows = nullptr;  // [num_rows]
  const float* logits = nullptr;      // [any number of rows, vocab]
  int64_t stride = 0;                 // elements between rows
  const int32_t* sampled = nullptr;   // [slots], for rows that ask for the sampled token
  // output
  LogprobEntry* entries = nullptr;  // of all rows
};

// A refusal is kept in the stream.
void LaunchLogprobs(Stream& stream, const LogprobsLaunch& launch);

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_LOGPROBS_H_
