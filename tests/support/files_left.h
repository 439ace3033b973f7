#ifndef REFRAIN_TESTS_SUPPORT_FILES_LEFT_H_
#define REFRAIN_TESTS_SUPPORT_FILES_LEFT_H_

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace refrain::testing {

// While it lives this process has so many more files to open.
class FilesLeft {
 public:
  explicit FilesLeft(int files) {
    if (::getrlimit(RLIMIT_NOFILE, &usual_) != 0) std::abort();
    const rlimit few = {.rlim_cur = std::min(usual_.rlim_cur, kMost), .rlim_max = usual_.rlim_max};
    if (::setrlimit(RLIMIT_NOFILE, &few) != 0) std::abort();
    int file = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    for (; file >= 0; file = ::fcntl(file, F_DUPFD_CLOEXEC, 0)) taken_.push_back(file);
    if (taken_.size() < static_cast<size_t>(files)) std::abort();
    for (; files > 0; --files) CloseOne();
  }
  ~FilesLeft() {
    while (!taken_.empty()) CloseOne();
    if (::setrlimit(RLIMIT_NOFILE, &usual_) != 0) std::abort();
  }
  FilesLeft(const FilesLeft&) = delete;
  FilesLeft& operator=(const FilesLeft&) = delete;

 private:
  static constexpr rlim_t kMost = 256;

  void CloseOne() {
    ::close(taken_.back());
    taken_.pop_back();
  }

  rlimit usual_{};
  std::vector<int> taken_;
};

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SUPPORT_FILES_LEFT_H_
