#ifndef REFRAIN_TOOLS_LOADGEN_PROGRESS_H_
#define REFRAIN_TOOLS_LOADGEN_PROGRESS_H_

#include <cstdint>
#include <cstdio>
#include <string>

namespace refrain::loadgen {

struct ProgressState {
  double elapsed_s = 0;
  int64_t completed = 0;
  int64_t failed = 0;
  int64_t in_flight = 0;
  int64_t output_tokens = 0;
  double done_share = 0;  // of what was asked for; 0 when nobody knows
};

// One line: a bar and the numbers. The bar is shorter, or not there, and the last numbers are cut
// off where that would be more than `most_columns`.
std::string ProgressLine(const ProgressState& state, int most_columns);

// Draws the line again and again over itself on a terminal, within its width; elsewhere it is
// silent. One thread.
class Progress {
 public:
  explicit Progress(std::FILE* terminal);
  ~Progress();  // leaves an empty line

  void Show(const ProgressState& state);

 private:
  std::FILE* const terminal_;
  const bool is_terminal_;
  bool shown_ = false;
};

}  // namespace refrain::loadgen

#endif  // REFRAIN_TOOLS_LOADGEN_PROGRESS_H_
