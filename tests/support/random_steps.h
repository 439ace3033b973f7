#ifndef REFRAIN_TESTS_SUPPORT_RANDOM_STEPS_H_
#define REFRAIN_TESTS_SUPPORT_RANDOM_STEPS_H_

#include <cstdlib>

namespace refrain::testing {

// Steps of a random run: 10^4, or what `tools/test` asks for in its long forms.
inline int RandomSteps() {
  const char* steps = std::getenv("REFRAIN_RANDOM_STEPS");
  const int count = steps != nullptr ? std::atoi(steps) : 0;
  return count > 0 ? count : 10000;
}

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SUPPORT_RANDOM_STEPS_H_
