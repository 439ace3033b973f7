#include "server/read_file.h"

#include <fcntl.h>
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

}  // namespace

absl::StatusOr<std::string> ReadFile(std::string_view what, const std::string& path,
                                     size_t max_bytes) {
  const std::string name = what.empty() ? path : Concat(what, " ", path);
  const auto failed = [&](std::string_view verb, int error) {
    const std::string message =
        Concat("cannot ", verb, " ", name, ": ", std::generic_category().message(error));
    return error == ENOENT ? absl::NotFoundError(message) : absl::UnavailableError(message);
  };
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return failed("open", errno);
  const absl::Cleanup close = [file] { ::close(file); };
  constexpr size_t kStepBytes = 64 << 10;
  std::string text;
  for (;;) {
    const size_t begin = text.size();
    text.resize(begin + kStepBytes);
    const ssize_t got = ::read(file, text.data() + begin, kStepBytes);
    if (got < 0 && errno != EINTR) return failed("read", errno);
    text.resize(begin + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (text.size() > max_bytes) {
      return absl::InvalidArgumentError(
          Concat(name, " has more than ", max_bytes, " bytes, the most that are read"));
    }
    if (got == 0 && text.empty() && IsPipe(file)) {
      return absl::UnavailableError(Concat("cannot read ", name, ": a pipe with nothing in it"));
    }
    if (got == 0) return text;
  }
}

}  // namespace refrain::server
