#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/cublas_lt.h"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/runtime.h"

namespace refrain::kernels::cuda {
namespace {

class CudaStream final : public Stream {
 public:
  explicit CudaStream(cudaStream_t stream) : Stream(stream), stream_(stream) {}
  ~CudaStream() { cudaStreamDestroy(stream_); }

 private:
  cudaStream_t stream_;
};

class CudaEvent final : public Event {
 public:
  explicit CudaEvent(cudaEvent_t event) : event_(event) {}
  ~CudaEvent() override { cudaEventDestroy(event_); }
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_;
};

class CudaGraph final : public Graph {
 public:
  CudaGraph(cudaGraph_t graph, cudaGraphExec_t executable)
      : graph_(graph), executable_(executable) {}
  ~CudaGraph() override {
    cudaGraphExecDestroy(executable_);
    cudaGraphDestroy(graph_);
  }
  cudaGraphExec_t get() const { return executable_; }

 private:
  cudaGraph_t graph_;
  cudaGraphExec_t executable_;
};

cudaStream_t Native(Stream& stream) { return static_cast<cudaStream_t>(stream.native()); }
cudaEvent_t Native(Event& event) { return static_cast<CudaEvent&>(event).get(); }

absl::StatusOr<DeviceProperties> ReadProperties(int index) {
  cudaDeviceProp prop;
  absl::Status status = StatusOf(cudaGetDeviceProperties(&prop, index), "cudaGetDeviceProperties");
  if (!status.ok()) return status;
  return DeviceProperties{.index = index,
                          .name = prop.name,
                          .major = prop.major,
                          .minor = prop.minor,
                          .multiprocessors = prop.multiProcessorCount,
                          .memory_bytes = prop.totalGlobalMem,
                          .l2_bytes = static_cast<size_t>(prop.l2CacheSize),
                          .shared_bytes_per_block = prop.sharedMemPerBlockOptin,
                          .shared_bytes_per_multiprocessor = prop.sharedMemPerMultiprocessor};
}

class CudaRuntime final : public Runtime {
 public:
  explicit CudaRuntime(DeviceProperties properties) : properties_(std::move(properties)) {}

  const DeviceProperties& properties() const override { return properties_; }

  absl::Status MakeCurrent() override {
    return StatusOf(cudaSetDevice(properties_.index), "cudaSetDevice");
  }

  absl::StatusOr<std::byte*> AllocateDevice(size_t bytes) override {
    void* data = nullptr;
    absl::Status status = Current([&] {
      const cudaError_t error = cudaMalloc(&data, std::max<size_t>(bytes, 1));
      if (error != cudaErrorMemoryAllocation) return StatusOf(error, "cudaMalloc");
      cudaGetLastError();
      return absl::ResourceExhaustedError(
          absl::StrCat("cudaMalloc: need ", bytes, " bytes of device memory, have ", FreeBytes(),
                       " free on device ", properties_.index, " (", properties_.name, ")"));
    });
    if (!status.ok()) return status;
    return static_cast<std::byte*>(data);
  }

  void FreeDevice(std::byte* data) override {
    Current([&] { return StatusOf(cudaFree(data), "cudaFree"); }).IgnoreError();
  }

  absl::StatusOr<std::byte*> AllocatePinned(size_t bytes) override {
    void* data = nullptr;
    absl::Status status = Current([&] {
      const cudaError_t error = cudaMallocHost(&data, std::max<size_t>(bytes, 1));
      if (error != cudaErrorMemoryAllocation) return StatusOf(error, "cudaMallocHost");
      cudaGetLastError();
      return absl::ResourceExhaustedError(
          absl::StrCat("cudaMallocHost: cannot pin ", bytes, " bytes of host memory"));
    });
    if (!status.ok()) return status;
    return static_cast<std::byte*>(data);
  }

  void FreePinned(std::byte* data) override {
    Current([&] { return StatusOf(cudaFreeHost(data), "cudaFreeHost"); }).IgnoreError();
  }

  size_t FreeBytes() const override {
    size_t free = 0, total = 0;
    if (cudaSetDevice(properties_.index) != cudaSuccess) return 0;
    return cudaMemGetInfo(&free, &total) == cudaSuccess ? free : 0;
  }

  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(StreamPriority priority) override {
    cudaStream_t stream = nullptr;
    absl::Status status = Current([&] {
      int lowest = 0, highest = 0;
      cudaDeviceGetStreamPriorityRange(&lowest, &highest);
      return StatusOfNew(
          cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                       priority == StreamPriority::kHigh ? highest : lowest),
          "cudaStreamCreateWithPriority");
    });
    if (!status.ok()) return status;
    return std::unique_ptr<Stream>(new CudaStream(stream));
  }

  absl::Status Synchronize(Stream& stream) override {
    absl::Status status = Current(
        [&] { return StatusOf(cudaStreamSynchronize(Native(stream)), "cudaStreamSynchronize"); });
    const absl::Status launches = StatusOfLaunches(stream);
    return launches.ok() ? status : launches;
  }

  absl::Status CopyAsync(std::byte* to, const std::byte* from, size_t bytes,
                         Stream& stream) override {
    return Current([&] {
      return StatusOfNew(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, Native(stream)),
                         "cudaMemcpyAsync");
    });
  }

  absl::Status CopyRowsAsync(std::byte* to, size_t to_pitch, const std::byte* from,
                             size_t from_pitch, size_t row_bytes, size_t rows,
                             Stream& stream) override {
    return Current([&] {
      return StatusOfNew(cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, row_bytes, rows,
                                           cudaMemcpyDefault, Native(stream)),
                         "cudaMemcpy2DAsync");
    });
  }

  absl::Status FillAsync(std::byte* to, uint8_t value, size_t bytes, Stream& stream) override {
    return Current([&] {
      return StatusOfNew(cudaMemsetAsync(to, value, bytes, Native(stream)), "cudaMemsetAsync");
    });
  }

  absl::Status Copy(std::byte* to, const std::byte* from, size_t bytes, Stream& stream) override {
    absl::Status status = CopyAsync(to, from, bytes, stream);
    return status.ok() ? Synchronize(stream) : status;
  }

  // CUDA runtime API: with cudaEventDisableTiming an event is cheapest to wait for and to ask.
  absl::StatusOr<std::unique_ptr<Event>> CreateEvent() override {
    return MakeEvent(cudaEventDisableTiming);
  }
  absl::StatusOr<std::unique_ptr<Event>> CreateTimingEvent() override {
    return MakeEvent(cudaEventDefault);
  }

  absl::Status Record(Event& event, Stream& stream) override {
    return Current([&] {
      return StatusOfNew(cudaEventRecord(Native(event), Native(stream)), "cudaEventRecord");
    });
  }

  absl::Status WaitFor(Event& event, Stream& stream) override {
    return Current([&] {
      return StatusOfNew(cudaStreamWaitEvent(Native(stream), Native(event), 0),
                         "cudaStreamWaitEvent");
    });
  }

  absl::Status Synchronize(Event& event) override {
    return Current(
        [&] { return StatusOf(cudaEventSynchronize(Native(event)), "cudaEventSynchronize"); });
  }

  absl::StatusOr<bool> HasPassed(Event& event) override {
    bool passed = false;
    absl::Status status = Current([&] {
      const cudaError_t error = cudaEventQuery(Native(event));
      passed = error == cudaSuccess;
      if (error != cudaErrorNotReady) return StatusOf(error, "cudaEventQuery");
      cudaGetLastError();
      return absl::OkStatus();
    });
    if (!status.ok()) return status;
    return passed;
  }

  absl::StatusOr<float> MillisecondsBetween(Event& begin, Event& end) override {
    float milliseconds = 0;
    absl::Status status = Current([&] {
      return StatusOf(cudaEventElapsedTime(&milliseconds, Native(begin), Native(end)),
                      "cudaEventElapsedTime");
    });
    if (!status.ok()) return status;
    return milliseconds;
  }

  absl::Status BeginCapture(Stream& stream) override {
    return Current([&] {
      return StatusOf(cudaStreamBeginCapture(Native(stream), cudaStreamCaptureModeRelaxed),
                      "cudaStreamBeginCapture");
    });
  }

  bool IsCapturing(Stream& stream) override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const bool told = cudaStreamIsCapturing(Native(stream), &status) == cudaSuccess;
    return told && status != cudaStreamCaptureStatusNone;
  }

  absl::StatusOr<std::unique_ptr<Graph>> EndCapture(Stream& stream) override {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    absl::Status status = Current([&] {
      absl::Status ended =
          StatusOf(cudaStreamEndCapture(Native(stream), &graph), "cudaStreamEndCapture");
      if (!ended.ok()) return ended;
      return StatusOf(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    });
    if (!status.ok()) {
      if (graph != nullptr) cudaGraphDestroy(graph);
      return status;
    }
    return std::unique_ptr<Graph>(new CudaGraph(graph, executable));
  }

  absl::Status LaunchGraph(Graph& graph, Stream& stream) override {
    return Current([&] {
      return StatusOfNew(cudaGraphLaunch(static_cast<CudaGraph&>(graph).get(), Native(stream)),
                         "cudaGraphLaunch");
    });
  }

  absl::StatusOr<std::unique_ptr<ProductLibrary>> OpenProductLibrary() override {
    if (absl::Status status = MakeCurrent(); !status.ok()) return status;
    return OpenCublasLt();
  }

 private:
  template <class Fn>
  absl::Status Current(const Fn& fn) {
    absl::Status status = MakeCurrent();
    return status.ok() ? fn() : status;
  }

  absl::StatusOr<std::unique_ptr<Event>> MakeEvent(unsigned flags) {
    cudaEvent_t event = nullptr;
    absl::Status status = Current([&] {
      return StatusOfNew(cudaEventCreateWithFlags(&event, flags), "cudaEventCreateWithFlags");
    });
    if (!status.ok()) return status;
    return std::make_unique<CudaEvent>(event);
  }

  DeviceProperties properties_;
};

std::string VersionText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

// CUDA calls a missing driver one that is too old.
std::string WhyNone(cudaError_t error) {
  if (error == cudaSuccess) return "the driver lists none";
  int driver = 0, runtime = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    return "no NVIDIA driver is installed (libcuda.so.1 was not found)";
  }
  if (error == cudaErrorInsufficientDriver && cudaRuntimeGetVersion(&runtime) == cudaSuccess) {
    return absl::StrCat("the driver is for CUDA ", VersionText(driver), ", this program needs ",
                        VersionText(runtime));
  }
  return cudaGetErrorString(error);
}

// A device's properties, or why it has none: a sick one is nobody's business but who asks for it.
using Answer = absl::StatusOr<DeviceProperties>;

// By number; at least one.
absl::StatusOr<std::vector<Answer>> AskDevices() {
  // By default a kernel's code takes device memory when it is first launched: in the middle of a
  // step, once the KV cache has been given what was free. What the operator has set stays. Read by
  // the first call of the runtime.
  setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/0);
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    cudaGetLastError();
    return absl::FailedPreconditionError(absl::StrCat("no CUDA device: ", WhyNone(error)));
  }
  std::vector<Answer> answers;
  for (int i = 0; i < count; ++i) answers.push_back(ReadProperties(i));
  return answers;
}

// "0 (NVIDIA H200), 1 (cannot be used: ...)".
std::string NamesOf(const std::vector<Answer>& answers) {
  std::string names;
  for (size_t i = 0; i < answers.size(); ++i) {
    absl::StrAppend(&names, i == 0 ? "" : ", ", i, " (");
    if (answers[i].ok()) {
      absl::StrAppend(&names, answers[i]->name, ")");
    } else {
      absl::StrAppend(&names, "cannot be used: ", answers[i].status().message(), ")");
    }
  }
  return names;
}

}  // namespace

absl::StatusOr<std::vector<DeviceProperties>> ListDevices() {
  absl::StatusOr<std::vector<Answer>> answers = AskDevices();
  if (!answers.ok()) return answers.status();
  std::vector<DeviceProperties> devices;
  for (const Answer& answer : *answers) {
    if (answer.ok()) devices.push_back(*answer);
  }
  if (devices.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("no CUDA device can be used: ", NamesOf(*answers)));
  }
  return devices;
}

absl::StatusOr<std::unique_ptr<Runtime>> OpenDevice(int index) {
  absl::StatusOr<std::vector<Answer>> answers = AskDevices();
  if (!answers.ok()) return answers.status();
  if (index < 0 || index >= static_cast<int>(answers->size())) {
    return absl::NotFoundError(
        absl::StrCat("there is no CUDA device ", index, "; devices: ", NamesOf(*answers)));
  }
  const Answer& answer = (*answers)[static_cast<size_t>(index)];
  if (!answer.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("CUDA device ", index, " cannot be used: ", answer.status().message()));
  }
  auto runtime = std::make_unique<CudaRuntime>(*answer);
  // Makes the driver's context, which is where a card that is full, or that another process has for
  // itself, fails.
  if (absl::Status status = runtime->MakeCurrent(); !status.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("CUDA device ", index, " (", runtime->properties().name,
                     ") cannot be used: ", std::string(status.message())));
  }
  return std::unique_ptr<Runtime>(std::move(runtime));
}

}  // namespace refrain::kernels::cuda
