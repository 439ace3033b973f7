#include "tools/bench/call_timing.h"

#include <algorithm>
#include <chrono>
#include <vector>

namespace refrain::bench {

CallTiming TimeCalls(double min_seconds, const std::function<void()>& call) {
  constexpr double kBatchSeconds = 200e-6;
  std::vector<double> seconds;
  double total = 0;
  while (total < min_seconds || seconds.size() < 3) {
    const auto begin = std::chrono::steady_clock::now();
    std::chrono::duration<double> took{0};
    int calls = 0;
    do {
      call();
      ++calls;
      took = std::chrono::steady_clock::now() - begin;
    } while (took.count() < kBatchSeconds);
    seconds.push_back(took.count() / calls);
    total += took.count();
  }
  std::sort(seconds.begin(), seconds.end());
  return {seconds[seconds.size() / 2], seconds[0]};
}

}  // namespace refrain::bench
