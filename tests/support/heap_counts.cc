#include "tests/support/heap_counts.h"

#include <cstddef>
#include <cstdlib>
#include <new>

namespace refrain::testing {
namespace {

thread_local HeapCounts counts;

}  // namespace

HeapCounts& HeapCountsOfThread() { return counts; }

}  // namespace refrain::testing

void* operator new(size_t bytes) {
  auto& counts = refrain::testing::counts;
  ++counts.allocations;
  if (counts.until_refused >= 0 && counts.until_refused-- == 0) throw std::bad_alloc();
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return operator new(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
// Not inlined: g++ warns of a free() that it sees beside a new.
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  ++refrain::testing::counts.frees;
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  ++refrain::testing::counts.frees;
  std::free(memory);
}
