#ifndef REFRAIN_TOOLS_LOADGEN_SLO_H_
#define REFRAIN_TOOLS_LOADGEN_SLO_H_

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/loadgen/samples.h"

namespace refrain::loadgen {

// What is measured of each request that was answered, in milliseconds. All count from the planned
// arrival, not from when the request could be sent.
enum class Metric {
  kTtft,        // to the first token
  kTpot,        // per token after the first one
  kE2e,         // to the end of the answer
  kNormalized,  // kE2e per token of the answer
};
inline constexpr int kMetrics = 4;
inline constexpr std::array<const char*, kMetrics> kMetricNames = {"ttft", "tpot", "e2e",
                                                                   "normalized"};

using MetricValues = std::array<double, kMetrics>;  // by Metric, ms

// Which number of a distribution a limit is for.
enum class Statistic { kMean, kP50, kP90, kP99 };

struct SloLimit {
  Metric metric = Metric::kE2e;
  double most_ms = 0;
};

// What a user may expect. A request is good when it stays within all limits; a load is held when
// `statistic` of each metric stays within its limit and no more than `most_failed_share` failed.
struct Slo {
  std::vector<SloLimit> limits;
  Statistic statistic = Statistic::kP99;
  double most_failed_share = 0;
};

// "normalized:200,ttft:1000": names of Metric and milliseconds. INVALID_ARGUMENT names the part
// that cannot be used and what is valid.
absl::StatusOr<std::vector<SloLimit>> ParseSloLimits(std::string_view text);
absl::StatusOr<Statistic> ParseStatistic(std::string_view text);
const char* StatisticName(Statistic statistic);

bool IsGood(const Slo& slo, const MetricValues& request);
double ValueOf(const Summary& summary, Statistic statistic);

// The limits that a load breaks, in words; none: it is held. One whose metric no answer has, as
// TPOT of answers of one token, is broken: nothing shows that it was kept.
std::vector<std::string> BrokenLimits(const Slo& slo,
                                      const std::array<Summary, kMetrics>& summaries,
                                      double failed_share);

}  // namespace refrain::loadgen

#endif  // REFRAIN_TOOLS_LOADGEN_SLO_H_
