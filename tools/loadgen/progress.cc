#include "tools/loadgen/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace refrain::loadgen {
namespace {

constexpr int kLeastBarColumns = 4;
constexpr int kMostBarColumns = 24;
constexpr int kUsualColumns = 80;

int ColumnsOf(int fd) {
  winsize size = {};
  const bool known = ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : kUsualColumns;
}

}  // namespace

std::string ProgressLine(const ProgressState& state, int most_columns) {
  const double share = std::clamp(state.done_share, 0.0, 1.0);
  std::string numbers = absl::StrFormat(
      "%3.0f %%  %5.1f s  %d done  %d failed  %d in flight  %.0f tok/s", 100 * share,
      state.elapsed_s, state.completed, state.failed, state.in_flight,
      state.elapsed_s > 0 ? static_cast<double>(state.output_tokens) / state.elapsed_s : 0);
  constexpr std::string_view kAround = "[] ";
  const int left = most_columns - static_cast<int>(numbers.size() + kAround.size());
  if (left < kLeastBarColumns) {
    numbers.resize(std::min(numbers.size(), static_cast<size_t>(most_columns)));
    return numbers;
  }
  const int width = std::min(left, kMostBarColumns);
  std::string bar(static_cast<size_t>(share * width), '#');
  bar.resize(static_cast<size_t>(width), '.');
  return absl::StrCat("[", bar, "] ", numbers);
}

Progress::Progress(std::FILE* terminal)
    : terminal_(terminal), is_terminal_(::isatty(::fileno(terminal)) != 0) {}

Progress::~Progress() {
  if (!shown_) return;
  std::fputs("\r\033[K", terminal_);
  std::fflush(terminal_);
}

void Progress::Show(const ProgressState& state) {
  if (!is_terminal_) return;
  // Behind a character in the last column the cursor may be on the next line, which is drawn anew.
  const int most_columns = ColumnsOf(::fileno(terminal_)) - 1;
  std::fprintf(terminal_, "\r%s\033[K", ProgressLine(state, most_columns).c_str());
  std::fflush(terminal_);
  shown_ = true;
}

}  // namespace refrain::loadgen
