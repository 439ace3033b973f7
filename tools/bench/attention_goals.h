#ifndef REFRAIN_TOOLS_BENCH_ATTENTION_GOALS_H_
#define REFRAIN_TOOLS_BENCH_ATTENTION_GOALS_H_

#include <string>
#include <vector>

#include "tools/bench/attention_contest.h"

namespace refrain::bench {

enum class Verdict { kReached, kMissed, kNotJudged };

struct Goal {
  std::string measured;  // with what it is held to, or why it is not judged
  Verdict verdict;
};

// "MEASURED: reached", the goals of a case one behind the other; "-" where it has none.
std::string ToText(const std::vector<Goal>& goals);

// What a case of the grid is to reach (issue 4), by ceilings of the same rounds. Nothing shared:
// paged reaches its ceiling, and two_phase is no loss against it. Everything shared: two_phase
// reaches its bound; where as many query as KV heads share 4,096 keys, it is many times as fast as
// paged.
std::vector<Goal> JudgeGoals(const ContestResult& result, const AttentionModel& model,
                             kernels::DType kv, const BatchShape& shape);

}  // namespace refrain::bench

#endif  // REFRAIN_TOOLS_BENCH_ATTENTION_GOALS_H_
