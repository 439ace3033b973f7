#include "kernels/cpu/weight_memory.h"

#include <cassert>
#include <iterator>
#include <utility>

namespace refrain::kernels::cpu {
namespace {

constexpr size_t kArenaBytes = size_t{32} << 20;
constexpr size_t kPageBytes = 4096;

}  // namespace

absl::StatusOr<DeviceBuffer> WeightMemory::Allocate(size_t bytes, bool /*huge_pages*/) {
  const size_t needed = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  std::lock_guard lock(mutex_);
  auto arena = arenas_.find(current_);
  if (arena == arenas_.end() || arena->second.memory.bytes() - arena->second.used_bytes < needed) {
    // A large weight has an arena of its own, and the one being filled stays.
    const bool own = needed > kArenaBytes / 2;
    absl::StatusOr<DeviceBuffer> memory = device_.Allocate(own ? needed : kArenaBytes, true);
    if (!memory.ok()) return memory.status();
    const std::byte* begin = memory->data();
    arena = arenas_.emplace(begin, Arena{*std::move(memory)}).first;
    if (!own) current_ = begin;
  }
  std::byte* data = arena->second.memory.data() + arena->second.used_bytes;
  arena->second.used_bytes += needed;
  ++arena->second.allocations;
  return DeviceBuffer(this, data, bytes);
}

void WeightMemory::Free(std::byte* data, size_t /*bytes*/) {
  std::lock_guard lock(mutex_);
  const auto arena = std::prev(arenas_.upper_bound(data));
  assert(arena->second.allocations > 0);
  if (--arena->second.allocations == 0) {
    if (arena->first == current_) current_ = nullptr;
    arenas_.erase(arena);
  }
}

absl::Status WeightMemory::Copy(std::byte* to, const std::byte* from, size_t bytes) {
  return device_.Copy(to, from, bytes);
}

absl::Status WeightMemory::CopyToHost(std::byte* host, const std::byte* from, size_t bytes) {
  return device_.CopyToHost(host, from, bytes);
}

absl::Status WeightMemory::CopyFromHost(std::byte* to, const std::byte* host, size_t bytes) {
  return device_.CopyFromHost(to, host, bytes);
}

}  // namespace refrain::kernels::cpu
