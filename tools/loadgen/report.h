#ifndef REFRAIN_TOOLS_LOADGEN_REPORT_H_
#define REFRAIN_TOOLS_LOADGEN_REPORT_H_

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/loadgen/recorder.h"
#include "tools/loadgen/slo.h"

namespace refrain::loadgen {

// One run of a report: what was asked, and what came of it.
struct ReportedRun {
  std::optional<double> rate_per_s;  // of an open loop
  RunResult result;
  std::map<std::string, double> server_peaks;  // gauges of /metrics by name
  std::vector<std::string> broken_limits;      // of the SLO
  bool ran_out = false;                        // of sessions, before it was to end
  bool exact_lengths = false;  // each answer was to have as many tokens as its request asked for
  absl::Status ended_early;    // not OK: this is what was measured until then
};

// Whether the load was held; nothing when the run cannot say, for it ended early or nobody came.
std::optional<bool> Held(const ReportedRun& run);

struct ReportedSweep {
  std::optional<double> highest_rate_held;
  std::optional<double> lowest_rate_broken;
};

// The table of one run, for people.
std::string RunTable(const ReportedRun& run, const Slo& slo);

// One line per run, for a sweep, and what it came to.
std::string SweepTable(const std::vector<ReportedRun>& runs, const ReportedSweep& sweep,
                       const Slo& slo);

// One run for programs; docs/load-testing.md describes the members.
nlohmann::json RunJson(const ReportedRun& run, const Slo& slo);
nlohmann::json SweepJson(const ReportedSweep& sweep);

}  // namespace refrain::loadgen

#endif  // REFRAIN_TOOLS_LOADGEN_REPORT_H_
