#ifndef REFRAIN_TESTS_SUPPORT_RANDOM_STEPS_H_
#define REFRAIN_TESTS_SUPPORT_RANDOM_STEPS_H_

#include <cstdint>
#include <cstdlib>
#include <iostream>

namespace refrain::testing {

// Steps of a random run: 10^4, or what `tools/test` asks for in its long forms.
inline int RandomSteps() {
  const char* steps = std::getenv("REFRAIN_RANDOM_STEPS");
  const int count = steps != nullptr ? std::atoi(steps) : 0;
  return count > 0 ? count : 10000;
}

// Seed of a random run: `usual`, or another one for each REFRAIN_RANDOM_SEED above 0. Printed, so
// that a run can be repeated.
inline uint32_t RandomSeed(uint32_t usual) {
  const char* text = std::getenv("REFRAIN_RANDOM_SEED");
  const auto number = static_cast<uint32_t>(text != nullptr ? std::strtoul(text, nullptr, 10) : 0);
  const uint32_t seed = usual + number * 0x9e3779b9u;
  std::cout << "random seed " << seed << " (REFRAIN_RANDOM_SEED=" << number << ")" << std::endl;
  return seed;
}

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SUPPORT_RANDOM_STEPS_H_
