#ifndef REFRAIN_TOOLS_LOADGEN_SWEEP_H_
#define REFRAIN_TOOLS_LOADGEN_SWEEP_H_

#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace refrain::loadgen {

// Far above what doubles can tell apart: a search ends.
inline constexpr double kFinestPrecision = 1e-6;

struct SweepOptions {
  std::vector<double> rates;  // tried one after another, all of them; empty: searched for
  // Searching: from `start` up by `factor` until a rate is not held, then between the two until
  // they are `precision` apart (a share of the lower one).
  double start = 1;
  double factor = 2;
  double precision = 0.1;  // kFinestPrecision at least
  double most = 1e6;
};

// "1,2,4" lists rates; "START" or "START:FACTOR" searches. INVALID_ARGUMENT says what is valid.
absl::StatusOr<SweepOptions> ParseSweep(std::string_view text);

// Which rates a sweep tries, given what came of those before. Pure: no clock, no requests.
class Sweep {
 public:
  explicit Sweep(SweepOptions options);

  // The rate to try; nothing when it is over. Asked again only after Report.
  std::optional<double> Next() const;
  void Report(double rate, bool held);

  // The highest rate that was held with no lower one broken; nothing: none was.
  std::optional<double> highest_held() const;
  // The lowest rate that was not held; nothing: all tried were.
  std::optional<double> lowest_broken() const { return broken_; }

 private:
  const SweepOptions options_;
  size_t tried_ = 0;
  std::vector<double> held_rates_;
  std::optional<double> held_;    // the highest
  std::optional<double> broken_;  // the lowest
};

}  // namespace refrain::loadgen

#endif  // REFRAIN_TOOLS_LOADGEN_SWEEP_H_
