#include "kernels/cuda/logprobs.h"

#include <cmath>

#include "kernels/cuda/best_tokens.h"
#include "kernels/cuda/device_language.h"
#include "kernels/cuda/logits_row.h"
#include "kernels/cuda/scaled_row.h"

namespace refrain::kernels::cuda {
namespace {

// A NaN is nobody's best.
__device__ __forceinline__ float OrLeast(float logit) {
  return logit > -INFINITY ? logit : -INFINITY;
}

// A row ordered by its logits themselves (Row of best_tokens.h).
struct LogitOrder {
  static constexpr int kKeyBits = 32;

  const float* logits;
  int vocab;

  __device__ bool Candidate(float logit, uint32_t& key) const {
    const uint32_t bits = __float_as_uint(logit + 0.0f);  // there is one zero
    key = (bits & 0x80000000u) != 0 ? bits : bits ^ 0x7fffffffu;
    return logit == logit;
  }
};

__device__ void ListBest(LogitsShared& shared, const LogitOrder& row, double log_of_sum, int count,
                         LogprobEntry* entries) {
  Cut cut;
  if (count < row.vocab) {
    cut = Narrow(shared, row, cut, CountOne(), [=](Mass) { return static_cast<Mass>(count); });
  }
  if (threadIdx.x == 0) shared.found = 0;
  __syncthreads();
  ForEachLogit(row.logits, row.vocab, [&](int i, float logit) {
    uint32_t key;
    if (!row.Candidate(logit, key) || !cut.Leaves(i, key)) return;
    entries[atomicAdd(&shared.found, 1)] = {i, 0, logit, static_cast<float>(logit - log_of_sum)};
  });
  __syncthreads();
  // What is no number is not listed.
  for (int i = shared.found + static_cast<int>(threadIdx.x); i < count;
       i += static_cast<int>(blockDim.x)) {
    entries[i] = LogprobEntry();
  }
}

__global__ void __launch_bounds__(kMaxSamplingThreads) RowLogprobs(LogprobsLaunch launch) {
  LogitsShared& shared = *SharedMemory<LogitsShared>();
  const LogprobsRow row = launch.rows[blockIdx.x];
  const float* logits = launch.logits + row.logits_row * launch.stride;
  LogprobEntry* entries = launch.entries + row.entry_begin;
  int most_probable;
  const float best = FindBest(shared, logits, launch.vocab, most_probable);
  const int token = row.token == LogprobsRow::kSampled        ? launch.sampled[row.slot]
                    : row.token == LogprobsRow::kMostProbable ? most_probable
                                                              : row.token;
  const float own = token >= 0 ? OrLeast(logits[token]) : 0.0f;
  const ScaledRow scaled = {logits, launch.vocab, best, 1.0f, kLeastScaledLogit};
  Mass mass = 0, before = 0;  // of what this thread sees; tokens that are more probable
  ForEachLogit(logits, launch.vocab, [&](int i, float logit) {
    uint32_t magnitude;
    if (scaled.Candidate(logit, magnitude)) mass += MassOf(magnitude);
    const float value = OrLeast(logit);
    if (value > own || (value == own && i < token)) ++before;
  });
  mass = BlockSum(shared, mass);
  before = BlockSum(shared, before);
  // Where the best is infinite, no logit less this is a number.
  const double log_of_sum = best + log(static_cast<double>(mass) / kMassOfOne);
  if (threadIdx.x == 0) {
    entries[0] = {token, static_cast<int32_t>(before) + 1, own,
                  static_cast<float>(own - log_of_sum)};
  }
  if (most_probable >= 0 && row.top > 0) {
    ListBest(shared, {logits, launch.vocab}, log_of_sum, row.top, entries + 1);
  } else {
    for (int i = threadIdx.x; i < row.top; i += blockDim.x) entries[1 + i] = LogprobEntry();
  }
}

}  // namespace

void LaunchLogprobs(Stream& stream, const LogprobsLaunch& launch) {
  if (launch.num_rows == 0 || !CheckSampling(stream, launch.vocab, launch.threads)) return;
  Launch(stream, {dim3(launch.num_rows), dim3(launch.threads), sizeof(LogitsShared), "RowLogprobs"},
         RowLogprobs, launch);
}

}  // namespace refrain::kernels::cuda
