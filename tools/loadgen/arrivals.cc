#include "tools/loadgen/arrivals.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace refrain::loadgen {
namespace {

// In (0, 1], of all 53 bits that a double has.
double UniformAboveZero(std::mt19937_64& random) {
  return (static_cast<double>(random() >> 11) + 1) * 0x1.0p-53;
}

}  // namespace

absl::StatusOr<Arrivals> Arrivals::Make(const ArrivalOptions& options) {
  if (!(options.rate_per_s > 0) || !std::isfinite(options.rate_per_s)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a rate of ", options.rate_per_s, " requests/s: must be above 0"));
  }
  if (!(options.burstiness > 0) || !std::isfinite(options.burstiness)) {
    return absl::InvalidArgumentError(
        absl::StrCat("burstiness of ", options.burstiness, ": must be above 0"));
  }
  return Arrivals(options);
}

Arrivals::Arrivals(const ArrivalOptions& options)
    : options_(options),
      random_(options.seed),
      gamma_(options.burstiness, 1 / (options.burstiness * options.rate_per_s)) {}

double Arrivals::NextGap() {
  switch (options_.law) {
    case ArrivalLaw::kPoisson:
      return -std::log(UniformAboveZero(random_)) / options_.rate_per_s;
    case ArrivalLaw::kGamma:
      return gamma_(random_);
    case ArrivalLaw::kConstant:
      return 1 / options_.rate_per_s;
  }
  return 0;
}

double Arrivals::Next() { return now_s_ += NextGap(); }

}  // namespace refrain::loadgen
