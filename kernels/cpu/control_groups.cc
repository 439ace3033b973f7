#include "kernels/cpu/control_groups.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace refrain::kernels::cpu {
namespace {

constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();

// Names of a version's files and lines.
struct Version {
  const char* folder;  // below the root
  const char* limit;
  const char* usage;
  const char* inactive_file;  // of memory.stat, with the groups below
  const char* active_file;
};
constexpr Version kVersion1 = {"/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                               "total_inactive_file", "total_active_file"};
constexpr Version kVersion2 = {"", "memory.max", "memory.current", "inactive_file", "active_file"};

// The number that a one-line control file holds; nullopt when it is missing or says "max".
std::optional<size_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  uint64_t value = 0;
  if (!(file >> text) || !absl::SimpleAtoi(text, &value)) return std::nullopt;
  return value;
}

// Pages of files, without those of memory file systems.
size_t FilePages(const std::string& stat_path, const Version& version) {
  std::ifstream file(stat_path);
  std::string name;
  uint64_t value = 0;
  size_t bytes = 0;
  while (file >> name >> value) {
    if (name == version.inactive_file || name == version.active_file) bytes += value;
  }
  return bytes;
}

// Bytes left under `group`'s limit and the limits of the groups above it.
size_t LeftInGroup(const std::string& root, std::string group, const Version& version) {
  size_t left = kNoLimit;
  while (true) {
    const std::string directory =
        absl::StrCat(root, version.folder, group == "/" ? "" : group, "/");
    const std::optional<size_t> limit = ReadNumber(directory + version.limit);
    const std::optional<size_t> usage = ReadNumber(directory + version.usage);
    if (limit && usage) {
      const size_t files = FilePages(directory + "memory.stat", version);
      const size_t used = *usage - std::min(*usage, files);
      left = std::min(left, *limit - std::min(*limit, used));
    }
    const size_t slash = group.rfind('/');
    if (slash == std::string::npos || group == "/" || group.empty()) return left;
    group.resize(slash);
  }
}

}  // namespace

size_t LeftInControlGroups(const ControlGroupFiles& files) {
  size_t left = kNoLimit;
  std::ifstream file(files.membership);
  std::string line;  // "0::/path" (version 2) or "N:memory:/path" (version 1)
  while (std::getline(file, line)) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      left = std::min(left, LeftInGroup(files.root, group, kVersion2));
    } else if (controllers == "memory") {
      left = std::min(left, LeftInGroup(files.root, group, kVersion1));
    }
  }
  return left;
}

}  // namespace refrain::kernels::cpu
