#include "server/open_files.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <system_error>

#include "server/concat.h"

namespace refrain::server {
namespace {

// Logs, the model, metrics, gRPC; a refused connection is open for a moment too.
constexpr int64_t kOwnFiles = 64;
// Of an event loop: epoll, its timer and what wakes it up.
constexpr int64_t kFilesOfIoThread = 3;

int64_t OwnFiles(int io_threads) { return kOwnFiles + kFilesOfIoThread * io_threads; }

}  // namespace

int64_t RaiseOpenFileLimit() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return 0;
  if (files.rlim_cur < files.rlim_max) {
    rlimit raised = files;
    raised.rlim_cur = raised.rlim_max;
    if (::setrlimit(RLIMIT_NOFILE, &raised) == 0) files = raised;
  }
  constexpr auto kMost = static_cast<rlim_t>(std::numeric_limits<int64_t>::max());
  return static_cast<int64_t>(std::min(files.rlim_cur, kMost));
}

absl::Status CheckOpenFileLimit(int64_t open_files, int io_threads, int front_ends) {
  const int64_t needed = OwnFiles(io_threads) + front_ends;
  if (open_files >= needed) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      Concat("only ", open_files, " files may be open at once (ulimit -n, systemd's LimitNOFILE): ",
             needed, " are needed with server.io_threads = ", io_threads));
}

std::string SystemErrorText(int error) {
  const std::string text = std::generic_category().message(error);
  if (!IsFileRefused(error)) return text;
  return Concat("the system refuses a file (", text,
                "): ulimit -n, systemd's LimitNOFILE or fs.file-max is too low");
}

bool IsFileRefused(int error) { return error == EMFILE || error == ENFILE; }

void OccupyStandardFiles() {
  // open() takes the lowest number that is free.
  for (;;) {
    const int file = ::open("/dev/null", O_RDWR);
    if (file > STDERR_FILENO) ::close(file);
    if (file < 0 || file > STDERR_FILENO) return;
  }
}

int ConnectionLimit(int64_t open_files, int io_threads, bool shared, int wanted) {
  const int64_t free_files = (open_files - OwnFiles(io_threads)) / (shared ? 2 : 1);
  return static_cast<int>(std::clamp<int64_t>(free_files, 1, wanted));
}

}  // namespace refrain::server
