#ifndef REFRAIN_TOOLS_LOADGEN_ARRIVALS_H_
#define REFRAIN_TOOLS_LOADGEN_ARRIVALS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string_view>

#include "absl/status/statusor.h"

namespace refrain::loadgen {

// How the requests of an open loop are spread over time.
enum class ArrivalLaw {
  kPoisson,  // exponential gaps
  kGamma,    // gamma gaps of shape `burstiness`: below 1 in bursts, above 1 more even, 1 is Poisson
  kConstant,  // equal gaps
};

struct ArrivalOptions {
  ArrivalLaw law = ArrivalLaw::kPoisson;
  double rate_per_s = 1;
  double burstiness = 1;  // of kGamma
  uint64_t seed = 1;
};

// The planned times of arrival of an open loop, one after another; the same seed gives the same
// times. It knows no clock: who sends compares them to one. One thread.
class Arrivals {
 public:
  // INVALID_ARGUMENT unless rate and burstiness are above 0 and finite.
  static absl::StatusOr<Arrivals> Make(const ArrivalOptions& options);

  // Seconds from the beginning to the next arrival; never falls. The first one comes after a gap,
  // as all others.
  double Next();

 private:
  explicit Arrivals(const ArrivalOptions& options);
  double NextGap();

  ArrivalOptions options_;
  std::mt19937_64 random_;
  std::gamma_distribution<double> gamma_;
  double now_s_ = 0;
};

}  // namespace refrain::loadgen

#endif  // REFRAIN_TOOLS_LOADGEN_ARRIVALS_H_
