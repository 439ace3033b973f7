#include "kernels/memory_info.h"

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>

namespace refrain::kernels {
namespace {

std::optional<size_t> ReadBytes(std::string_view name) {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  uint64_t kib = 0;
  while (file >> key >> kib) {
    if (key == name) return kib * 1024;
    std::getline(file, unit);
  }
  return std::nullopt;
}

}  // namespace

std::optional<size_t> MemAvailableBytes() { return ReadBytes("MemAvailable:"); }
std::optional<size_t> MemTotalBytes() { return ReadBytes("MemTotal:"); }

}  // namespace refrain::kernels
