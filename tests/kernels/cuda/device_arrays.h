#ifndef REFRAIN_TESTS_KERNELS_CUDA_DEVICE_ARRAYS_H_
#define REFRAIN_TESTS_KERNELS_CUDA_DEVICE_ARRAYS_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "kernels/cuda/emulated/emulated_runtime.h"

namespace refrain::kernels::cuda {

// An emulated device with a stream, and arrays there that are freed with it.
class DeviceArrays {
 public:
  DeviceArrays()
      : runtime_(emulated::MakeEmulatedRuntime({})),
        stream_(*runtime_->CreateStream(StreamPriority::kNormal)) {}
  ~DeviceArrays() {
    for (std::byte* block : blocks_) runtime_->FreeDevice(block);
  }
  DeviceArrays(const DeviceArrays&) = delete;
  DeviceArrays& operator=(const DeviceArrays&) = delete;

  Stream& stream() { return *stream_; }

  template <class T>
  T* Upload(const std::vector<T>& values) {
    blocks_.push_back(*runtime_->AllocateDevice(values.size() * sizeof(T)));
    Copy(blocks_.back(), values.data(), values.size() * sizeof(T));
    return reinterpret_cast<T*>(blocks_.back());
  }

  template <class T>
  std::vector<T> Download(const T* from, size_t count) {
    std::vector<T> values(count);
    Copy(values.data(), from, count * sizeof(T));
    return values;
  }

 private:
  void Copy(void* to, const void* from, size_t bytes) {
    EXPECT_TRUE(runtime_
                    ->Copy(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes,
                           *stream_)
                    .ok());
  }

  const std::unique_ptr<Runtime> runtime_;
  const std::unique_ptr<Stream> stream_;
  std::vector<std::byte*> blocks_;
};

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_TESTS_KERNELS_CUDA_DEVICE_ARRAYS_H_
