#ifndef REFRAIN_KERNELS_CUDA_RUNTIME_H_
#define REFRAIN_KERNELS_CUDA_RUNTIME_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/product_library.h"
#include "kernels/cuda/stream.h"

namespace refrain::kernels::cuda {

struct DeviceProperties {
  int index = 0;
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  size_t memory_bytes = 0;
  size_t l2_bytes = 0;
  size_t shared_bytes_per_block = 0;  // the most that a kernel may ask for
  size_t shared_bytes_per_multiprocessor = 0;

  int capability() const { return 10 * major + minor; }
};

// A point in a stream. Recorded again, it stands for the new point.
class Event {
 public:
  virtual ~Event() = default;
};

// What is kept in the stream: RESOURCE_EXHAUSTED where a launch found no memory, else INTERNAL.
inline absl::Status StatusOfLaunches(const Stream& stream) {
  if (!stream.failure().has_value()) return absl::OkStatus();
  return stream.lacks_memory() ? absl::ResourceExhaustedError(*stream.failure())
                               : absl::InternalError(*stream.failure());
}

// Work recorded from a stream, to be launched as one.
class Graph {
 public:
  virtual ~Graph() = default;
};

enum class StreamPriority : uint8_t { kNormal, kHigh };

// One CUDA device through the CUDA runtime, or the emulated device: the only thing through which
// host code of this back end touches a device, so that all of it runs in both.
//
// It owns nothing that it hands out: memory goes back by Free*, streams, events and graphs by
// destruction, before the runtime. It knows nothing of tensors. Threads: each call makes the device
// the calling thread's own; one thread at a time per stream, any thread otherwise. Failure:
// INTERNAL with the call that failed and the device's words. RESOURCE_EXHAUSTED from calls that
// make something (but EndCapture) or put it on a stream: they found no memory and did nothing
// (Allocate* with need and have); from those that wait only for a launch that was refused so. Once
// an error came from the device itself (a kernel that went out of bounds), every later call fails
// with that error.
class Runtime {
 public:
  virtual ~Runtime() = default;

  virtual const DeviceProperties& properties() const = 0;

  // Makes this the calling thread's device; Launch needs it.
  virtual absl::Status MakeCurrent() = 0;

  // Device memory is aligned to 256 bytes, its content undefined. Zero bytes are one byte.
  virtual absl::StatusOr<std::byte*> AllocateDevice(size_t bytes) = 0;
  virtual void FreeDevice(std::byte* data) = 0;
  virtual absl::StatusOr<std::byte*> AllocatePinned(size_t bytes) = 0;
  virtual void FreePinned(std::byte* data) = 0;
  virtual size_t FreeBytes() const = 0;  // of device memory; 0 when the device does not answer

  virtual absl::StatusOr<std::unique_ptr<Stream>> CreateStream(StreamPriority priority) = 0;
  // Waits for everything on the stream. The stream's kept failure (StatusOfLaunches), else an error
  // of the device.
  virtual absl::Status Synchronize(Stream& stream) = 0;

  // On the stream, behind what is there. Host memory must be pinned and stay as it is until the
  // copy is done.
  virtual absl::Status CopyAsync(std::byte* to, const std::byte* from, size_t bytes,
                                 Stream& stream) = 0;
  // The same of `rows` pieces of `row_bytes`, which begin `to_pitch` and `from_pitch` bytes apart
  // (row_bytes to kMaxPitch) within one allocation each: one operation of the copy engine instead
  // of one for each piece.
  static constexpr size_t kMaxPitch = (size_t{1} << 31) - 1;  // cudaDeviceProp::memPitch
  virtual absl::Status CopyRowsAsync(std::byte* to, size_t to_pitch, const std::byte* from,
                                     size_t from_pitch, size_t row_bytes, size_t rows,
                                     Stream& stream) = 0;
  virtual absl::Status FillAsync(std::byte* to, uint8_t value, size_t bytes, Stream& stream) = 0;
  // The same with any host memory; returns when it is done.
  virtual absl::Status Copy(std::byte* to, const std::byte* from, size_t bytes, Stream& stream) = 0;

  virtual absl::StatusOr<std::unique_ptr<Event>> CreateEvent() = 0;
  // For MillisecondsBetween. Recording it costs the device more: for benchmarks.
  virtual absl::StatusOr<std::unique_ptr<Event>> CreateTimingEvent() = 0;
  virtual absl::Status Record(Event& event, Stream& stream) = 0;
  // What is put on `stream` from now on runs after the event's last recorded point.
  virtual absl::Status WaitFor(Event& event, Stream& stream) = 0;
  virtual absl::Status Synchronize(Event& event) = 0;        // the host waits
  virtual absl::StatusOr<bool> HasPassed(Event& event) = 0;  // true before the first Record
  // Between two recorded points of timing events that have passed; the emulated device gives host
  // time.
  virtual absl::StatusOr<float> MillisecondsBetween(Event& begin, Event& end) = 0;

  // Records what is put on `stream` between the two calls instead of running it.
  virtual absl::Status BeginCapture(Stream& stream) = 0;
  virtual bool IsCapturing(Stream& stream) = 0;
  virtual absl::StatusOr<std::unique_ptr<Graph>> EndCapture(Stream& stream) = 0;
  // RESOURCE_EXHAUSTED: no memory for the launch; nothing of it runs.
  virtual absl::Status LaunchGraph(Graph& graph, Stream& stream) = 0;

  // For this device, which outlives it. NOT_FOUND or FAILED_PRECONDITION with why there is none.
  virtual absl::StatusOr<std::unique_ptr<ProductLibrary>> OpenProductLibrary() = 0;
};

// The devices of this machine that tell what they are; by number, of which some may be missing.
// FAILED_PRECONDITION with the reason where there is no driver, one too old, or no such device; an
// empty list does not occur.
absl::StatusOr<std::vector<DeviceProperties>> ListDevices();

// NOT_FOUND names the devices there are; FAILED_PRECONDITION as ListDevices, and with the reason
// where this device cannot be used, whatever the others are.
absl::StatusOr<std::unique_ptr<Runtime>> OpenDevice(int index);

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_RUNTIME_H_
