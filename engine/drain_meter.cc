#include "engine/drain_meter.h"

#include <algorithm>

namespace refrain::engine {
namespace {

// Less says little of a rate that is not seen to be high.
constexpr double kLeastSeconds = 1;
// What leaves so soon took places that were free, and says nothing of how fast others become so.
// Nor is the time between two that leave later any shorter.
constexpr double kAtOnceSeconds = 0.1;
// Of the clock as it is read here: what has only just come takes some time, too.
constexpr double kResolutionSeconds = 0.001;

int64_t Milliseconds(DrainMeter::TimePoint time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
}

double Seconds(int64_t milliseconds) { return static_cast<double>(milliseconds) / 1000.0; }

}  // namespace

void DrainMeter::Begin(TimePoint now) {
  // What ends here lasted until the last one left; what follows was idle.
  const Seen former = SeenAt(last_ms_);
  if (former.seconds >= kLeastSeconds) {
    former_rate_ = former.amount / former.seconds;
  } else if (since_at_once_ > 0 || former_rate_ > 0) {
    // Where all left at once it is only known to be no slower.
    former_rate_ = std::max(former_rate_, RateOfBeginning(last_ms_));
  }
  begin_ms_ = Milliseconds(now);
  since_begin_ = 0;
  at_once_ms_ = begin_ms_;
  since_at_once_ = 0;
}

void DrainMeter::Add(TimePoint now, int64_t amount) {
  if (amount <= 0) return;
  const int64_t now_ms = Milliseconds(now);
  if (begin_ms_ < 0) begin_ms_ = at_once_ms_ = now_ms;
  last_ms_ = now_ms;
  const int64_t number = now_ms / kBucketMs;
  Bucket& bucket = buckets_[static_cast<size_t>(number) % kBuckets];
  if (bucket.number != number) bucket = {.number = number, .amount = 0};
  bucket.amount += amount;
  since_begin_ += amount;
  if (Seconds(now_ms - begin_ms_) <= kAtOnceSeconds) {
    at_once_ms_ = now_ms;
  } else {
    since_at_once_ += amount;
  }
}

DrainMeter::Seen DrainMeter::SeenAt(int64_t now_ms) const {
  if (begin_ms_ < 0 || now_ms < begin_ms_) return {};
  const int64_t oldest = now_ms / kBucketMs - static_cast<int64_t>(kBuckets) + 1;
  if (begin_ms_ >= oldest * kBucketMs) {
    return {.seconds = Seconds(now_ms - begin_ms_), .amount = static_cast<double>(since_begin_)};
  }
  int64_t amount = 0;
  for (const Bucket& bucket : buckets_) {
    if (bucket.number >= oldest) amount += bucket.amount;
  }
  return {.seconds = Seconds(now_ms - oldest * kBucketMs), .amount = static_cast<double>(amount)};
}

double DrainMeter::RateOfBeginning(int64_t now_ms) const {
  const double seconds = std::max(Seconds(now_ms - at_once_ms_), kAtOnceSeconds);
  return std::max(static_cast<double>(since_begin_) / kLeastSeconds,
                  static_cast<double>(since_at_once_) / seconds);
}

double DrainMeter::SecondsFor(TimePoint now, int64_t amount) const {
  const Seen seen = SeenAt(Milliseconds(now));
  double seconds_for_one = std::max(seen.seconds, kResolutionSeconds) / std::max(seen.amount, 1.0);
  if (seen.seconds < kLeastSeconds && (since_at_once_ > 0 || former_rate_ > 0)) {
    seconds_for_one = 1 / std::max(former_rate_, RateOfBeginning(Milliseconds(now)));
  } else if (former_rate_ > 0 && seen.amount == 0) {
    seconds_for_one = std::max(seen.seconds, 1 / former_rate_);
  }
  return static_cast<double>(amount) * seconds_for_one;
}

}  // namespace refrain::engine
