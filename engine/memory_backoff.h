#ifndef REFRAIN_ENGINE_MEMORY_BACKOFF_H_
#define REFRAIN_ENGINE_MEMORY_BACKOFF_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

namespace refrain::engine {

// How many tokens a step may have after steps for which the device had no memory (another process
// took it: what a step needs beside the KV cache grows with its tokens). Half of what failed; twice
// as many after kStepsUntilMore steps that ran, until nothing is held back. Where that failed again
// it takes twice as many steps until the next try: the sequences of a step without memory lose
// their chunks, and must be able to come further than that in between. Pure; engine thread.
class MemoryBackoff {
 public:
  static constexpr int kStepsUntilMore = 256;
  static constexpr int kMostStepsUntilMore = 1 << 20;

  // A step of so many tokens failed. False: there is no smaller one.
  bool Shrink(int32_t step_tokens) {
    if (step_tokens <= 1) return false;
    most_tokens_ = std::min(most_tokens_, step_tokens / 2);
    if (std::exchange(has_grown_, false)) {
      steps_until_more_ = std::min(steps_until_more_ * 2, kMostStepsUntilMore);
    }
    steps_ = 0;
    return true;
  }
  void Ran() {
    if (most_tokens_ == kUnlimited || ++steps_ < steps_until_more_) return;
    most_tokens_ = most_tokens_ > kUnlimited / 2 ? kUnlimited : most_tokens_ * 2;
    has_grown_ = most_tokens_ != kUnlimited;
    if (!has_grown_) steps_until_more_ = kStepsUntilMore;
    steps_ = 0;
  }
  int32_t Limit(int32_t budget_tokens) const { return std::min(budget_tokens, most_tokens_); }

 private:
  static constexpr int32_t kUnlimited = std::numeric_limits<int32_t>::max();

  int32_t most_tokens_ = kUnlimited;
  int steps_ = 0;  // that ran since it changed
  int steps_until_more_ = kStepsUntilMore;
  bool has_grown_ = false;  // since it shrank last
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_MEMORY_BACKOFF_H_
