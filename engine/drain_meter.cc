#include "engine/drain_meter.h"

#include <algorithm>

namespace refrain::engine {
namespace {

int64_t Milliseconds(DrainMeter::TimePoint time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
}

}  // namespace

void DrainMeter::Begin(TimePoint now) { begin_ms_ = Milliseconds(now); }

void DrainMeter::Add(TimePoint now, int64_t amount) {
  const int64_t now_ms = Milliseconds(now);
  if (begin_ms_ < 0) begin_ms_ = now_ms;
  const int64_t number = now_ms / kBucketMs;
  Bucket& bucket = buckets_[static_cast<size_t>(number) % kBuckets];
  if (bucket.number != number) bucket = {.number = number, .amount = 0};
  bucket.amount += amount;
}

int64_t DrainMeter::AmountSince(int64_t begin_ms) const {
  int64_t amount = 0;
  for (const Bucket& bucket : buckets_) {
    if ((bucket.number + 1) * kBucketMs > begin_ms) amount += bucket.amount;
  }
  return amount;
}

double DrainMeter::SecondsFor(TimePoint now, int64_t amount) const {
  const int64_t now_ms = Milliseconds(now);
  const double window_s = static_cast<double>(kWindow.count());
  const int64_t window_begin_ms =
      (now_ms / kBucketMs - static_cast<int64_t>(kBuckets) + 1) * kBucketMs;
  int64_t begin_ms = std::max(window_begin_ms, begin_ms_);
  int64_t left = AmountSince(begin_ms);
  // Too short to say something: what left before there was nothing more counts, too.
  const int64_t all = AmountSince(window_begin_ms);
  if (left <= 0 || (now_ms - begin_ms < kBucketMs && all > left)) {
    begin_ms = window_begin_ms;
    left = all;
  }
  if (left <= 0) begin_ms = begin_ms_ < 0 ? now_ms : begin_ms_;
  // A second is the least that says something.
  const double seen_s = static_cast<double>(now_ms - begin_ms) / 1000.0;
  return static_cast<double>(amount) * std::clamp(seen_s, 1.0, window_s) /
         static_cast<double>(std::max<int64_t>(left, 1));
}

}  // namespace refrain::engine
