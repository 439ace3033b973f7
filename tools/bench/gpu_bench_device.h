#ifndef REFRAIN_TOOLS_BENCH_GPU_BENCH_DEVICE_H_
#define REFRAIN_TOOLS_BENCH_GPU_BENCH_DEVICE_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/runtime.h"

namespace refrain::bench {

struct GraphTiming {
  double median_s = 0, least_s = 0, most_s = 0;
};

// A CUDA device (or the emulated one) for a benchmark: memory that lives as long as it does, one
// stream, times by events around replays of a graph. What fails ends the program with a message:
// a benchmark has nothing else to do then. One thread.
class BenchDevice {
 public:
  explicit BenchDevice(int index);
  virtual ~BenchDevice();

  kernels::cuda::Runtime& runtime() { return *runtime_; }
  kernels::cuda::Stream& stream() { return *stream_; }

  std::byte* Allocate(size_t bytes);
  std::byte* AllocatePinned(size_t bytes);
  void Release(std::byte* data);  // of Allocate

  void CopyIn(std::byte* to, std::span<const std::byte> from);
  void CopyOut(std::span<std::byte> to, const std::byte* from);
  void Synchronize();

  template <class T>
  T* Upload(std::span<const T> values) {
    std::byte* const data = Allocate(values.size_bytes());
    CopyIn(data, std::as_bytes(values));
    return reinterpret_cast<T*>(data);
  }
  template <class T>
  std::vector<T> Download(const T* from, size_t count) {
    std::vector<T> values(count);
    CopyOut(std::as_writable_bytes(std::span(values)), reinterpret_cast<const std::byte*>(from));
    return values;
  }

  // Records what `record` puts on the stream and replays it: once to warm up, then `rounds` times,
  // each timed by itself.
  virtual GraphTiming TimeGraph(const std::function<void()>& record, int rounds);
  // The same of work put on the stream anew each time.
  GraphTiming TimeWork(const std::function<void()>& work, int rounds);

  // Bytes read plus bytes written per second by the device's own copy between the halves of `data`.
  double CopyBytesPerSecond(std::byte* data, size_t bytes, int rounds);

 private:
  GraphTiming Time(const std::function<void()>& work, int rounds);

  std::unique_ptr<kernels::cuda::Runtime> runtime_;
  std::unique_ptr<kernels::cuda::Stream> stream_;
  std::vector<std::byte*> allocated_, pinned_;
};

// Ends the program with a message where the status is not OK.
void MustBeOk(const absl::Status& status);

template <class T>
T MustHave(absl::StatusOr<T> value) {
  MustBeOk(value.status());
  return *std::move(value);
}

}  // namespace refrain::bench

#endif  // REFRAIN_TOOLS_BENCH_GPU_BENCH_DEVICE_H_
