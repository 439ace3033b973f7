#ifndef REFRAIN_TESTS_SUPPORT_SLOW_BUILD_H_
#define REFRAIN_TESTS_SUPPORT_SLOW_BUILD_H_

namespace refrain::testing {

// How much longer than it says a bound of time is where the build itself is slow: under a sanitizer
// or without optimisation. 1 in tools/test.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || !defined(__OPTIMIZE__)
inline constexpr int kSlowBuildFactor = 20;
#else
inline constexpr int kSlowBuildFactor = 1;
#endif

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SUPPORT_SLOW_BUILD_H_
