#ifndef REFRAIN_TESTS_SUPPORT_EVENTUALLY_H_
#define REFRAIN_TESTS_SUPPORT_EVENTUALLY_H_

#include <chrono>
#include <thread>

#include "tests/support/slow_build.h"

namespace refrain::testing {

// Whether the condition came to hold, looked at every 10 ms, within 20 s.
template <typename Condition>
bool Eventually(const Condition& condition) {
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::seconds(20) * kSlowBuildFactor;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return condition();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SUPPORT_EVENTUALLY_H_
