#include "engine/own_sampling.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "engine/request_checks.h"

namespace refrain::engine {

SamplingParams OwnSampling(const WeightSource& source, std::string* warning) {
  SamplingParams sampling;
  const auto leave_out = [&](const absl::Status& status) {
    absl::StrAppend(warning, warning->empty() ? "" : "; ",
                    "not used of what the model says of sampling: ", std::string(status.message()));
  };
  const absl::StatusOr<SamplingDefaults> own = source.ReadSamplingDefaults();
  if (!own.ok()) {
    leave_out(own.status());
    return sampling;
  }
  const auto take = [&](const std::optional<double>& value, double SamplingParams::*member) {
    if (!value.has_value()) return;
    const double otherwise = sampling.*member;
    sampling.*member = *value;
    const absl::Status status = CheckSampling(sampling);
    if (status.ok()) return;
    leave_out(status);
    sampling.*member = otherwise;
  };
  take(own->temperature, &SamplingParams::temperature);
  take(own->top_p, &SamplingParams::top_p);
  take(own->min_p, &SamplingParams::min_p);
  take(own->repetition_penalty, &SamplingParams::repetition_penalty);
  // vLLM leaves out these two. Who published the model asks for them.
  take(own->presence_penalty, &SamplingParams::presence_penalty);
  take(own->frequency_penalty, &SamplingParams::frequency_penalty);
  // Below 1 all tokens count, and so they do by more than there can be.
  constexpr double kMost = std::numeric_limits<int32_t>::max();
  const double top_k = std::trunc(own->top_k.value_or(0));
  sampling.top_k = top_k >= 1 && top_k <= kMost ? static_cast<int32_t>(top_k) : 0;
  return sampling;
}

}  // namespace refrain::engine
