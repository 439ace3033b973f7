#ifndef REFRAIN_TESTS_SUPPORT_CPU_TIME_H_
#define REFRAIN_TESTS_SUPPORT_CPU_TIME_H_

#include <time.h>

#include <chrono>

namespace refrain::testing {

// Of this thread: work of others beside it is none of what is measured.
inline std::chrono::nanoseconds ThreadCpuTime() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SUPPORT_CPU_TIME_H_
