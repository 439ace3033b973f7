#ifndef REFRAIN_TESTS_SUPPORT_ROUNDS_H_
#define REFRAIN_TESTS_SUPPORT_ROUNDS_H_

#include <chrono>
#include <optional>
#include <thread>

namespace refrain::testing {

// Measures in rounds until one keeps its limits; false when none did that began within `patience`.
// What else the machine does delays some rounds, and the rests between them outlast a busy spell; a
// server that makes its clients wait delays all of them. What is measured beside has to last.
template <typename KeepsLimits>
bool SomeRoundKeeps(const KeepsLimits& keeps_limits,
                    std::chrono::milliseconds patience = std::chrono::seconds(10)) {
  constexpr std::chrono::milliseconds kRest{300};
  const auto last_begin = std::chrono::steady_clock::now() + patience;
  while (!keeps_limits()) {
    if (std::chrono::steady_clock::now() + kRest > last_begin) return false;
    std::this_thread::sleep_for(kRest);
  }
  return true;
}

// Measures in rounds until five of them said something (a round that says nothing is none). Whether
// most of these kept their limits; false, too, where fewer than five began within `patience`.
template <typename KeepsLimits>
bool MostRoundsKeep(const KeepsLimits& keeps_limits, std::chrono::milliseconds patience) {
  constexpr std::chrono::milliseconds kRest{100};
  constexpr int kRounds = 5;
  const auto last_begin = std::chrono::steady_clock::now() + patience;
  int kept = 0, broken = 0;
  while (kept + broken < kRounds) {
    if (std::chrono::steady_clock::now() > last_begin) return false;
    if (const std::optional<bool> keeps = keeps_limits(); keeps.has_value()) {
      ++(*keeps ? kept : broken);
    }
    std::this_thread::sleep_for(kRest);
  }
  return kept > broken;
}

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SUPPORT_ROUNDS_H_
