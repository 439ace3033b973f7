#ifndef REFRAIN_SERVER_METRICS_HISTOGRAM_H_
#define REFRAIN_SERVER_METRICS_HISTOGRAM_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>

namespace refrain::server::metrics {

// Counts values by the first bound that is not below them. Any thread may observe and read, without
// locks and without memory from the heap: prometheus-cpp's own histogram takes a mutex, which the
// engine thread must not wait for. A reader may see a value's count before its sum.
class Histogram {
 public:
  static constexpr size_t kMostBounds = 32;

  // `bounds` ascend and outlive the histogram.
  explicit Histogram(std::span<const double> bounds) : bounds_(bounds) {
    assert(bounds.size() <= kMostBounds);
  }

  void Observe(double value) {
    const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
    counts_[static_cast<size_t>(bucket)].fetch_add(1, std::memory_order_relaxed);
    sum_.fetch_add(value, std::memory_order_relaxed);
  }

  std::span<const double> bounds() const { return bounds_; }
  // Of bucket i; the last one, after the bounds, has no upper end.
  uint64_t count(size_t i) const { return counts_[i].load(std::memory_order_relaxed); }
  double sum() const { return sum_.load(std::memory_order_relaxed); }

 private:
  const std::span<const double> bounds_;
  std::array<std::atomic<uint64_t>, kMostBounds + 1> counts_ = {};
  std::atomic<double> sum_{0};
};

}  // namespace refrain::server::metrics

#endif  // REFRAIN_SERVER_METRICS_HISTOGRAM_H_
