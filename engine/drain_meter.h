#ifndef REFRAIN_ENGINE_DRAIN_METER_H_
#define REFRAIN_ENGINE_DRAIN_METER_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace refrain::engine {

// How fast something leaves while there is something to leave: an amount (requests, tokens) summed
// over the last kWindow, or since there was something. Time comes from the caller. One thread at a
// time; cannot fail.
class DrainMeter {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::seconds kWindow{16};

  // From now on there is something to leave; before, there was nothing, which is no slowness.
  void Begin(TimePoint now);
  void Add(TimePoint now, int64_t amount);

  // Seconds until `amount` will have left at the rate of the window. Where that is too short or
  // nothing has left in it, at the rate of the time before, however long ago that was, or the one
  // of now if that is seen to be higher; where neither is known, or it has taken longer now: as
  // long for one as there has been something to leave. What leaves in the first tenth of a second
  // takes free places, and makes no rate of a time that is too short.
  double SecondsFor(TimePoint now, int64_t amount) const;

 private:
  static constexpr int64_t kBucketMs = 1000;
  static constexpr size_t kBuckets = 16;

  struct Bucket {
    int64_t number = -1;  // time / kBucketMs
    int64_t amount = 0;
  };
  // What the rate is told from at `now_ms`.
  struct Seen {
    double seconds = 0;
    double amount = 0;
  };
  Seen SeenAt(int64_t now_ms) const;
  // Per second, at least, up to `now_ms` within the first second.
  double RateOfBeginning(int64_t now_ms) const;

  std::array<Bucket, kBuckets> buckets_{};  // by number modulo
  int64_t begin_ms_ = -1;                   // of the last Begin, else of the first Add
  int64_t since_begin_ = 0;
  int64_t at_once_ms_ = -1;    // when the last one left that left at once; else begin_ms_
  int64_t since_at_once_ = 0;  // of since_begin_, all that did not
  int64_t last_ms_ = -1;       // when something left
  double former_rate_ = 0;     // per second, before begin_ms_; 0: unknown
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_DRAIN_METER_H_
