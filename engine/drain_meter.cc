#include "engine/drain_meter.h"

#include <algorithm>

namespace refrain::engine {
namespace {

int64_t Milliseconds(DrainMeter::TimePoint time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
}

}  // namespace

void DrainMeter::Add(TimePoint now, int64_t amount) {
  const int64_t now_ms = Milliseconds(now);
  const int64_t number = now_ms / kBucketMs;
  Bucket& bucket = buckets_[static_cast<size_t>(number) % kBuckets];
  if (bucket.number != number) bucket = {.number = number, .amount = 0};
  bucket.amount += amount;
}

double DrainMeter::SecondsFor(TimePoint now, int64_t amount) const {
  const int64_t now_ms = Milliseconds(now);
  const int64_t oldest = now_ms / kBucketMs - static_cast<int64_t>(kBuckets) + 1;
  int64_t left = 0;
  int64_t begin_ms = now_ms;
  for (const Bucket& bucket : buckets_) {
    if (bucket.number < oldest || bucket.amount == 0) continue;
    left += bucket.amount;
    begin_ms = std::min(begin_ms, bucket.number * kBucketMs);
  }
  const double window_s = static_cast<double>(kWindow.count());
  if (left <= 0) return window_s * static_cast<double>(amount);
  // Since something left first: before that there may have been nothing to leave. A second is the
  // least.
  const double seen_s = static_cast<double>(now_ms - begin_ms) / 1000.0;
  return static_cast<double>(amount) * std::clamp(seen_s, 1.0, window_s) /
         static_cast<double>(left);
}

}  // namespace refrain::engine
