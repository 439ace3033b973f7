#ifndef REFRAIN_KERNELS_CUDA_EMULATED_EMULATED_QUEUE_H_
#define REFRAIN_KERNELS_CUDA_EMULATED_EMULATED_QUEUE_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/emulated/fiber.h"
#include "kernels/cuda/emulated/race_detector.h"
#include "kernels/cuda/stream.h"

namespace refrain::kernels::cuda::emulated {

class Queue;

// Where an event was recorded: passed when the queue has run up to there.
struct Ticket {
  Queue* queue = nullptr;
  bool captured = false;  // into a graph: the host cannot wait for it
  bool passed = false;
  std::chrono::steady_clock::time_point when;
};

// One thing on a queue; the first that is set.
struct Operation {
  std::function<std::optional<std::string>()> run = {};  // returns what went wrong
  std::shared_ptr<Ticket> wait_for = nullptr;
  std::shared_ptr<Ticket> pass = nullptr;
  bool kernel = false;  // what it runs
};

// Which call of the device fails, for tests.
struct InjectedFailure {
  std::string call;  // part of the call's name, "" = any
  int64_t index = std::numeric_limits<int64_t>::max();
  int64_t count = 1;
  Stream::Refusal refusal = Stream::Refusal::kOther;  // of a launch
  int64_t seen = 0;

  bool Strikes(std::string_view name) {
    if (name.find(call) == std::string_view::npos) return false;
    const int64_t number = seen++;
    return number >= index && number - index < count;
  }
};

// What all queues of one device share: the first error of the device, which every later call gets,
// the fibers its kernels run in, and one lock, for streams of a device may be used by different
// threads.
struct DeviceState {
  std::recursive_mutex mutex;
  std::optional<std::string> error;
  InjectedFailure injected;
  bool stale_copies = false;  // EmulatedOptions
  const int64_t id = NextId();

  // The device of the calling thread's launches: that of whoever called last, as cudaSetDevice's.
  void MakeCurrent() const { current_id = id; }
  bool IsCurrent() const { return current_id == id; }

  FiberPool fibers;
  std::unique_ptr<RaceDetector> races =
      RaceDetector::instrumented() ? std::make_unique<RaceDetector>() : nullptr;

 private:
  static int64_t NextId();
  static thread_local int64_t current_id;
};

// A stream of the emulated device: operations that run in order once someone waits for them.
class Queue {
 public:
  explicit Queue(std::shared_ptr<DeviceState> device) : device_(std::move(device)) {}

  DeviceState& device() { return *device_; }

  void Put(Operation operation);
  // Both stop early at an error of the device.
  void RunAll();
  void RunUntil(const Ticket& ticket);

  void BeginCapture() {
    captured_.emplace();
    capture_valid_ = true;
  }
  bool capturing() const { return captured_.has_value(); }
  // As a device does at a call that cannot be recorded: whatever comes behind it is refused, and
  // the capture ends without a graph.
  void InvalidateCapture() { capture_valid_ = false; }
  bool capture_valid() const { return capture_valid_; }
  std::vector<Operation> EndCapture();

 private:
  void RunOne();

  std::shared_ptr<DeviceState> device_;
  std::deque<Operation> operations_;
  std::optional<std::vector<Operation>> captured_;
  bool capture_valid_ = true;
};

}  // namespace refrain::kernels::cuda::emulated

#endif  // REFRAIN_KERNELS_CUDA_EMULATED_EMULATED_QUEUE_H_
