#include "kernels/memory_info.h"

#include <sys/sysinfo.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <system_error>

namespace refrain::kernels {
namespace {

// The sum of the lines "NAME: 123 kB" of a file, which may begin with "Node 0"; nothing where it
// has none of them.
std::optional<size_t> ReadBytes(const std::string& path,
                                std::initializer_list<std::string_view> names) {
  std::ifstream file(path);
  std::string word;
  uint64_t kib = 0;
  std::optional<size_t> bytes;
  while (file >> word) {
    if (std::find(names.begin(), names.end(), word) == names.end()) continue;
    if (file >> kib) bytes = bytes.value_or(0) + kib * 1024;
  }
  return bytes;
}

std::optional<size_t> SumOfNodes(const std::string& folder,
                                 std::initializer_list<std::string_view> names) {
  std::optional<size_t> bytes;
  std::error_code missing;
  for (auto entry = std::filesystem::directory_iterator(folder, missing);
       !missing && entry != std::filesystem::directory_iterator(); entry.increment(missing)) {
    if (const auto of_node = ReadBytes(entry->path() / "meminfo", names)) {
      bytes = bytes.value_or(0) + *of_node;
    }
  }
  return bytes;
}

}  // namespace

size_t MemAvailableBytes(const MemoryFiles& files) {
  if (const auto bytes = ReadBytes(files.meminfo, {"MemAvailable:"})) return *bytes;
  if (const auto bytes =
          SumOfNodes(files.nodes, {"MemFree:", "Active(file):", "Inactive(file):"})) {
    return *bytes;
  }
  struct sysinfo info = {};
  if (sysinfo(&info) != 0) return 0;
  return (size_t{info.freeram} + info.bufferram) * info.mem_unit;
}

size_t MemTotalBytes(const MemoryFiles& files) {
  if (const auto bytes = ReadBytes(files.meminfo, {"MemTotal:"})) return *bytes;
  if (const auto bytes = SumOfNodes(files.nodes, {"MemTotal:"})) return *bytes;
  struct sysinfo info = {};
  return sysinfo(&info) != 0 ? 0 : size_t{info.totalram} * info.mem_unit;
}

}  // namespace refrain::kernels
