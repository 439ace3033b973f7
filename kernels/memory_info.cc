#include "kernels/memory_info.h"

#include <cstdint>
#include <fstream>
#include <string>

namespace refrain::kernels {

std::optional<size_t> MemAvailableBytes() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  uint64_t kib = 0;
  while (file >> key >> kib) {
    if (key == "MemAvailable:") return kib * 1024;
    std::getline(file, unit);
  }
  return std::nullopt;
}

}  // namespace refrain::kernels
