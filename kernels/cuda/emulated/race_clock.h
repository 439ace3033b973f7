#ifndef REFRAIN_KERNELS_CUDA_EMULATED_RACE_CLOCK_H_
#define REFRAIN_KERNELS_CUDA_EMULATED_RACE_CLOCK_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace refrain::kernels::cuda::emulated {

struct Clock;
using ClockPtr = std::shared_ptr<const Clock>;

// A vector clock of the race detector: up to which epoch each agent of a block is known. Never
// changed once others may hold it.
struct Clock {
  std::vector<uint32_t> seen;     // by agent; what is behind the end is 0
  std::vector<uint32_t> proxied;  // up to which its plain writes are seen by asynchronous copies
  bool kernel_before_ended = false;
  std::map<uint32_t, ClockPtr> others;  // of other runs of blocks, by run
  // In `others` alone, by run: what is behind some __threadfence known here, and what atomics known
  // here have seen that is not yet behind one.
  ClockPtr fenced, loose;

  static uint32_t At(const std::vector<uint32_t>& epochs, size_t agent) {
    return agent < epochs.size() ? epochs[agent] : 0;
  }
  static void Raise(std::vector<uint32_t>& epochs, size_t agent, uint32_t epoch) {
    if (agent >= epochs.size()) epochs.resize(agent + 1);
    epochs[agent] = std::max(epochs[agent], epoch);
  }
  static void Raise(std::vector<uint32_t>& epochs, const std::vector<uint32_t>& by) {
    if (by.size() > epochs.size()) epochs.resize(by.size());
    for (size_t i = 0; i < by.size(); ++i) epochs[i] = std::max(epochs[i], by[i]);
  }
};

// The latest of two clocks, agent by agent; either may be null. Remembers its last answers, for
// threads that met ask the same again and again.
class ClockJoiner {
 public:
  ClockPtr Join(const ClockPtr& a, const ClockPtr& b) {
    if (b == nullptr || a == b) return a;
    if (a == nullptr) return b;
    for (const Answer& answer : answers_) {
      if (answer.a == a && answer.b == b) return answer.joined;
    }
    auto joined = std::make_shared<Clock>(*a);
    Clock::Raise(joined->seen, b->seen);
    Clock::Raise(joined->proxied, b->proxied);
    joined->kernel_before_ended |= b->kernel_before_ended;
    joined->fenced = Join(a->fenced, b->fenced);
    joined->loose = Join(a->loose, b->loose);
    for (const auto& [run, other] : b->others) {
      ClockPtr& own = joined->others[run];
      own = Join(own, other);
    }
    next_ = (next_ + 1) % answers_.size();
    answers_[next_] = {a, b, joined};
    return joined;
  }

 private:
  struct Answer {
    ClockPtr a, b, joined;
  };
  std::array<Answer, 8> answers_;
  size_t next_ = 0;
};

}  // namespace refrain::kernels::cuda::emulated

#endif  // REFRAIN_KERNELS_CUDA_EMULATED_RACE_CLOCK_H_
