#ifndef REFRAIN_ENGINE_MEMORY_BACKOFF_H_
#define REFRAIN_ENGINE_MEMORY_BACKOFF_H_

#include <algorithm>
#include <cstdint>
#include <limits>

namespace refrain::engine {

// How many tokens a step may have after steps for which the device had no memory (another process
// took it: what a step needs beside the KV cache grows with its tokens). Half of what failed; twice
// as many after kStepsUntilMore steps that ran, until the whole budget may be used. Where a step of
// more tokens than ever ran since then fails, it takes twice as many steps until the next try: the
// sequences of a step without memory lose their chunks, and must be able to come further than that
// in between. Steps that fail now and then, whatever their size, do not make the waits longer: they
// would never end. Pure; engine thread.
class MemoryBackoff {
 public:
  static constexpr int kStepsUntilMore = 256;
  static constexpr int kMostStepsUntilMore = 1 << 20;

  // A step of so many tokens failed. False: there is no smaller one.
  bool Shrink(int32_t step_tokens) {
    if (step_tokens <= 1) return false;
    most_tokens_ = std::min(most_tokens_, step_tokens / 2);
    if (proven_tokens_ != kNoTrial) {
      steps_until_more_ = step_tokens > proven_tokens_
                              ? std::min(steps_until_more_ * 2, kMostStepsUntilMore)
                              : kStepsUntilMore;
    }
    proven_tokens_ = kNoTrial;
    steps_ = 0;
    return true;
  }

  // A step of so many tokens ran, which could have had `budget_tokens` if nothing were held back.
  void Ran(int32_t step_tokens, int32_t budget_tokens) {
    if (proven_tokens_ != kNoTrial) proven_tokens_ = std::max(proven_tokens_, step_tokens);
    if (most_tokens_ == kUnlimited || ++steps_ < steps_until_more_) return;
    steps_ = 0;
    proven_tokens_ = std::max(most_tokens_, step_tokens);
    most_tokens_ = most_tokens_ > (budget_tokens - 1) / 2 ? kUnlimited : most_tokens_ * 2;
  }

  int32_t Limit(int32_t budget_tokens) const { return std::min(budget_tokens, most_tokens_); }

 private:
  static constexpr int32_t kUnlimited = std::numeric_limits<int32_t>::max();
  static constexpr int32_t kNoTrial = -1;

  int32_t most_tokens_ = kUnlimited;
  // Of the largest step that ran since the limit grew, or the limit before; kNoTrial: it has not
  // grown since it shrank.
  int32_t proven_tokens_ = kNoTrial;
  int steps_ = 0;  // that ran since the limit changed
  int steps_until_more_ = kStepsUntilMore;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_MEMORY_BACKOFF_H_
