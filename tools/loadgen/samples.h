#ifndef REFRAIN_TOOLS_LOADGEN_SAMPLES_H_
#define REFRAIN_TOOLS_LOADGEN_SAMPLES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace refrain::loadgen {

// What a report says of a quantity. All 0 when nothing was measured.
struct Summary {
  int64_t count = 0;
  double mean = 0;
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
  double max = 0;
};

// Every value of a quantity that is measured once per request: exact. A percentile is
// interpolated between the two values around it, as numpy does by default. One thread.
class Samples {
 public:
  void Add(double value) { values_.push_back(value); }
  size_t size() const { return values_.size(); }
  Summary Summarize() const;

 private:
  std::vector<double> values_;
};

// Counts of a quantity that is measured once per token, in memory that does not grow: buckets
// whose width is 1/128 of their lower border (below 128 units: one unit), so that a percentile is
// off by less than 0.4 %. Mean and maximum are exact. One thread.
class Histogram {
 public:
  // The smallest difference it can see, in the unit of the values.
  explicit Histogram(double unit);

  // Negative values count as 0, those beyond 2^40 units as that.
  void Add(double value);
  // The value below which `share` of all values lie: the middle of the bucket.
  double Percentile(double share) const;
  Summary Summarize() const;

 private:
  double unit_;
  int64_t count_ = 0;
  double sum_ = 0;
  double max_ = 0;
  std::vector<int64_t> buckets_;
};

}  // namespace refrain::loadgen

#endif  // REFRAIN_TOOLS_LOADGEN_SAMPLES_H_
