#include "kernels/cuda/cuda_device.h"

#include <cstdint>

namespace refrain::kernels::cuda {
namespace {

constexpr size_t kSmallAlignment = 4096;
constexpr size_t kLargeAlignment = size_t{2} << 20;

std::byte* AlignUp(std::byte* data, size_t alignment) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  return data + (alignment - address % alignment) % alignment;
}

}  // namespace

absl::StatusOr<DeviceBuffer> CudaDevice::Allocate(size_t bytes, bool huge_pages) {
  const size_t alignment = bytes >= kLargeAlignment ? kLargeAlignment : kSmallAlignment;
  absl::StatusOr<std::byte*> block = runtime_.AllocateDevice(bytes);
  // Large blocks come aligned in practice, but nothing promises it.
  if (block.ok() && AlignUp(*block, alignment) != *block) {
    runtime_.FreeDevice(*block);
    block = runtime_.AllocateDevice(bytes + alignment);
  }
  if (!block.ok()) return block.status();
  std::byte* const data = AlignUp(*block, alignment);
  blocks_.emplace(data, *block);
  ++layout_;
  DeviceBuffer buffer(this, data, bytes);
  if (absl::Status status = runtime_.FillAsync(data, 0, bytes, stream_); !status.ok()) {
    return status;
  }
  return buffer;
}

void CudaDevice::Free(std::byte* data, size_t bytes) {
  runtime_.Synchronize(stream_).IgnoreError();  // kept, and reported by the back end
  const auto block = blocks_.find(data);
  runtime_.FreeDevice(block->second);
  blocks_.erase(block);
  ++layout_;
}

absl::Status CudaDevice::Copy(std::byte* to, const std::byte* from, size_t bytes) {
  ++copies_;
  absl::Status status = runtime_.CopyAsync(to, from, bytes, stream_);
  // Who copies a chunk would take it for a full pool (CacheManager::Reserve).
  return absl::IsResourceExhausted(status) ? absl::InternalError(status.message()) : status;
}

absl::Status CudaDevice::CopyToHost(std::byte* host, const std::byte* from, size_t bytes) {
  return runtime_.Copy(host, from, bytes, stream_);
}

absl::Status CudaDevice::CopyFromHost(std::byte* to, const std::byte* host, size_t bytes) {
  ++copies_;
  return Keep(runtime_.Copy(to, host, bytes, stream_));
}

}  // namespace refrain::kernels::cuda
