#ifndef REFRAIN_ENGINE_DEADLINE_LIST_H_
#define REFRAIN_ENGINE_DEADLINE_LIST_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "engine/clock.h"

namespace refrain::engine {

// When which request is out of time. A client may ask for a year: what has ended must be removed,
// not waited for. Knows numbers, not requests. Engine thread. Cannot fail.
class DeadlineList {
 public:
  void Add(std::optional<Clock::TimePoint> deadline, uint64_t number) {
    if (deadline.has_value()) deadlines_.emplace(*deadline, number);
  }
  // As it was added; one that has been taken is not there any more.
  void Remove(std::optional<Clock::TimePoint> deadline, uint64_t number) {
    if (deadline.has_value()) deadlines_.erase({*deadline, number});
  }

  // The request that is out of time for longest, taken from the list; nothing when none is.
  std::optional<uint64_t> TakeExpired(Clock::TimePoint now) {
    if (deadlines_.empty() || deadlines_.begin()->first > now) return std::nullopt;
    return deadlines_.extract(deadlines_.begin()).value().second;
  }

  bool empty() const { return deadlines_.empty(); }
  size_t size() const { return deadlines_.size(); }

 private:
  std::set<std::pair<Clock::TimePoint, uint64_t>> deadlines_;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_DEADLINE_LIST_H_
