#ifndef REFRAIN_ENGINE_TEXT_WHOLE_WORD_MEMO_H_
#define REFRAIN_ENGINE_TEXT_WHOLE_WORD_MEMO_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace refrain::engine {

// Remembers for which tokens it was seen that merging their text ends at the token itself, so that
// the next such word needs no merging. True for nearly all tokens, but an order of merges can make
// one unreachable, so it is asked once. One byte per token, any number of threads: those that race
// store the same answer.
class WholeWordMemo {
 public:
  explicit WholeWordMemo(size_t vocab_size) : whole_(new std::atomic<bool>[vocab_size]()) {}

  bool IsKnownWhole(int32_t id) const { return whole_[id].load(std::memory_order_relaxed); }
  void Remember(int32_t id) { whole_[id].store(true, std::memory_order_relaxed); }

 private:
  std::unique_ptr<std::atomic<bool>[]> whole_;  // [vocab_size]
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TEXT_WHOLE_WORD_MEMO_H_
