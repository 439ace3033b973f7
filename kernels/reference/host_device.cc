#include "kernels/reference/host_device.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/memory_info.h"

namespace refrain::kernels {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kHugePageBytes = 2u << 20;

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// What Allocate maps, and Free unmaps, for a buffer of `bytes`.
size_t MappedBytes(size_t bytes) { return RoundUp(bytes == 0 ? 1 : bytes, kPageBytes); }

}  // namespace

absl::StatusOr<DeviceBuffer> HostDevice::Allocate(size_t bytes, bool huge_pages) {
  const size_t mapped = MappedBytes(bytes);
  const size_t slack = mapped >= kHugePageBytes ? kHugePageBytes : 0;
  void* const raw = bytes > SIZE_MAX - 2 * kHugePageBytes
                        ? MAP_FAILED
                        : mmap(nullptr, mapped + slack, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("host memory: the system refused to map ", bytes, " bytes"));
  }
  auto* data = static_cast<std::byte*>(raw);
  if (slack != 0) {
    // Cut what is before the first 2 MiB border and what is behind the last page.
    const auto address = reinterpret_cast<uintptr_t>(raw);
    const size_t before = RoundUp(address, kHugePageBytes) - address;
    if (before != 0) munmap(data, before);
    data += before;
    if (slack != before) munmap(data + mapped, slack - before);
    madvise(data, mapped, huge_pages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  }
  return DeviceBuffer(this, data, bytes);
}

void HostDevice::Free(std::byte* data, size_t bytes) { munmap(data, MappedBytes(bytes)); }

absl::Status HostDevice::Copy(std::byte* to, const std::byte* from, size_t bytes) {
  std::memcpy(to, from, bytes);
  return absl::OkStatus();
}

absl::Status HostDevice::CopyToHost(std::byte* host, const std::byte* from, size_t bytes) {
  return Copy(host, from, bytes);
}

absl::Status HostDevice::CopyFromHost(std::byte* to, const std::byte* host, size_t bytes) {
  return Copy(to, host, bytes);
}

size_t HostDevice::AvailableBytes() const { return MemAvailableBytes(); }

size_t HostDevice::TotalBytes() const { return MemTotalBytes(); }

}  // namespace refrain::kernels
