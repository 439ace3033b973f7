#ifndef REFRAIN_ENGINE_DRAIN_METER_H_
#define REFRAIN_ENGINE_DRAIN_METER_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace refrain::engine {

// How fast something has been leaving lately: an amount (requests, tokens) summed over the last
// kWindow, or since there was something to leave. Time comes from the caller. One thread at a time;
// cannot fail.
class DrainMeter {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::seconds kWindow{16};

  // From now on there is something to leave; before, there was nothing, which is no slowness.
  void Begin(TimePoint now);
  void Add(TimePoint now, int64_t amount);

  // Seconds until `amount` will have left at the rate of the window. Where nothing has left in it:
  // as long for one as there has been something to leave, a second at least, at most the window.
  double SecondsFor(TimePoint now, int64_t amount) const;

 private:
  static constexpr int64_t kBucketMs = 1000;
  static constexpr size_t kBuckets = 16;

  struct Bucket {
    int64_t number = -1;  // time / kBucketMs
    int64_t amount = 0;
  };
  // What left in the buckets that reach beyond `begin_ms`.
  int64_t AmountSince(int64_t begin_ms) const;

  std::array<Bucket, kBuckets> buckets_{};  // by number modulo
  int64_t begin_ms_ = -1;                   // of the last Begin, else of the first Add
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_DRAIN_METER_H_
