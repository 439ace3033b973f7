#include "kernels/cuda/emulated/emulated_runtime.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/emulated/emulated_grid.h"
#include "kernels/cuda/emulated/emulated_queue.h"

namespace refrain::kernels::cuda {
namespace emulated {
namespace {

// As cudaMemcpy, of no bytes also from and to no memory.
void Move(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes > 0) std::memmove(to, from, bytes);
}

class EmulatedStream final : public Stream {
 public:
  explicit EmulatedStream(std::shared_ptr<DeviceState> device)
      : EmulatedStream(std::make_unique<Queue>(std::move(device))) {}

 private:
  explicit EmulatedStream(std::unique_ptr<Queue> queue)
      : Stream(queue.get()), queue_(std::move(queue)) {}

  std::unique_ptr<Queue> queue_;
};

struct EmulatedEvent final : Event {
  std::shared_ptr<Ticket> ticket;  // null: not recorded yet
  bool timing = false;
};

// One that ends while a launch of it has not is an error of the device.
struct EmulatedGraph final : Graph {
  explicit EmulatedGraph(std::shared_ptr<DeviceState> device) : device(std::move(device)) {}
  ~EmulatedGraph() override {
    const std::lock_guard lock(device->mutex);
    if (*running > 0 && !device->error.has_value()) {
      device->error = "a graph was destroyed while it runs";
    }
  }

  const std::shared_ptr<DeviceState> device;
  const std::shared_ptr<std::atomic<int>> running = std::make_shared<std::atomic<int>>(0);
  std::vector<Operation> operations;
};

Queue& QueueOf(Stream& stream) { return *static_cast<Queue*>(stream.native()); }

class EmulatedRuntime final : public Runtime {
 public:
  explicit EmulatedRuntime(const EmulatedOptions& options) : options_(options) {
    properties_ = {options.index,           "emulated",           options.major,   options.minor,
                   options.multiprocessors, options.memory_bytes, size_t{1} << 20, kMaxSharedBytes,
                   kMaxSharedBytes + 1024};
    if (options_.card == nullptr) options_.card = std::make_shared<EmulatedCard>();
    device_->injected = {.call = options.failing_call,
                         .index = options.failing_call_index,
                         .count = options.failing_calls,
                         .refusal = options.failing_code == absl::StatusCode::kResourceExhausted
                                        ? Stream::Refusal::kNoMemory
                                        : Stream::Refusal::kOther};
    device_->stale_copies = options.stale_copies;
    device_->MakeCurrent();  // as OpenDevice does
  }
  ~EmulatedRuntime() override {
    for (const auto& [data, bytes] : device_memory_) {
      options_.card->used_bytes -= bytes;
      std::free(data);
    }
    for (const auto& [data, bytes] : pinned_memory_) std::free(data);
  }

  const DeviceProperties& properties() const override { return properties_; }
  absl::Status MakeCurrent() override {
    device_->MakeCurrent();
    return absl::OkStatus();
  }

  absl::StatusOr<std::byte*> AllocateDevice(size_t bytes) override {
    if (absl::Status status = Check("AllocateDevice"); !status.ok()) return status;
    if (bytes > FreeBytes()) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "AllocateDevice: need ", bytes, " bytes of device memory, have ", FreeBytes(),
          " free on device ", properties_.index, " (", properties_.name, ")"));
    }
    options_.card->used_bytes += bytes;
    return Allocate(device_memory_, bytes);
  }
  void FreeDevice(std::byte* data) override {
    options_.card->used_bytes -= Free(device_memory_, data);
  }
  absl::StatusOr<std::byte*> AllocatePinned(size_t bytes) override {
    if (absl::Status status = Check("AllocatePinned"); !status.ok()) return status;
    return Allocate(pinned_memory_, bytes);
  }
  void FreePinned(std::byte* data) override { Free(pinned_memory_, data); }
  size_t FreeBytes() const override {
    const size_t used_bytes = options_.card->used_bytes;
    return used_bytes < options_.memory_bytes ? options_.memory_bytes - used_bytes : 0;
  }

  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(StreamPriority) override {
    if (absl::Status status = Check("CreateStream"); !status.ok()) return status;
    return std::unique_ptr<Stream>(new EmulatedStream(device_));
  }
  absl::Status Synchronize(Stream& stream) override {
    ++options_.card->stream_waits;
    const absl::Status injected = Check("Synchronize");
    if (absl::Status status = NotCaptured("Synchronize", stream); !status.ok()) return status;
    // Also where it fails nothing is left that would use memory that is given back then.
    QueueOf(stream).RunAll();
    if (device_->races != nullptr) device_->races->NoteHostWait();
    return injected.ok() ? Result(stream) : injected;
  }

  absl::Status CopyAsync(std::byte* to, const std::byte* from, size_t bytes,
                         Stream& stream) override {
    if (absl::Status status = Check("CopyAsync"); !status.ok()) return status;
    for (const std::byte* end : {static_cast<const std::byte*>(to), from}) {
      if (!Known(end, bytes)) {
        return absl::InvalidArgumentError(
            absl::StrCat("CopyAsync: ", bytes, " bytes that are neither the device's nor pinned"));
      }
    }
    const bool uploads = Holds(pinned_memory_, from, bytes) && Holds(device_memory_, to, bytes);
    return Put(stream, [=, card = options_.card] {
      if (uploads) card->uploaded_bytes += bytes;
      Move(to, from, bytes);
    });
  }
  absl::Status CopyRowsAsync(std::byte* to, size_t to_pitch, const std::byte* from,
                             size_t from_pitch, size_t row_bytes, size_t rows,
                             Stream& stream) override {
    if (absl::Status status = Check("CopyRowsAsync"); !status.ok()) return status;
    if (rows == 0) return absl::OkStatus();
    if (std::min(to_pitch, from_pitch) < row_bytes || std::max(to_pitch, from_pitch) > kMaxPitch) {
      return absl::InvalidArgumentError(absl::StrCat("CopyRowsAsync: rows of ", row_bytes,
                                                     " bytes ", from_pitch, " and ", to_pitch,
                                                     " apart"));
    }
    if (!Known(to, (rows - 1) * to_pitch + row_bytes) ||
        !Known(from, (rows - 1) * from_pitch + row_bytes)) {
      return absl::InvalidArgumentError(
          absl::StrCat("CopyRowsAsync: ", rows,
                       " rows that are neither in one block of the device's nor pinned"));
    }
    return Put(stream, [=] {
      for (size_t row = 0; row < rows; ++row) {
        Move(to + row * to_pitch, from + row * from_pitch, row_bytes);
      }
    });
  }
  absl::Status FillAsync(std::byte* to, uint8_t value, size_t bytes, Stream& stream) override {
    if (absl::Status status = Check("FillAsync"); !status.ok()) return status;
    if (!Known(to, bytes)) {
      return absl::InvalidArgumentError(
          absl::StrCat("FillAsync: ", bytes, " bytes that are not the device's"));
    }
    return Put(stream, [=] { std::memset(to, value, bytes); });
  }
  absl::Status Copy(std::byte* to, const std::byte* from, size_t bytes, Stream& stream) override {
    if (absl::Status status = Check("Copy"); !status.ok()) return status;
    if (absl::Status status = NotCaptured("Copy", stream); !status.ok()) return status;
    QueueOf(stream).RunAll();
    if (device_->races != nullptr) device_->races->NoteHostWait();
    if (absl::Status status = Result(stream); !status.ok()) return status;
    Move(to, from, bytes);
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<Event>> CreateEvent() override {
    if (absl::Status status = Check("CreateEvent"); !status.ok()) return status;
    ++options_.card->events;
    return std::make_unique<EmulatedEvent>();
  }
  absl::StatusOr<std::unique_ptr<Event>> CreateTimingEvent() override {
    if (absl::Status status = Check("CreateTimingEvent"); !status.ok()) return status;
    ++options_.card->events;
    auto event = std::make_unique<EmulatedEvent>();
    event->timing = true;
    return event;
  }
  absl::Status Record(Event& event, Stream& stream) override {
    if (absl::Status status = Check("Record"); !status.ok()) return status;
    auto& own = static_cast<EmulatedEvent&>(event);
    own.ticket = std::make_shared<Ticket>();
    own.ticket->queue = &QueueOf(stream);
    own.ticket->captured = own.ticket->queue->capturing();
    own.ticket->queue->Put({.run = {}, .wait_for = nullptr, .pass = own.ticket});
    return absl::OkStatus();
  }
  absl::Status WaitFor(Event& event, Stream& stream) override {
    if (absl::Status status = Check("WaitFor"); !status.ok()) return status;
    if (auto& ticket = static_cast<EmulatedEvent&>(event).ticket; ticket != nullptr) {
      QueueOf(stream).Put({.wait_for = ticket});
    }
    return absl::OkStatus();
  }
  absl::Status Synchronize(Event& event) override {
    if (absl::Status status = Check("SynchronizeEvent"); !status.ok()) return status;
    if (auto& ticket = static_cast<EmulatedEvent&>(event).ticket; ticket != nullptr) {
      if (ticket->captured) {
        return absl::InternalError("SynchronizeEvent: an event that was recorded into a graph");
      }
      ticket->queue->RunUntil(*ticket);
      if (device_->races != nullptr) device_->races->NoteHostWait();
    }
    return DeviceError();
  }
  absl::StatusOr<bool> HasPassed(Event& event) override {
    if (absl::Status status = Check("HasPassed"); !status.ok()) return status;
    const auto& ticket = static_cast<EmulatedEvent&>(event).ticket;
    return ticket == nullptr || ticket->passed;
  }
  absl::StatusOr<float> MillisecondsBetween(Event& begin, Event& end) override {
    if (!static_cast<EmulatedEvent&>(begin).timing || !static_cast<EmulatedEvent&>(end).timing) {
      return absl::InternalError("MillisecondsBetween: an event without a time");
    }
    const auto& first = static_cast<EmulatedEvent&>(begin).ticket;
    const auto& last = static_cast<EmulatedEvent&>(end).ticket;
    if (first == nullptr || last == nullptr || !first->passed || !last->passed) {
      return absl::FailedPreconditionError("MillisecondsBetween: an event that has not passed");
    }
    return std::chrono::duration<float, std::milli>(last->when - first->when).count();
  }

  absl::Status BeginCapture(Stream& stream) override {
    if (absl::Status status = Check("BeginCapture"); !status.ok()) return status;
    QueueOf(stream).BeginCapture();
    return absl::OkStatus();
  }
  bool IsCapturing(Stream& stream) override { return QueueOf(stream).capturing(); }
  absl::StatusOr<std::unique_ptr<Graph>> EndCapture(Stream& stream) override {
    auto graph = std::make_unique<EmulatedGraph>(device_);
    const bool capturing = QueueOf(stream).capturing(), valid = QueueOf(stream).capture_valid();
    if (capturing) graph->operations = QueueOf(stream).EndCapture();
    if (absl::Status status = Check("EndCapture"); !status.ok()) return status;
    if (!capturing) return absl::FailedPreconditionError("EndCapture: the stream is not capturing");
    if (!valid) return absl::InternalError("EndCapture: the stream's capture is invalid");
    return graph;
  }
  absl::Status LaunchGraph(Graph& graph, Stream& stream) override {
    if (absl::Status status = Check("LaunchGraph"); !status.ok()) return status;
    const auto& own = static_cast<EmulatedGraph&>(graph);
    for (const Operation& operation : own.operations) QueueOf(stream).Put(operation);
    ++*own.running;
    return Put(stream, [running = own.running] { --*running; });
  }

  absl::StatusOr<std::unique_ptr<ProductLibrary>> OpenProductLibrary() override {
    if (absl::Status status = Check("OpenProductLibrary"); !status.ok()) return status;
    if (!options_.library.present) return absl::NotFoundError("the emulated device has no library");
    return MakeEmulatedProductLibrary(options_.library);
  }

 private:
  using Blocks = std::map<std::byte*, size_t>;

  // Whether the call of this name may go on.
  absl::Status Check(std::string_view call) {
    const std::lock_guard lock(device_->mutex);
    if (device_->injected.Strikes(call)) {
      return absl::Status(options_.failing_code,
                          absl::StrCat(std::string(call), ": injected failure"));
    }
    return DeviceError();
  }
  absl::Status DeviceError() {
    if (!device_->error.has_value()) return absl::OkStatus();
    return absl::InternalError(*device_->error);
  }
  absl::Status Result(const Stream& stream) {
    const absl::Status launches = StatusOfLaunches(stream);
    return launches.ok() ? DeviceError() : launches;
  }

  // The host cannot wait for what is only recorded; that it tried ends the recording.
  static absl::Status NotCaptured(std::string_view call, Stream& stream) {
    if (!QueueOf(stream).capturing()) return absl::OkStatus();
    QueueOf(stream).InvalidateCapture();
    return absl::InternalError(
        absl::StrCat(std::string(call), ": not while the stream is captured"));
  }

  template <class Fn>
  absl::Status Put(Stream& stream, Fn fn) {
    if (!QueueOf(stream).capture_valid()) {
      return absl::InternalError("the stream's capture is invalid");
    }
    QueueOf(stream).Put({.run = [fn]() -> std::optional<std::string> {
      fn();
      return std::nullopt;
    }});
    return absl::OkStatus();
  }

  std::byte* Allocate(Blocks& blocks, size_t bytes) {
    void* data = nullptr;
    if (posix_memalign(&data, 256, std::max<size_t>(bytes, 1)) != 0) throw std::bad_alloc();
    // Large pools stay untouched pages.
    constexpr size_t kFilledBytes = size_t{16} << 20;
    std::memset(data, 0xff, std::min(bytes, kFilledBytes));
    blocks.emplace(static_cast<std::byte*>(data), bytes);
    return static_cast<std::byte*>(data);
  }
  static size_t Free(Blocks& blocks, std::byte* data) {
    const auto at = blocks.find(data);
    const size_t bytes = at->second;
    blocks.erase(at);
    std::free(data);
    return bytes;
  }
  static bool Holds(const Blocks& blocks, const std::byte* data, size_t bytes) {
    auto at = blocks.upper_bound(const_cast<std::byte*>(data));
    if (at == blocks.begin()) return false;
    --at;
    return data >= at->first && data + bytes <= at->first + at->second;
  }
  bool Known(const std::byte* data, size_t bytes) const {
    return bytes == 0 || Holds(device_memory_, data, bytes) || Holds(pinned_memory_, data, bytes);
  }

  EmulatedOptions options_;
  DeviceProperties properties_;
  std::shared_ptr<DeviceState> device_ = std::make_shared<DeviceState>();
  Blocks device_memory_, pinned_memory_;
};

}  // namespace

std::unique_ptr<Runtime> MakeEmulatedRuntime(const EmulatedOptions& options) {
  return std::make_unique<EmulatedRuntime>(options);
}

}  // namespace emulated

absl::StatusOr<std::vector<DeviceProperties>> ListDevices() {
  return std::vector<DeviceProperties>{emulated::MakeEmulatedRuntime({})->properties()};
}

absl::StatusOr<std::unique_ptr<Runtime>> OpenDevice(int index) {
  if (index != 0) {
    return absl::NotFoundError(
        absl::StrCat("there is no CUDA device ", index, "; devices: 0 (emulated)"));
  }
  return emulated::MakeEmulatedRuntime({});
}

}  // namespace refrain::kernels::cuda
