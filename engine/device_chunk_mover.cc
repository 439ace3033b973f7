#include "engine/device_chunk_mover.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>

namespace refrain::engine {

DeviceChunkMover::DeviceChunkMover(KvStorage* storage, kernels::Backend* backend)
    : storage_(storage), backend_(backend) {
  const kernels::BackendInfo& info = backend->info();
  if (!info.reads_results_in_place) return;
  waiting_.reserve(kMostWaiting);
  shares_.resize(static_cast<size_t>(std::max(info.threads, 1)));
}

absl::Status DeviceChunkMover::CopyChunk(kvcache::ChunkId from, kvcache::ChunkId to) {
  const size_t bytes = storage_->layout().chunk_bytes();
  if (shares_.empty()) return storage_->CopyBytes(from, to, 0, bytes);
  const ChunkCopy copy{from, to};
  if (waiting_.size() == kMostWaiting || !IsIndependent(copy)) {
    if (absl::Status status = RunWaiting(); !status.ok()) return status;
  }
  waiting_.push_back(copy);
  return absl::OkStatus();
}

bool DeviceChunkMover::IsIndependent(const ChunkCopy& copy) const {
  return std::ranges::none_of(waiting_, [&](const ChunkCopy& other) {
    return other.to == copy.from || other.to == copy.to || other.from == copy.to;
  });
}

absl::Status DeviceChunkMover::RunWaiting() {
  if (waiting_.empty()) return absl::OkStatus();
  // Each thread has a range of its own, as huge pages that are new are cleared by who comes first,
  // while the others wait: chunks that are taken one behind the other lie so, too.
  const size_t total = waiting_.size() * storage_->layout().chunk_bytes();
  const size_t unit = kvcache::KvLayout::kLayerAlignmentBytes;
  const size_t share = (total / unit + shares_.size() - 1) / shares_.size() * unit;
  const auto copy = [&](int64_t i) {
    const size_t begin = std::min(static_cast<size_t>(i) * share, total);
    shares_[static_cast<size_t>(i)] = CopyRange(begin, std::min(begin + share, total));
  };
  // By reference: std::function takes memory for so many captures.
  backend_->ForEachOnHost(static_cast<int64_t>(shares_.size()), std::ref(copy));
  waiting_.clear();
  for (absl::Status& status : shares_) {
    if (!status.ok()) return std::exchange(status, absl::OkStatus());
  }
  return absl::OkStatus();
}

absl::Status DeviceChunkMover::CopyRange(size_t begin, size_t end) const {
  const size_t chunk_bytes = storage_->layout().chunk_bytes();
  while (begin < end) {
    const ChunkCopy& copy = waiting_[begin / chunk_bytes];
    const size_t offset = begin % chunk_bytes;
    const size_t bytes = std::min(chunk_bytes - offset, end - begin);
    if (absl::Status status = storage_->CopyBytes(copy.from, copy.to, offset, bytes);
        !status.ok()) {
      return status;
    }
    begin += bytes;
  }
  return absl::OkStatus();
}

}  // namespace refrain::engine
