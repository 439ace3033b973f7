#ifndef REFRAIN_KVCACHE_WAITING_LINE_H_
#define REFRAIN_KVCACHE_WAITING_LINE_H_

#include <cstdint>

#include "kvcache/types.h"

namespace refrain::kvcache {

// Sequences that wait to run, the next one first. Whoever schedules has one line, or several that
// take turns (the engine: one for each tenant), and is asked then whose turn comes later.
class WaitingLine {
 public:
  virtual ~WaitingLine() = default;
  // When whoever stands at this place will run: the higher the later, in one measure for all lines,
  // and in each line in its order. Asked while something is evicted; changes nothing.
  virtual int64_t TurnOf(int64_t rank, SequenceId sequence) const = 0;
};

// Where a sequence waits: behind those of its line of a lower rank, or of the same and a lower id.
struct WaitingPlace {
  int64_t rank = 0;
  // Null where there is only one. Else it outlives the wait.
  const WaitingLine* line = nullptr;
};

}  // namespace refrain::kvcache

#endif  // REFRAIN_KVCACHE_WAITING_LINE_H_
