#include "kernels/cuda/sampling.h"

#include <cmath>
#include <string>

#include "kernels/cuda/best_tokens.h"
#include "kernels/cuda/device_language.h"
#include "kernels/cuda/logits_row.h"
#include "kernels/cuda/scaled_row.h"

namespace refrain::kernels::cuda {
namespace {

__device__ void ApplyEdits(const SamplingLaunch& launch, const SamplingRow& row, float* logits) {
  if (row.allowed_begin < row.allowed_end) {
    for (int i = row.allowed_begin + static_cast<int>(threadIdx.x); i < row.allowed_end;
         i += static_cast<int>(blockDim.x)) {
      launch.allowed_logits[i] = logits[launch.allowed[i]];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < launch.vocab; i += blockDim.x) logits[i] = -INFINITY;
    __syncthreads();
    for (int i = row.allowed_begin + static_cast<int>(threadIdx.x); i < row.allowed_end;
         i += static_cast<int>(blockDim.x)) {
      logits[launch.allowed[i]] = launch.allowed_logits[i];
    }
    __syncthreads();
  }
  for (int i = row.edit_begin + static_cast<int>(threadIdx.x); i < row.edit_end;
       i += static_cast<int>(blockDim.x)) {
    const int token = launch.edits[i].token;
    if (token < 0 || token >= launch.vocab) continue;
    if (i > row.edit_begin && launch.edits[i - 1].token == token) continue;  // another thread's
    float logit = logits[token];
    for (int j = i; j < row.edit_end && launch.edits[j].token == token; ++j) {
      const LogitEdit edit = launch.edits[j];
      // As the host does it: never fused.
      logit = __fadd_rn(logit, edit.bias);
      logit = logit > 0 ? __fdiv_rn(logit, edit.repetition_penalty)
                        : __fmul_rn(logit, edit.repetition_penalty);
      logit = __fsub_rn(logit, edit.subtracted);
      if (edit.banned != 0) logit = -INFINITY;
    }
    logits[token] = logit;
  }
  __syncthreads();
}

__device__ int Draw(LogitsShared& shared, const ScaledRow& row, const Cut& cut, double uniform) {
  const auto weight = [&](int i, float logit) -> Mass {
    uint32_t magnitude;
    return row.Candidate(logit, magnitude) && cut.Leaves(i, magnitude) ? MassOf(magnitude) : 0;
  };
  Mass own = 0;
  ForEachLogit(row.logits, row.vocab, [&](int i, float logit) { own += weight(i, logit); });
  const Mass total = BlockSum(shared, own);
  Mass target = static_cast<Mass>(uniform * static_cast<double>(total));
  if (target >= total) target = total - 1;
  return FindToken(shared, row.vocab, target, [&](int i) { return weight(i, row.logits[i]); });
}

__global__ void __launch_bounds__(kMaxSamplingThreads) SampleRows(SamplingLaunch launch) {
  LogitsShared& shared = *SharedMemory<LogitsShared>();
  const SamplingRow row = launch.rows[blockIdx.x];
  float* logits = launch.logits + row.logits_row * launch.stride;
  ApplyEdits(launch, row, logits);
  int token;
  const float best = FindBest(shared, logits, launch.vocab, token);
  const ScaledRow view = {logits, launch.vocab, best, row.inverse_temperature,
                          row.least_scaled_logit};
  uint32_t magnitude;
  // Where the best is infinite there is no candidate.
  if (row.inverse_temperature > 0 && view.Candidate(best, magnitude)) {
    Cut cut;
    if (row.top_k > 0) {
      const Mass top_k = static_cast<Mass>(row.top_k);
      cut = Narrow(shared, view, cut, CountOne(), [=](Mass) { return top_k; });
    }
    if (row.top_p < 1.0) {
      cut = Narrow(
          shared, view, cut, [](uint32_t magnitude) { return MassOf(magnitude); },
          [&](Mass total) {
            const Mass target = static_cast<Mass>(ceil(row.top_p * static_cast<double>(total)));
            return target < 1 ? Mass{1} : target > total ? total : target;
          });
    }
    token = Draw(shared, view, cut, row.uniform);
  }
  if (threadIdx.x == 0) launch.tokens[row.slot] = token;
}

}  // namespace

bool CheckSampling(Stream& stream, int vocab, int threads) {
  if (vocab <= kMaxSamplingVocab && threads % 32 == 0 && threads <= kMaxSamplingThreads) {
    return true;
  }
  stream.KeepFailure("sampling: " + std::to_string(vocab) + " tokens and " +
                     std::to_string(threads) + " threads, at most " +
                     std::to_string(kMaxSamplingVocab) + " and " +
                     std::to_string(kMaxSamplingThreads) + " in whole warps");
  return false;
}

void LaunchSampling(Stream& stream, const SamplingLaunch& launch) {
  if (launch.num_rows == 0 || !CheckSampling(stream, launch.vocab, launch.threads)) return;
  Launch(stream, {dim3(launch.num_rows), dim3(launch.threads), sizeof(LogitsShared), "SampleRows"},
         SampleRows, launch);
}

}  // namespace refrain::kernels::cuda
