#ifndef REFRAIN_TESTS_SUPPORT_ANSWER_TIMES_H_
#define REFRAIN_TESTS_SUPPORT_ANSWER_TIMES_H_

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace refrain::testing {

// What the kernel counts of the time in which this process's threads wanted to run and others had
// the processors. A kernel that does not count it says 0. One thread at a time.
class ProcessorWait {
 public:
  ProcessorWait() : former_ms_(SumMs()) {}

  // Since the last call, of all threads together.
  double TakeMs() {
    const double sum_ms = SumMs();
    // What a thread that has ended had waited is gone with it.
    const double since_ms = std::max(0.0, sum_ms - former_ms_);
    former_ms_ = sum_ms;
    return since_ms;
  }

 private:
  static double SumMs() {
    double sum_ms = 0;
    std::error_code error;
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", error)) {
      std::ifstream file(thread.path() / "schedstat");
      double ran_ns = 0, waited_ns = 0;
      if (file >> ran_ns >> waited_ns) sum_ms += waited_ns / 1e6;
    }
    return sum_ms;
  }

  double former_ms_;
};

// Of a server's answers, those that kept a limit and those that it held up. One that is late by no
// more than this process waited for a processor is neither: it may be the machine's fault.
class AnswerTimes {
 public:
  explicit AnswerTimes(double limit_ms) : limit_ms_(limit_ms) {}

  void Add(double ms, double waited_ms) {
    if (ms < limit_ms_) {
      ++quick_;
    } else if (ms - waited_ms >= limit_ms_) {
      ++held_up_;
    } else {
      ++unclear_;
    }
  }

  int quick() const { return quick_; }
  int held_up() const { return held_up_; }
  int unclear() const { return unclear_; }
  // Whether most are one or the other.
  bool says_something() const { return quick_ + held_up_ > unclear_; }
  // A tenth may be late: not all that a machine does is counted.
  bool keeps_limit() const { return held_up_ * 9 <= quick_; }

 private:
  const double limit_ms_;
  int quick_ = 0;
  int held_up_ = 0;
  int unclear_ = 0;
};

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SUPPORT_ANSWER_TIMES_H_
