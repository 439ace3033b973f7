#include "kernels/cpu/cpu_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace refrain::kernels::cpu {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kHugePageBytes = size_t{2} << 20;

size_t AlignmentOf(size_t bytes) { return bytes >= kHugePageBytes ? kHugePageBytes : kPageBytes; }

size_t MappedBytes(size_t bytes) {
  const size_t alignment = AlignmentOf(bytes);
  return (std::max<size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
}

// The number that a one-line control file holds; nullopt when it is missing or says "max".
std::optional<size_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  uint64_t value = 0;
  if (!(file >> text) || !absl::SimpleAtoi(text, &value)) return std::nullopt;
  return value;
}

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

// Bytes left under `folder`'s limit and the limits of the groups above it.
size_t LeftInGroup(const std::string& root, std::string folder, const char* limit_name,
                   const char* usage_name) {
  size_t left = std::numeric_limits<size_t>::max();
  while (true) {
    const std::string directory = absl::StrCat(root, folder == "/" ? "" : folder, "/");
    const std::optional<size_t> limit = ReadNumber(directory + limit_name);
    const std::optional<size_t> usage = ReadNumber(directory + usage_name);
    if (limit && usage) left = std::min(left, *limit - std::min(*limit, *usage));
    const size_t slash = folder.rfind('/');
    if (slash == std::string::npos || folder == "/" || folder.empty()) return left;
    folder.resize(slash);
  }
}

size_t LeftInControlGroups() {
  size_t left = std::numeric_limits<size_t>::max();
  std::ifstream file("/proc/self/cgroup");
  std::string line;  // "0::/path" (version 2) or "N:memory:/path" (version 1)
  while (std::getline(file, line)) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string folder = line.substr(second + 1);
    if (controllers.empty()) {
      left = std::min(left, LeftInGroup("/sys/fs/cgroup", folder, "memory.max", "memory.current"));
    } else if (controllers == "memory") {
      left = std::min(left, LeftInGroup("/sys/fs/cgroup/memory", folder, "memory.limit_in_bytes",
                                        "memory.usage_in_bytes"));
    }
  }
  return left;
}

}  // namespace

absl::StatusOr<DeviceBuffer> CpuDevice::Allocate(size_t bytes, bool huge_pages) {
  const size_t alignment = AlignmentOf(bytes);
  if (bytes > std::numeric_limits<size_t>::max() / 2) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot allocate ", bytes, " bytes"));
  }
  const size_t mapped = MappedBytes(bytes);
  // The kernel aligns to 4 KiB only: map up to one alignment more and give the ends back.
  const size_t slack = alignment - kPageBytes;
  void* raw = mmap(nullptr, mapped + slack, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot allocate ", bytes, " bytes of host memory: ", strerror(errno)));
  }
  const uintptr_t begin = reinterpret_cast<uintptr_t>(raw);
  const uintptr_t aligned = (begin + alignment - 1) / alignment * alignment;
  if (aligned > begin) munmap(raw, aligned - begin);
  const uintptr_t end = begin + mapped + slack;
  if (end > aligned + mapped) {
    munmap(reinterpret_cast<void*>(aligned + mapped), end - aligned - mapped);
  }
  auto* data = reinterpret_cast<std::byte*>(aligned);
  // Only advice: a kernel without transparent huge pages refuses it, and 4 KiB pages work too.
  if (bytes >= kHugePageBytes) {
    madvise(data, mapped, huge_pages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  }
  return DeviceBuffer(this, data, bytes);
}

void CpuDevice::Free(std::byte* data, size_t bytes) { munmap(data, MappedBytes(bytes)); }

absl::Status CpuDevice::Copy(std::byte* to, const std::byte* from, size_t bytes) {
  std::memcpy(to, from, bytes);
  return absl::OkStatus();
}

absl::Status CpuDevice::CopyToHost(std::byte* host, const std::byte* from, size_t bytes) {
  return Copy(host, from, bytes);
}

absl::Status CpuDevice::CopyFromHost(std::byte* to, const std::byte* host, size_t bytes) {
  return Copy(to, host, bytes);
}

size_t CpuDevice::AvailableBytes() const {
  return std::min(MemAvailableBytes().value_or(std::numeric_limits<size_t>::max()),
                  LeftInControlGroups());
}

}  // namespace refrain::kernels::cpu
