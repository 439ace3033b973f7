#ifndef REFRAIN_ENGINE_TURN_WATCH_H_
#define REFRAIN_ENGINE_TURN_WATCH_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/clock.h"

namespace refrain::engine {

// Tells from outside whether the engine thread gets on: a GPU that hangs, a page that is not read
// in or a deadlock stops it within a turn, where it can tell nobody. It does not end anything: a
// turn that ends after all takes back what was said, and the requests go on.
//
// An engine that has nothing to do is never stalled; with `stall_s` = 0 none ever is. Works and
// Rests: the engine thread. status: any thread, without a lock that a stalled thread might hold. No
// failures.
class TurnWatch {
 public:
  // `clock` outlives it.
  TurnWatch(const Clock* clock, double stall_s) : clock_(clock), stall_s_(stall_s) {}

  // A turn begins or has ended, and there is something to do.
  void Works() { last_ = clock_->Now().time_since_epoch().count(); }
  // There is nothing to do until Works.
  void Rests() { last_ = kRests; }

  // UNAVAILABLE, with the seconds since then, once the last call was Works, `stall_s` ago or
  // longer.
  absl::Status status() const {
    const Ticks last = last_;
    if (last == kRests || stall_s_ <= 0) return absl::OkStatus();
    const Clock::TimePoint since{Clock::TimePoint::duration(last)};
    const double seconds = std::chrono::duration<double>(clock_->Now() - since).count();
    if (seconds < stall_s_) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat("the engine has not finished a step for ",
                                               static_cast<int64_t>(seconds), " s"));
  }

 private:
  using Ticks = Clock::TimePoint::rep;
  static constexpr Ticks kRests = std::numeric_limits<Ticks>::min();

  const Clock* const clock_;
  const double stall_s_;
  std::atomic<Ticks> last_{kRests};
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TURN_WATCH_H_
