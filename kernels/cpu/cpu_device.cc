#include "kernels/cpu/cpu_device.h"

#include <emmintrin.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/control_groups.h"
#include "kernels/memory_info.h"

namespace refrain::kernels::cpu {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kHugePageBytes = size_t{2} << 20;

// From here on what is copied would push other things out of the second-level cache.
constexpr size_t kStreamedBytes = 256 * 1024;

// Lines that are written whole need not be read first: chunks of 1.5 MiB take 0.6 of the time.
void CopyPastCaches(std::byte* to, const std::byte* from, size_t bytes) {
  constexpr size_t kLineBytes = 64;
  const size_t before = -reinterpret_cast<uintptr_t>(to) % kLineBytes;
  std::memcpy(to, from, before);
  size_t at = before;
  for (; at + kLineBytes <= bytes; at += kLineBytes) {
    const auto* const source = reinterpret_cast<const __m128i*>(from + at);
    auto* const line = reinterpret_cast<__m128i*>(to + at);
    const __m128i parts[4] = {_mm_loadu_si128(source), _mm_loadu_si128(source + 1),
                              _mm_loadu_si128(source + 2), _mm_loadu_si128(source + 3)};
    for (int i = 0; i < 4; ++i) _mm_stream_si128(line + i, parts[i]);
  }
  _mm_sfence();
  std::memcpy(to + at, from + at, bytes - at);
}

size_t AlignmentOf(size_t bytes) { return bytes >= kHugePageBytes ? kHugePageBytes : kPageBytes; }

size_t MappedBytes(size_t bytes) {
  const size_t alignment = AlignmentOf(bytes);
  return (std::max<size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
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

bool CpuDevice::Populate(std::byte* data, size_t bytes) {
  return madvise(data, bytes, MADV_POPULATE_WRITE) == 0;
}

void CpuDevice::Free(std::byte* data, size_t bytes) { munmap(data, MappedBytes(bytes)); }

absl::Status CpuDevice::Copy(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes >= kStreamedBytes) {
    CopyPastCaches(to, from, bytes);
  } else if (bytes > 0) {  // of no bytes also from and to no memory
    std::memcpy(to, from, bytes);
  }
  return absl::OkStatus();
}

absl::Status CpuDevice::CopyToHost(std::byte* host, const std::byte* from, size_t bytes) {
  return Copy(host, from, bytes);
}

absl::Status CpuDevice::CopyFromHost(std::byte* to, const std::byte* host, size_t bytes) {
  return Copy(to, host, bytes);
}

size_t CpuDevice::AvailableBytes() const {
  return std::min(MemAvailableBytes(), LeftInControlGroups());
}

size_t CpuDevice::TotalBytes() const { return MemTotalBytes(); }

}  // namespace refrain::kernels::cpu
