#ifndef REFRAIN_TESTS_SUPPORT_ALLOCATED_BYTES_H_
#define REFRAIN_TESTS_SUPPORT_ALLOCATED_BYTES_H_

#include <malloc.h>

#include <cstddef>

namespace refrain::testing {

// Of the whole process; nothing where a sanitizer's allocator does not tell.
inline size_t AllocatedBytes() {
#if defined(__SANITIZE_ADDRESS__)
  return 0;
#else
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
#endif
}

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SUPPORT_ALLOCATED_BYTES_H_
