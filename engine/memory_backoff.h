#ifndef REFRAIN_ENGINE_MEMORY_BACKOFF_H_
#define REFRAIN_ENGINE_MEMORY_BACKOFF_H_

#include <algorithm>
#include <cstdint>
#include <limits>

namespace refrain::engine {

// How many tokens a step may have after steps for which the device had no memory (another process
// took it: what a step needs beside the KV cache grows with its tokens). Half of what failed; twice
// as many after every kStepsUntilMore steps that ran, until nothing is held back. Pure; engine
// thread.
class MemoryBackoff {
 public:
  static constexpr int kStepsUntilMore = 256;

  // A step of so many tokens failed. False: there is no smaller one.
  bool Shrink(int32_t step_tokens) {
    if (step_tokens <= 1) return false;
    most_tokens_ = std::min(most_tokens_, step_tokens / 2);
    steps_ = 0;
    return true;
  }
  void Ran() {
    if (most_tokens_ == kUnlimited || ++steps_ < kStepsUntilMore) return;
    most_tokens_ = most_tokens_ > kUnlimited / 2 ? kUnlimited : most_tokens_ * 2;
    steps_ = 0;
  }
  int32_t Limit(int32_t budget_tokens) const { return std::min(budget_tokens, most_tokens_); }

 private:
  static constexpr int32_t kUnlimited = std::numeric_limits<int32_t>::max();

  int32_t most_tokens_ = kUnlimited;
  int steps_ = 0;  // that ran since it changed
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_MEMORY_BACKOFF_H_
