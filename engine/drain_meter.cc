#include "engine/drain_meter.h"

#include <algorithm>

namespace refrain::engine {
namespace {

// Less says little: the first ones take free slots at once.
constexpr double kLeastSeconds = 1;
// Of the clock as it is read here: what has only just come takes some time, too.
constexpr double kResolutionSeconds = 0.001;

int64_t Milliseconds(DrainMeter::TimePoint time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
}

}  // namespace

void DrainMeter::Begin(TimePoint now) {
  // What ends here lasted until the last one left; what follows was idle.
  const Seen former = SeenAt(last_ms_);
  if (former.seconds >= kLeastSeconds || former.amount / kLeastSeconds > former_rate_) {
    former_rate_ = former.amount / std::max(former.seconds, kLeastSeconds);
  }
  begin_ms_ = Milliseconds(now);
  since_begin_ = 0;
}

void DrainMeter::Add(TimePoint now, int64_t amount) {
  if (amount <= 0) return;
  const int64_t now_ms = Milliseconds(now);
  if (begin_ms_ < 0) begin_ms_ = now_ms;
  last_ms_ = now_ms;
  const int64_t number = now_ms / kBucketMs;
  Bucket& bucket = buckets_[static_cast<size_t>(number) % kBuckets];
  if (bucket.number != number) bucket = {.number = number, .amount = 0};
  bucket.amount += amount;
  since_begin_ += amount;
}

DrainMeter::Seen DrainMeter::SeenAt(int64_t now_ms) const {
  if (begin_ms_ < 0 || now_ms < begin_ms_) return {};
  const auto seconds_since = [&](int64_t begin_ms) {
    return static_cast<double>(now_ms - begin_ms) / 1000.0;
  };
  const int64_t oldest = now_ms / kBucketMs - static_cast<int64_t>(kBuckets) + 1;
  if (begin_ms_ >= oldest * kBucketMs) {
    return {.seconds = seconds_since(begin_ms_), .amount = static_cast<double>(since_begin_)};
  }
  int64_t amount = 0;
  for (const Bucket& bucket : buckets_) {
    if (bucket.number >= oldest) amount += bucket.amount;
  }
  return {.seconds = seconds_since(oldest * kBucketMs), .amount = static_cast<double>(amount)};
}

double DrainMeter::SecondsFor(TimePoint now, int64_t amount) const {
  const Seen seen = SeenAt(Milliseconds(now));
  double seconds_for_one = std::max(seen.seconds, kResolutionSeconds) / std::max(seen.amount, 1.0);
  if (former_rate_ > 0 && seen.seconds < kLeastSeconds) {
    seconds_for_one = 1 / std::max(former_rate_, seen.amount / kLeastSeconds);
  } else if (former_rate_ > 0 && seen.amount == 0) {
    seconds_for_one = std::max(seen.seconds, 1 / former_rate_);
  }
  return static_cast<double>(amount) * seconds_for_one;
}

}  // namespace refrain::engine
