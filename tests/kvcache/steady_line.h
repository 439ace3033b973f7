#ifndef REFRAIN_TESTS_KVCACHE_STEADY_LINE_H_
#define REFRAIN_TESTS_KVCACHE_STEADY_LINE_H_

#include <cstdint>

#include "kvcache/waiting_line.h"

namespace refrain::testing {

// Whoever has rank 0 has turn `begin`; each rank more is `step` later.
class SteadyLine final : public kvcache::WaitingLine {
 public:
  SteadyLine(int64_t begin, int64_t step) : begin_(begin), step_(step) {}
  int64_t TurnOf(int64_t rank, kvcache::SequenceId) const override {
    ++questions;
    return begin_ + step_ * rank;
  }
  void Delay(int64_t turns) { begin_ += turns; }

  mutable int questions = 0;

 private:
  int64_t begin_;
  const int64_t step_;
};

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_KVCACHE_STEADY_LINE_H_
