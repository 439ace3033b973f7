#ifndef REFRAIN_TESTS_SUPPORT_HEAP_COUNTS_H_
#define REFRAIN_TESTS_SUPPORT_HEAP_COUNTS_H_

#include <cstdint>

namespace refrain::testing {

// What the calling thread has taken from the heap with `new` and given back with `delete`: a test
// that links this has operators of its own, which count. It may set them to 0.
struct HeapCounts {
  int64_t allocations = 0;
  int64_t frees = 0;
  int64_t until_refused = -1;  // so many more succeed, the next one throws std::bad_alloc; -1: none
};
HeapCounts& HeapCountsOfThread();

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SUPPORT_HEAP_COUNTS_H_
