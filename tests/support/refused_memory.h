#ifndef REFRAIN_TESTS_SUPPORT_REFUSED_MEMORY_H_
#define REFRAIN_TESTS_SUPPORT_REFUSED_MEMORY_H_

#include <cstdint>
#include <new>

#include "tests/support/heap_counts.h"

namespace refrain::testing {

// Works again and again, refused the first allocation that it asks for, then the second one, until
// it asks for no more. How many were refused.
template <typename Work>
int64_t RefuseEachAllocation(const Work& work) {
  for (int64_t allocations = 0;; ++allocations) {
    HeapCountsOfThread().until_refused = allocations;
    try {
      work();
    } catch (const std::bad_alloc&) {
    }
    const bool refused = HeapCountsOfThread().until_refused < 0;
    HeapCountsOfThread().until_refused = -1;
    if (!refused) return allocations;
  }
}

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SUPPORT_REFUSED_MEMORY_H_
