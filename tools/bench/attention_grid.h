#ifndef REFRAIN_TOOLS_BENCH_ATTENTION_GRID_H_
#define REFRAIN_TOOLS_BENCH_ATTENTION_GRID_H_

#include <span>
#include <string>

#include "tools/bench/attention_contest.h"
#include "tools/bench/attention_report.h"

namespace refrain::bench {

struct GridOptions {
  std::span<const AttentionModel> models;
  std::span<const kernels::DType> kv_types;
  std::span<const int> prompts;
  std::string filter;  // only tables whose title contains it
  bool reproducible = false;
  int pairs = 20;               // rounds where nothing is shared
  double pool_bytes_max = 7e9;  // methods that need more for their K and V are left out
};

// ChunkAttention's table 3: 32 sequences, prompts of n_p tokens of which the first n_s are shared.
// Prints a table per model and KV type, every ratio beside the one that the ceilings allow, and
// judges its goals (attention_goals.h).
void RunAttentionGrid(AttentionContest& contest, const GridOptions& options,
                      AttentionReport& report);

// Its figures 3 and 4: token rate over the number of completion tokens, and over the batch size.
void RunCompletionCurve(AttentionContest& contest, const GridOptions& options,
                        AttentionReport& report);
void RunBatchCurve(AttentionContest& contest, const GridOptions& options, AttentionReport& report);

}  // namespace refrain::bench

#endif  // REFRAIN_TOOLS_BENCH_ATTENTION_GRID_H_
