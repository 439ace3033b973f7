#ifndef REFRAIN_TESTS_SUPPORT_LITTLE_ROOM_H_
#define REFRAIN_TESTS_SUPPORT_LITTLE_ROOM_H_

#include <sys/resource.h>

#include <cstdlib>
#include <fstream>

// A sanitizer takes terabytes of addresses, so that no limit of them is one of threads.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define REFRAIN_TESTS_CAN_LIMIT_ADDRESSES 1
#endif

namespace refrain::testing {

// Leaves this process 64 MiB of addresses beyond those that it has, which is the stacks of seven
// threads. For the body of an EXPECT_EXIT: it cannot be undone. Exits with 2 where it fails.
inline void LeaveLittleRoom() {
  std::ifstream pages("/proc/self/statm");
  rlim_t bytes = 0;
  pages >> bytes;
  bytes = bytes * 4096 + (rlim_t{64} << 20);  // a thread takes 8 MiB for its stack
  const rlimit limit{bytes, bytes};
  if (setrlimit(RLIMIT_AS, &limit) != 0) std::exit(2);
}

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SUPPORT_LITTLE_ROOM_H_
