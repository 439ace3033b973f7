#ifndef REFRAIN_TESTS_SUPPORT_TEMPORARY_DIRECTORY_H_
#define REFRAIN_TESTS_SUPPORT_TEMPORARY_DIRECTORY_H_

#include <stdlib.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace refrain::testing {

// A fresh directory, removed with all that is in it. Inside of TEST_TMPDIR where the test runner
// gives one. For tests; ends the process when the disk refuses, which no test can go on from.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    const char* parent = std::getenv("TEST_TMPDIR");
    path_ = std::string(parent != nullptr ? parent : "/tmp") + "/refrain.XXXXXX";
    if (mkdtemp(path_.data()) == nullptr) {
      std::perror(path_.c_str());
      std::abort();
    }
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SUPPORT_TEMPORARY_DIRECTORY_H_
