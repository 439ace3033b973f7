#include "tools/loadgen/samples.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace refrain::loadgen {
namespace {

// Sub-buckets of each power of two.
constexpr int kSubBits = 7;
constexpr uint64_t kSub = uint64_t{1} << kSubBits;
constexpr uint64_t kMostUnits = uint64_t{1} << 40;

size_t BucketOf(uint64_t units) {
  if (units < kSub) return units;
  const int shift = std::bit_width(units) - 1 - kSubBits;
  return static_cast<size_t>(shift) * kSub + (units >> shift);
}

// The middle of a bucket.
double UnitsOf(size_t bucket) {
  if (bucket < kSub) return static_cast<double>(bucket);
  const size_t shift = bucket / kSub - 1;
  const uint64_t lower = (bucket - shift * kSub) << shift;
  return static_cast<double>(lower) + (std::ldexp(1.0, static_cast<int>(shift)) - 1) / 2;
}

double Interpolated(const std::vector<double>& sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto lower = static_cast<size_t>(at);
  const size_t upper = std::min(lower + 1, sorted.size() - 1);
  return sorted[lower] + (at - static_cast<double>(lower)) * (sorted[upper] - sorted[lower]);
}

}  // namespace

Summary Samples::Summarize() const {
  if (values_.empty()) return {};
  std::vector<double> sorted = values_;
  std::sort(sorted.begin(), sorted.end());
  const double sum = std::accumulate(sorted.begin(), sorted.end(), 0.0);
  return {.count = static_cast<int64_t>(sorted.size()),
          .mean = sum / static_cast<double>(sorted.size()),
          .p50 = Interpolated(sorted, 0.50),
          .p90 = Interpolated(sorted, 0.90),
          .p99 = Interpolated(sorted, 0.99),
          .max = sorted.back()};
}

Histogram::Histogram(double unit) : unit_(unit), buckets_(BucketOf(kMostUnits) + 1) {}

void Histogram::Add(double value) {
  value = std::max(0.0, value);
  const double units = std::min(std::round(value / unit_), static_cast<double>(kMostUnits));
  ++buckets_[BucketOf(static_cast<uint64_t>(units))];
  ++count_;
  sum_ += value;
  max_ = std::max(max_, value);
}

double Histogram::Percentile(double share) const {
  if (count_ == 0) return 0;
  const auto rank = static_cast<int64_t>(std::llround(share * static_cast<double>(count_ - 1)));
  int64_t before = 0;
  for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    before += buckets_[bucket];
    if (before > rank) return std::min(UnitsOf(bucket) * unit_, max_);
  }
  return max_;
}

Summary Histogram::Summarize() const {
  if (count_ == 0) return {};
  return {.count = count_,
          .mean = sum_ / static_cast<double>(count_),
          .p50 = Percentile(0.50),
          .p90 = Percentile(0.90),
          .p99 = Percentile(0.99),
          .max = max_};
}

}  // namespace refrain::loadgen
