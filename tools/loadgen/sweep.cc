#include "tools/loadgen/sweep.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace refrain::loadgen {

absl::StatusOr<SweepOptions> ParseSweep(std::string_view text) {
  const auto refuse = [text] {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot use \"", std::string(text),
        "\"; valid: rates with commas between (at least two), START, or START:FACTOR (above 1)"));
  };
  const auto rate = [](const std::string& part, double* value) {
    return absl::SimpleAtod(part, value) && *value > 0 && std::isfinite(*value);
  };
  SweepOptions options;
  const std::string all(text);
  if (text.find(',') != std::string_view::npos) {
    for (const std::string& part : std::vector<std::string>(absl::StrSplit(all, ','))) {
      if (!rate(part, &options.rates.emplace_back())) return refuse();
    }
    return options;
  }
  const size_t colon = all.find(':');
  if (!rate(all.substr(0, colon), &options.start)) return refuse();
  if (colon != std::string::npos &&
      (!rate(all.substr(colon + 1), &options.factor) || options.factor <= 1)) {
    return refuse();
  }
  return options;
}

Sweep::Sweep(SweepOptions options) : options_(std::move(options)) {}

std::optional<double> Sweep::Next() const {
  if (!options_.rates.empty()) {
    if (tried_ == options_.rates.size()) return std::nullopt;
    return options_.rates[tried_];
  }
  if (!held_.has_value() && !broken_.has_value()) return options_.start;
  if (!broken_.has_value()) {
    const double next = *held_ * options_.factor;
    return next > options_.most ? std::nullopt : std::optional(next);
  }
  if (!held_.has_value()) {
    // Even the first was too much: go down, but not for ever.
    const double next = *broken_ / options_.factor;
    return next < options_.start / 1000 ? std::nullopt : std::optional(next);
  }
  if (*broken_ / *held_ <= 1 + options_.precision) return std::nullopt;
  return std::sqrt(*held_ * *broken_);
}

void Sweep::Report(double rate, bool held) {
  ++tried_;
  if (held) {
    held_rates_.push_back(rate);
    if (!broken_.has_value() || rate < *broken_) held_ = std::max(held_.value_or(rate), rate);
  } else {
    broken_ = std::min(broken_.value_or(rate), rate);
    held_ = highest_held();
  }
}

std::optional<double> Sweep::highest_held() const {
  std::optional<double> highest;
  for (const double rate : held_rates_) {
    if (!broken_.has_value() || rate < *broken_) highest = std::max(highest.value_or(rate), rate);
  }
  return highest;
}

}  // namespace refrain::loadgen
