#include "kernels/cuda/attention_shares.h"

#include <algorithm>

namespace refrain::kernels::cuda {
namespace {

// Beyond the fewest: with so many, shares come out even for nearly any number of heads.
constexpr int kMoreRounds = 3;
// Shares more are partial states and counters more, which no cost stands for: they are to save so
// much of the time.
constexpr double kWorthIt = 0.04;

}  // namespace

int NumShares(const ShareCosts& costs, int num_head_blocks, int num_blocks) {
  const int64_t most = std::max<int64_t>(1, costs.total / costs.least);
  const int fewest = (num_head_blocks + num_blocks - 1) / num_blocks;
  int64_t best = 0;
  double best_time = 0;
  for (int rounds = fewest; rounds <= fewest + kMoreRounds; ++rounds) {
    const int64_t shares = std::min<int64_t>(most, int64_t{rounds} * num_blocks / num_head_blocks);
    const auto all = static_cast<double>(costs.total + (shares - 1) * costs.cut);
    const double time = rounds * all / static_cast<double>(shares);
    if (best > 0 && time > (1 - kWorthIt) * best_time) continue;
    best = shares;
    best_time = time;
  }
  return static_cast<int>(best);
}

}  // namespace refrain::kernels::cuda
