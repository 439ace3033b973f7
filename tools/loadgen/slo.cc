#include "tools/loadgen/slo.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace refrain::loadgen {
namespace {

constexpr std::array<const char*, 4> kStatisticNames = {"mean", "p50", "p90", "p99"};

}  // namespace

absl::StatusOr<std::vector<SloLimit>> ParseSloLimits(std::string_view text) {
  std::vector<SloLimit> limits;
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(std::string(text), ','))) {
    const size_t colon = part.find(':');
    const std::string name = part.substr(0, colon);
    const auto found = std::find(kMetricNames.begin(), kMetricNames.end(), name);
    double most_ms = 0;
    if (colon == std::string::npos || found == kMetricNames.end() ||
        !absl::SimpleAtod(part.substr(colon + 1), &most_ms) || !(most_ms > 0)) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot use \"", part,
                       "\"; valid: METRIC:MILLISECONDS, METRIC one of ttft, "
                       "tpot, e2e, normalized, several with commas between"));
    }
    limits.push_back({static_cast<Metric>(found - kMetricNames.begin()), most_ms});
  }
  return limits;
}

absl::StatusOr<Statistic> ParseStatistic(std::string_view text) {
  const auto found = std::find(kStatisticNames.begin(), kStatisticNames.end(), text);
  if (found == kStatisticNames.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot use \"", std::string(text), "\"; valid: mean, p50, p90, p99"));
  }
  return static_cast<Statistic>(found - kStatisticNames.begin());
}

const char* StatisticName(Statistic statistic) {
  return kStatisticNames[static_cast<size_t>(statistic)];
}

bool IsGood(const Slo& slo, const MetricValues& request) {
  return std::all_of(slo.limits.begin(), slo.limits.end(), [&](const SloLimit& limit) {
    return request[static_cast<size_t>(limit.metric)] <= limit.most_ms;
  });
}

double ValueOf(const Summary& summary, Statistic statistic) {
  switch (statistic) {
    case Statistic::kMean:
      return summary.mean;
    case Statistic::kP50:
      return summary.p50;
    case Statistic::kP90:
      return summary.p90;
    case Statistic::kP99:
      return summary.p99;
  }
  return summary.max;
}

std::vector<std::string> BrokenLimits(const Slo& slo,
                                      const std::array<Summary, kMetrics>& summaries,
                                      double failed_share) {
  std::vector<std::string> broken;
  const bool answered = std::any_of(summaries.begin(), summaries.end(),
                                    [](const Summary& summary) { return summary.count > 0; });
  for (const SloLimit& limit : slo.limits) {
    const auto metric = static_cast<size_t>(limit.metric);
    if (answered && summaries[metric].count == 0) {
      // Its statistic is 0, as if it had cost nothing.
      broken.push_back(absl::StrFormat("no %s was measured", kMetricNames[metric]));
      continue;
    }
    const double value = ValueOf(summaries[metric], slo.statistic);
    if (value <= limit.most_ms) continue;
    broken.push_back(absl::StrFormat("%s %s is %.1f ms, over %g ms", StatisticName(slo.statistic),
                                     kMetricNames[metric], value, limit.most_ms));
  }
  if (failed_share > slo.most_failed_share) {
    broken.push_back(absl::StrFormat("%.2f %% of the requests failed, over %g %%",
                                     100 * failed_share, 100 * slo.most_failed_share));
  }
  // Where all may fail: of nothing answered every statistic is zero.
  if (broken.empty() && failed_share == 1) broken.emplace_back("no request succeeded");
  return broken;
}

}  // namespace refrain::loadgen
