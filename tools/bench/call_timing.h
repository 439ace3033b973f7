#ifndef REFRAIN_TOOLS_BENCH_CALL_TIMING_H_
#define REFRAIN_TOOLS_BENCH_CALL_TIMING_H_

#include <functional>

namespace refrain::bench {

// Seconds of one call.
struct CallTiming {
  double median = 0;
  double best = 0;  // what the kernel does when nothing else runs
};

// Of the cases of a benchmark that checks each before it times it.
struct BenchOutcome {
  int cases = 0;
  bool right = true;  // all of them

  void Add(bool is_right) {
    ++cases;
    right &= is_right;
  }
};

// Times batches of calls of about 200 us each, until `min_seconds` have gone by.
CallTiming TimeCalls(double min_seconds, const std::function<void()>& call);

}  // namespace refrain::bench

#endif  // REFRAIN_TOOLS_BENCH_CALL_TIMING_H_
