#include "engine/retry_after.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace refrain::engine {
namespace {

constexpr char kPayload[] = "refrain/retry_after_s";

}  // namespace

absl::Status WithRetryAfter(absl::Status status, double seconds) {
  // Not a number bounds to the maximum.
  const double bounded = seconds < kMaxRetryAfterS ? std::max(1.0, std::ceil(seconds))
                                                   : static_cast<double>(kMaxRetryAfterS);
  status.SetPayload(kPayload, absl::Cord(absl::StrCat(static_cast<int>(bounded))));
  return status;
}

std::optional<int> RetryAfterOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kPayload);
  int seconds = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &seconds)) {
    return std::nullopt;
  }
  return seconds;
}

}  // namespace refrain::engine
