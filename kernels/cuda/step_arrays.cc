#include "kernels/cuda/step_arrays.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/copy_small.h"
#include "kernels/cuda/scratch.h"

namespace refrain::kernels::cuda {
namespace {

constexpr size_t kArrayAlignment = 16;
constexpr size_t kLeastBytes = 4096;

size_t Padded(size_t bytes) {
  return (bytes + kArrayAlignment - 1) / kArrayAlignment * kArrayAlignment;
}

// Growing by half at least, so that it does not happen every step.
size_t Grown(size_t have, size_t need) { return std::max({need, have + have / 2, kLeastBytes}); }

}  // namespace

UploadBuffer::~UploadBuffer() {
  runtime_.Synchronize(stream_).IgnoreError();
  for (Pinned& pinned : pinned_) {
    if (pinned.data != nullptr) runtime_.FreePinned(pinned.data);
  }
}

absl::Status UploadBuffer::HaveEvents() {
  for (Pinned& pinned : pinned_) {
    if (pinned.copied != nullptr) continue;
    absl::StatusOr<std::unique_ptr<Event>> event = runtime_.CreateEvent();
    if (!event.ok()) return event.status();
    pinned.copied = *std::move(event);
  }
  return absl::OkStatus();
}

absl::Status UploadBuffer::Reserve(size_t bytes) {
  if (absl::Status status = HaveEvents(); !status.ok()) return status;
  const size_t most = Grown(0, bytes);
  return ReserveScratch(device_, most, most, &buffer_);
}

absl::StatusOr<std::byte*> UploadBuffer::Stage(size_t bytes) {
  if (runtime_.IsCapturing(stream_)) {
    return absl::FailedPreconditionError(
        absl::StrCat(bytes, " bytes of a step cannot be copied while it is recorded"));
  }
  if (absl::Status status = HaveEvents(); !status.ok()) return status;  // nobody has reserved
  Pinned& pinned = pinned_[next_];
  if (absl::Status status = runtime_.Synchronize(*pinned.copied); !status.ok()) return status;
  if (pinned.bytes < bytes || pinned.data == nullptr) {
    const size_t grown = Grown(pinned.bytes, bytes);
    if (pinned.data != nullptr) runtime_.FreePinned(std::exchange(pinned.data, nullptr));
    pinned.bytes = 0;
    absl::StatusOr<std::byte*> data = runtime_.AllocatePinned(grown);
    if (!data.ok()) return data.status();
    pinned.data = *data;
    pinned.bytes = grown;
  }
  staged_bytes_ = bytes;
  return pinned.data;
}

absl::StatusOr<const std::byte*> UploadBuffer::Upload() {
  Pinned& pinned = pinned_[next_];
  absl::Status status =
      ReserveScratch(device_, staged_bytes_, Grown(buffer_.bytes(), staged_bytes_), &buffer_);
  if (!status.ok()) return status;
  if (staged_bytes_ <= kMostSmallBytes) {
    status = runtime_.MakeCurrent();
    if (status.ok()) LaunchCopySmall(stream_, {buffer_.data(), pinned.data, staged_bytes_});
    if (status.ok()) status = StatusOfLaunches(stream_);
  } else {
    status = runtime_.CopyAsync(buffer_.data(), pinned.data, staged_bytes_, stream_);
  }
  if (status.ok()) status = runtime_.Record(*pinned.copied, stream_);
  if (!status.ok()) return status;
  next_ = 1 - next_;
  return buffer_.data();
}

absl::StatusOr<const std::byte*> UploadBuffer::Upload(std::span<const std::byte> bytes) {
  absl::StatusOr<std::byte*> staged = Stage(bytes.size());
  if (!staged.ok()) return staged.status();
  if (!bytes.empty()) std::memcpy(*staged, bytes.data(), bytes.size());
  return Upload();
}

StepArrays::StepArrays(Runtime& runtime, Stream& stream, Device& device)
    : fixed_(runtime, stream, device) {
  for (size_t i = 0; i < kLooseBuffers; ++i) {
    loose_.push_back(std::make_unique<UploadBuffer>(runtime, stream, device));
  }
}

absl::Status StepArrays::Reserve(std::span<const size_t> announced_bytes, size_t other_bytes) {
  size_t bytes = 0;
  for (const size_t array : announced_bytes) bytes += Padded(array);
  absl::Status status = fixed_.Reserve(bytes);
  for (const auto& buffer : loose_) {
    if (status.ok()) status = buffer->Reserve(other_bytes);
  }
  return status;
}

absl::Status StepArrays::Announce(std::span<const std::span<const std::byte>> arrays) {
  announced_.clear();
  size_t bytes = 0;
  for (const std::span<const std::byte> array : arrays) {
    announced_.push_back({array.data(), array.size(), bytes});
    bytes += Padded(array.size());
  }
  content_.resize(bytes);
  for (const Announced& array : announced_) {
    if (array.bytes > 0) std::memcpy(content_.data() + array.offset, array.host, array.bytes);
  }
  absl::StatusOr<const std::byte*> uploaded = fixed_.Upload(content_);
  if (!uploaded.ok()) {
    announced_.clear();
    return uploaded.status();
  }
  device_ = *uploaded;
  return absl::OkStatus();
}

absl::StatusOr<const std::byte*> StepArrays::FindBytes(std::span<const std::byte> host) {
  for (const Announced& array : announced_) {
    if (array.host == host.data() && array.bytes == host.size() &&
        std::memcmp(array.host, content_.data() + array.offset, array.bytes) == 0) {
      return device_ + array.offset;
    }
  }
  ++loose_uploads_;
  next_loose_ = (next_loose_ + 1) % kLooseBuffers;
  return loose_[next_loose_]->Upload(host);
}

}  // namespace refrain::kernels::cuda
