#ifndef REFRAIN_KERNELS_DEVICE_H_
#define REFRAIN_KERNELS_DEVICE_H_

#include <cstddef>
#include <limits>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"

namespace refrain::kernels {

class Device;

// Owns one allocation of a Device and gives it back on destruction. Move-only. The device must
// outlive it.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(Device* device, std::byte* data, size_t bytes)
      : device_(device), data_(data), bytes_(bytes) {}
  DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  ~DeviceBuffer();

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  Device* device_ = nullptr;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// Memory of one compute device, and copies inside it and to the host. It knows nothing of tensors
// or chunks. Called by the engine thread (weights at load, KV pool, chunk copies); an
// implementation must allow Copy* from one thread at a time, and from all threads of
// Backend::ForEachOnHost where the host may read its memory. Failure: Allocate returns
// RESOURCE_EXHAUSTED with the size asked for; copies report a broken device as INTERNAL, those from
// and to the host a want of memory for the copy itself as RESOURCE_EXHAUSTED.
class Device {
 public:
  virtual ~Device() = default;

  // At least `bytes` bytes, aligned to 2 MiB when that large, else to 4,096; zero-filled on first
  // touch; pages are not touched here. Host memory asks for transparent huge pages when
  // `huge_pages`: fewer faults and misses, at up to 2 MiB more than what was touched.
  virtual absl::StatusOr<DeviceBuffer> Allocate(size_t bytes, bool huge_pages) = 0;

  virtual absl::Status Copy(std::byte* to, const std::byte* from, size_t bytes) = 0;
  virtual absl::Status CopyToHost(std::byte* host, const std::byte* from, size_t bytes) = 0;
  virtual absl::Status CopyFromHost(std::byte* to, const std::byte* host, size_t bytes) = 0;

  // Lets pages of a buffer that nobody has touched be there, so that whoever writes first need not
  // wait for them; what the buffer holds stays. Begins at a multiple of 4,096. Any thread, beside
  // any use of the buffer. False when it cannot be done, or there is nothing to do.
  virtual bool Populate(std::byte* data, size_t bytes) { return false; }

  // Free bytes now, for sizing the KV pool.
  virtual size_t AvailableBytes() const = 0;
  // Bytes that there are, free or not; the greatest size_t where Allocate refuses what does not
  // fit, or where they are not known.
  virtual size_t TotalBytes() const { return std::numeric_limits<size_t>::max(); }

 private:
  friend class DeviceBuffer;
  virtual void Free(std::byte* data, size_t bytes) = 0;
};

inline DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

inline DeviceBuffer::~DeviceBuffer() {
  if (data_ != nullptr) device_->Free(data_, bytes_);
}

}  // namespace refrain::kernels

#endif  // REFRAIN_KERNELS_DEVICE_H_
