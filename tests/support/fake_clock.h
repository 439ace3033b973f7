#ifndef REFRAIN_TESTS_SUPPORT_FAKE_CLOCK_H_
#define REFRAIN_TESTS_SUPPORT_FAKE_CLOCK_H_

#include <atomic>
#include <chrono>

#include "engine/clock.h"

namespace refrain::testing {

// Stands still until it is told to go on. Any thread.
class FakeClock : public engine::Clock {
 public:
  TimePoint Now() const override {
    return TimePoint(std::chrono::steady_clock::duration(ticks_.load()));
  }
  void Advance(std::chrono::duration<double> time) {
    ticks_ += std::chrono::duration_cast<std::chrono::steady_clock::duration>(time).count();
  }

 private:
  std::atomic<std::chrono::steady_clock::rep> ticks_{1};
};

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SUPPORT_FAKE_CLOCK_H_
