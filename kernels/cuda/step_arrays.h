#ifndef REFRAIN_KERNELS_CUDA_STEP_ARRAYS_H_
#define REFRAIN_KERNELS_CUDA_STEP_ARRAYS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cuda/runtime.h"
#include "kernels/device.h"

namespace refrain::kernels::cuda {

// A device buffer that host bytes are copied into again and again, without waiting: they go through
// one of two pinned buffers, each used again once its last copy is done, and the copy stands on the
// stream behind the kernels that read what was there before. The address stays while it is large
// enough. Engine thread; the runtime, the stream and the device outlive it. Failure: the status of
// the call; nothing was put on the stream then. FAILED_PRECONDITION while the stream is captured: a
// replay would copy what the pinned buffer holds by then.
class UploadBuffer {
 public:
  UploadBuffer(Runtime& runtime, Stream& stream, Device& device)
      : runtime_(runtime), stream_(stream), device_(device) {}
  ~UploadBuffer();
  UploadBuffer(const UploadBuffer&) = delete;
  UploadBuffer& operator=(const UploadBuffer&) = delete;

  // Takes the device memory of uploads of up to `bytes` bytes, and makes the events that pinned
  // buffers are waited for by; what was there is lost.
  absl::Status Reserve(size_t bytes);

  // Where `bytes` bytes can be written for the next Upload.
  absl::StatusOr<std::byte*> Stage(size_t bytes);
  // Copies the staged bytes; returns where they will be.
  absl::StatusOr<const std::byte*> Upload();
  // Both.
  absl::StatusOr<const std::byte*> Upload(std::span<const std::byte> bytes);

 private:
  struct Pinned {
    std::byte* data = nullptr;
    size_t bytes = 0;
    std::unique_ptr<Event> copied;
  };

  absl::Status HaveEvents();

  Runtime& runtime_;
  Stream& stream_;
  Device& device_;
  DeviceBuffer buffer_;
  std::array<Pinned, 2> pinned_;
  size_t next_ = 0;
  size_t staged_bytes_ = 0;
};

// The host arrays that operations of one step read, on the device: all of them in one copy when
// they are announced, any other array when it is asked for. An announced array is known by its
// address, size and content, so one that was changed or replaced since is simply copied anew.
// Threads and failure as UploadBuffer.
class StepArrays {
 public:
  StepArrays(Runtime& runtime, Stream& stream, Device& device);

  // Takes the device memory for announced arrays of so many bytes, and others up to `other_bytes`.
  absl::Status Reserve(std::span<const size_t> announced_bytes, size_t other_bytes);

  absl::Status Announce(std::span<const std::span<const std::byte>> arrays);
  // How many arrays had to be copied when they were asked for, so far.
  uint64_t loose_uploads() const { return loose_uploads_; }

  // Valid for kernels put on the stream before the next Announce; an array that was not announced
  // only until kLooseBuffers more of them were asked for.
  template <class T>
  absl::StatusOr<const T*> Find(std::span<const T> host) {
    absl::StatusOr<const std::byte*> found = FindBytes(std::as_bytes(host));
    if (!found.ok()) return found.status();
    return reinterpret_cast<const T*>(*found);
  }

 private:
  struct Announced {
    const std::byte* host;
    size_t bytes;
    size_t offset;
  };
  static constexpr size_t kLooseBuffers = 8;

  absl::StatusOr<const std::byte*> FindBytes(std::span<const std::byte> host);

  UploadBuffer fixed_;
  std::vector<Announced> announced_;
  std::vector<std::byte> content_;  // of the announced arrays
  const std::byte* device_ = nullptr;
  std::vector<std::unique_ptr<UploadBuffer>> loose_;  // used in turn
  size_t next_loose_ = 0;
  uint64_t loose_uploads_ = 0;
};

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_STEP_ARRAYS_H_
