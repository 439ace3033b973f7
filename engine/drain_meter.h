#ifndef REFRAIN_ENGINE_DRAIN_METER_H_
#define REFRAIN_ENGINE_DRAIN_METER_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace refrain::engine {

// How fast something has been leaving lately: an amount (requests, tokens) summed over the last
// kWindow, or since the first of it left in that time. Time comes from the caller. One thread at a
// time; cannot fail.
class DrainMeter {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::seconds kWindow{16};

  void Add(TimePoint now, int64_t amount);

  // Seconds until `amount` will have left at the rate of the window; the window's length times
  // `amount` when nothing has left in it.
  double SecondsFor(TimePoint now, int64_t amount) const;

 private:
  static constexpr int64_t kBucketMs = 1000;
  static constexpr size_t kBuckets = 16;

  struct Bucket {
    int64_t number = -1;  // time / kBucketMs
    int64_t amount = 0;
  };
  std::array<Bucket, kBuckets> buckets_{};  // by number modulo
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_DRAIN_METER_H_
