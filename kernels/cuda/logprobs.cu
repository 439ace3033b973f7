#include "kernels/cuda/logprobs.h"

#include <cmath>

#include "kernels/cuda/device_language.h"
#include "kernels/cuda/logits_row.h"

namespace refrain::kernels::cuda {
namespace {

constexpr uint32_t kInfiniteMagnitude = 0x7f800000u;

// A NaN is nobody's best.
__device__ __forceinline__ float OrLeast(float logit) {
  return logit > -INFINITY ? logit : -INFINITY;
}

// log(sum(exp(logits))); NaN where the best is infinite.
__device__ double LogOfSum(LogitsShared& shared, const RowView& row) {
  const Mass total = SumOfWeights(shared, row.vocab, [&](int i) -> Mass {
    uint32_t magnitude;
    return row.Candidate(row.logits[i], magnitude) ? MassOf(magnitude) : 0;
  });
  return row.best + log(static_cast<double>(total) / kMassOfOne);
}

// How many tokens are more probable than this one, of equal ones those with lower ids.
__device__ int CountBetter(LogitsShared& shared, const float* logits, int vocab, int token) {
  const float own = OrLeast(logits[token]);
  const Mass better = SumOfWeights(shared, vocab, [&](int i) -> Mass {
    const float logit = OrLeast(logits[i]);
    return logit > own || (logit == own && i < token) ? 1 : 0;
  });
  return static_cast<int>(better);
}

__device__ void ListBest(LogitsShared& shared, RowView row, double log_of_sum, int count,
                         LogprobEntry* entries) {
  row.least = -INFINITY;
  Cut cut;
  cut.magnitude = kInfiniteMagnitude;
  if (count < row.vocab) {
    cut = Narrow(shared, row, cut, CountOne(), [=](Mass) { return static_cast<Mass>(count); });
  }
  if (threadIdx.x == 0) shared.found = 0;
  __syncthreads();
  ForEachLogit(row.logits, row.vocab, [&](int i, float logit) {
    uint32_t magnitude;
    if (!row.Inside(i, logit, cut, magnitude)) return;
    entries[atomicAdd(&shared.found, 1)] = {i, 0, logit, static_cast<float>(logit - log_of_sum)};
  });
  __syncthreads();
  // What is no number is not listed.
  for (int i = shared.found + static_cast<int>(threadIdx.x); i < count;
       i += static_cast<int>(blockDim.x)) {
    entries[i] = {-1, 0, 0.0f, 0.0f};
  }
}

__global__ void __launch_bounds__(kMaxSamplingThreads) RowLogprobs(LogprobsLaunch launch) {
  LogitsShared& shared = *SharedMemory<LogitsShared>();
  const LogprobsRow row = launch.rows[blockIdx.x];
  const float* logits = launch.logits + row.logits_row * launch.stride;
  LogprobEntry* entries = launch.entries + row.entry_begin;
  int most_probable;
  const float best = FindBest(shared, logits, launch.vocab, most_probable);
  const RowView view = {logits, launch.vocab, best, 1.0f, kLeastScaledLogit};
  const double log_of_sum = LogOfSum(shared, view);
  const int token = row.token == LogprobsRow::kSampled        ? launch.sampled[row.slot]
                    : row.token == LogprobsRow::kMostProbable ? most_probable
                                                              : row.token;
  int better = 0;
  float logit = 0.0f;
  if (token >= 0) {
    better = CountBetter(shared, logits, launch.vocab, token);
    logit = OrLeast(logits[token]);
  }
  if (threadIdx.x == 0) {
    entries[0] = {token, better + 1, logit, static_cast<float>(logit - log_of_sum)};
  }
  // Of an infinite best the others have no distance.
  const int top = row.top;
  if (top > 0 && most_probable >= 0) {
    ListBest(shared, view, log_of_sum, top, entries + 1);
  } else {
    for (int i = threadIdx.x; i < top; i += blockDim.x) entries[1 + i] = {-1, 0, 0.0f, 0.0f};
  }
}

}  // namespace

void LaunchLogprobs(Stream& stream, const LogprobsLaunch& launch) {
  if (launch.num_rows == 0 || !FitsSampling(stream, launch.vocab, launch.threads)) return;
  Launch(stream, {dim3(launch.num_rows), dim3(launch.threads), sizeof(LogitsShared), "RowLogprobs"},
         RowLogprobs, launch);
}

}  // namespace refrain::kernels::cuda
