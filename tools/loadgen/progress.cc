#include "tools/loadgen/progress.h"

#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_format.h"

namespace refrain::loadgen {

std::string ProgressLine(const ProgressState& state, int width) {
  const double share = std::clamp(state.done_share, 0.0, 1.0);
  const int filled = static_cast<int>(share * width);
  std::string bar(static_cast<size_t>(filled), '#');
  bar.resize(static_cast<size_t>(width), '.');
  return absl::StrFormat(
      "[%s] %3.0f %%  %5.1f s  %d done  %d failed  %d in flight  %.0f tok/s", bar, 100 * share,
      state.elapsed_s, state.completed, state.failed, state.in_flight,
      state.elapsed_s > 0 ? static_cast<double>(state.output_tokens) / state.elapsed_s : 0);
}

Progress::Progress(std::FILE* terminal)
    : terminal_(terminal), is_terminal_(::isatty(::fileno(terminal)) != 0) {}

Progress::~Progress() {
  if (!shown_) return;
  std::fputs("\r\033[K", terminal_);
  std::fflush(terminal_);
}

void Progress::Show(const ProgressState& state) {
  constexpr int kBarColumns = 24;
  if (!is_terminal_) return;
  std::fprintf(terminal_, "\r%s\033[K", ProgressLine(state, kBarColumns).c_str());
  std::fflush(terminal_);
  shown_ = true;
}

}  // namespace refrain::loadgen
