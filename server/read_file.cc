#include "server/read_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "server/concat.h"

namespace refrain::server {
namespace {

bool IsPipe(int file) {
  struct stat found {};
  return ::fstat(file, &found) == 0 && S_ISFIFO(found.st_mode);
}

// Or its end.
bool HasBytes(int file, std::chrono::milliseconds patience) {
  pollfd pipe = {file, POLLIN, 0};
  return ::poll(&pipe, 1, static_cast<int>(patience.count())) != 0;
}

}  // namespace

absl::StatusOr<std::string> ReadFile(std::string_view what, const std::string& path,
                                     size_t max_bytes, std::chrono::milliseconds pipe_patience) {
  const std::string name = what.empty() ? path : Concat(what, " ", path);
  const auto failed = [&](std::string_view verb, int error) {
    const std::string message =
        Concat("cannot ", verb, " ", name, ": ", std::generic_category().message(error));
    return error == ENOENT ? absl::NotFoundError(message) : absl::UnavailableError(message);
  };
  // A pipe without a writer would be waited for in here.
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return failed("open", errno);
  const absl::Cleanup close = [file] { ::close(file); };
  const bool is_pipe = IsPipe(file);
  if (!is_pipe) ::fcntl(file, F_SETFL, 0);  // a terminal is waited for
  constexpr size_t kStepBytes = 64 << 10;
  std::string text;
  for (;;) {
    if (is_pipe && !HasBytes(file, pipe_patience)) {
      return absl::UnavailableError(
          Concat("cannot read ", name, ": a pipe that nobody writes into"));
    }
    const size_t begin = text.size();
    text.resize(begin + kStepBytes);
    const ssize_t got = ::read(file, text.data() + begin, kStepBytes);
    if (got < 0 && errno != EINTR && errno != EAGAIN) return failed("read", errno);
    text.resize(begin + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (text.size() > max_bytes) {
      return absl::InvalidArgumentError(
          Concat(name, " has more than ", max_bytes, " bytes, the most that are read"));
    }
    if (got == 0 && text.empty() && is_pipe) {
      return absl::UnavailableError(Concat("cannot read ", name, ": a pipe with nothing in it"));
    }
    if (got == 0) return text;
  }
}

}  // namespace refrain::server
