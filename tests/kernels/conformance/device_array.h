#ifndef REFRAIN_TESTS_KERNELS_CONFORMANCE_DEVICE_ARRAY_H_
#define REFRAIN_TESTS_KERNELS_CONFORMANCE_DEVICE_ARRAY_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "kernels/backend.h"

namespace refrain::kernels {

// Numbers in a back end's memory, which may not be the host's. The back end outlives them.
template <class T>
class DeviceArray {
 public:
  DeviceArray(Backend& backend, const std::vector<T>& values)
      : backend_(backend), size_(values.size()) {
    auto buffer = backend.device().Allocate(size_ * sizeof(T), false);
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    buffer_ = *std::move(buffer);
    const absl::Status status = backend.device().CopyFromHost(
        buffer_.data(), reinterpret_cast<const std::byte*>(values.data()), size_ * sizeof(T));
    EXPECT_TRUE(status.ok()) << status;
  }

  T* data() const { return reinterpret_cast<T*>(buffer_.data()); }

  // What is there when all operations are done.
  std::vector<T> Read() const {
    absl::Status status = backend_.Synchronize();
    EXPECT_TRUE(status.ok()) << status;
    std::vector<T> values(size_);
    status = backend_.device().CopyToHost(reinterpret_cast<std::byte*>(values.data()),
                                          buffer_.data(), size_ * sizeof(T));
    EXPECT_TRUE(status.ok()) << status;
    return values;
  }

 private:
  Backend& backend_;
  size_t size_;
  DeviceBuffer buffer_;
};

using DeviceFloats = DeviceArray<float>;

}  // namespace refrain::kernels

#endif  // REFRAIN_TESTS_KERNELS_CONFORMANCE_DEVICE_ARRAY_H_
