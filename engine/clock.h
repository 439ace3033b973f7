#ifndef REFRAIN_ENGINE_CLOCK_H_
#define REFRAIN_ENGINE_CLOCK_H_

#include <chrono>

namespace refrain::engine {

// The time, so that tests can set it. Any thread.
class Clock {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  virtual ~Clock() = default;
  virtual TimePoint Now() const = 0;
};

class SteadyClock : public Clock {
 public:
  TimePoint Now() const override { return std::chrono::steady_clock::now(); }
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_CLOCK_H_
