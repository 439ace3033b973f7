#include "kernels/cpu/control_groups.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace refrain::kernels::cpu {
namespace {

enum class Version { k1, k2 };

// Names of a version's files and lines.
struct MemoryNames {
  const char* limit;
  const char* high;  // beyond it whoever allocates is slowed down; null: there is none
  const char* usage;
  const char* inactive_file;  // of memory.stat, with the groups below
  const char* active_file;
};
constexpr MemoryNames kMemory1 = {"memory.limit_in_bytes", nullptr, "memory.usage_in_bytes",
                                  "total_inactive_file", "total_active_file"};
constexpr MemoryNames kMemory2 = {"memory.max", "memory.high", "memory.current", "inactive_file",
                                  "active_file"};

// Calls visit(version, directory) for the groups of this process in which `controller` may be
// limited, and for those above them.
template <typename Visit>
void VisitGroups(const ControlGroupFiles& files, std::string_view controller, const Visit& visit) {
  std::ifstream file(files.membership);
  std::string line;  // "0::/path" (version 2) or "N:cpu,cpuacct:/path" (version 1)
  while (std::getline(file, line)) {
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() < 3) continue;
    const Version version = fields[1].empty() ? Version::k2 : Version::k1;
    std::string root = files.root;
    if (version == Version::k1) {
      const std::vector<std::string> names = absl::StrSplit(fields[1], ',');
      if (std::find(names.begin(), names.end(), controller) == names.end()) continue;
      root.append("/").append(controller);
    }
    std::string group = fields[2] == "/" ? "" : fields[2];
    while (true) {
      visit(version, absl::StrCat(root, group, "/"));
      if (group.empty()) break;
      const size_t slash = group.rfind('/');
      group.resize(slash == std::string::npos ? 0 : slash);
    }
  }
}

// The numbers that a one-line control file begins with; none when it is missing or says "max".
std::vector<uint64_t> ReadNumbers(const std::string& path) {
  std::ifstream file(path);
  std::vector<uint64_t> numbers;
  std::string text;
  uint64_t value = 0;
  while (file >> text && absl::SimpleAtoi(text, &value)) numbers.push_back(value);
  return numbers;
}

// Pages of files, without those of memory file systems.
size_t FilePages(const std::string& stat_path, const MemoryNames& names) {
  std::ifstream file(stat_path);
  std::string name;
  uint64_t value = 0;
  size_t bytes = 0;
  while (file >> name >> value) {
    if (name == names.inactive_file || name == names.active_file) bytes += value;
  }
  return bytes;
}

// Microseconds of processor time per period, and the period; fewer numbers without a quota.
std::vector<uint64_t> ReadQuota(Version version, const std::string& directory) {
  if (version == Version::k2) return ReadNumbers(directory + "cpu.max");
  std::vector<uint64_t> quota = ReadNumbers(directory + "cpu.cfs_quota_us");  // -1: none
  for (const uint64_t period : ReadNumbers(directory + "cpu.cfs_period_us")) {
    quota.push_back(period);
  }
  return quota;
}

}  // namespace

size_t LeftInControlGroups(const ControlGroupFiles& files) {
  size_t left = std::numeric_limits<size_t>::max();
  VisitGroups(files, "memory", [&left](Version version, const std::string& directory) {
    const MemoryNames& names = version == Version::k2 ? kMemory2 : kMemory1;
    std::vector<uint64_t> limit = ReadNumbers(directory + names.limit);
    if (names.high != nullptr) {
      for (const uint64_t high : ReadNumbers(directory + names.high)) limit.push_back(high);
    }
    const std::vector<uint64_t> usage = ReadNumbers(directory + names.usage);
    if (limit.empty() || usage.empty()) return;
    const size_t files_bytes = FilePages(directory + "memory.stat", names);
    const size_t used = usage[0] - std::min(usage[0], files_bytes);
    const uint64_t most = *std::min_element(limit.begin(), limit.end());
    left = std::min(left, most - std::min(most, used));
  });
  return left;
}

int CoresInControlGroups(const ControlGroupFiles& files) {
  uint64_t cores = std::numeric_limits<int>::max();
  VisitGroups(files, "cpu", [&cores](Version version, const std::string& directory) {
    const std::vector<uint64_t> quota = ReadQuota(version, directory);
    if (quota.size() < 2 || quota[1] == 0) return;
    const uint64_t whole = quota[0] / quota[1] + (quota[0] % quota[1] == 0 ? 0 : 1);
    cores = std::min(cores, std::max<uint64_t>(whole, 1));
  });
  return static_cast<int>(cores);
}

}  // namespace refrain::kernels::cpu
