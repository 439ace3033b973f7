#include "tools/result_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace refrain {

absl::Status CheckResultFile(const std::string& path) {
  if (path.empty() || path == "-") return absl::OkStatus();
  std::error_code ignored;
  const bool is_new = !std::filesystem::exists(path, ignored);
  if (!std::ofstream(path, std::ios::app)) {
    return absl::UnavailableError(
        absl::StrCat("--json: cannot write ", path, ": ", std::strerror(errno)));
  }
  // Where the path is a link to nothing, what it leads to was made.
  if (is_new) std::filesystem::remove(std::filesystem::canonical(path, ignored), ignored);
  return absl::OkStatus();
}

absl::Status FlushStandardOutput() {
  // The reason of an earlier failure is gone.
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return absl::OkStatus();
  return absl::UnavailableError("cannot write to standard output");
}

}  // namespace refrain
