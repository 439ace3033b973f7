#include "kernels/cuda/emulated/emulated_queue.h"

#include <atomic>
#include <utility>

#include "kernels/cuda/emulated/emulated_stream.h"

namespace refrain::kernels::cuda::emulated {

thread_local int64_t DeviceState::current_id = 0;

int64_t DeviceState::NextId() {
  static std::atomic<int64_t> made = 0;
  return ++made;
}

void Queue::Put(Operation operation) {
  const std::lock_guard lock(device_->mutex);
  if (captured_.has_value()) {
    captured_->push_back(std::move(operation));
  } else {
    operations_.push_back(std::move(operation));
  }
}

void Queue::RunAll() {
  const std::lock_guard lock(device_->mutex);
  while (!operations_.empty() && !device_->error.has_value()) RunOne();
}

void Queue::RunUntil(const Ticket& ticket) {
  const std::lock_guard lock(device_->mutex);
  while (!ticket.passed && !operations_.empty() && !device_->error.has_value()) RunOne();
}

void Queue::RunOne() {
  const Operation operation = std::move(operations_.front());
  operations_.pop_front();
  if (operation.run) {
    device_->error = operation.run();
  } else if (operation.wait_for != nullptr) {
    if (operation.wait_for->queue != nullptr)
      operation.wait_for->queue->RunUntil(*operation.wait_for);
  } else {
    operation.pass->passed = true;
    operation.pass->when = std::chrono::steady_clock::now();
    return;
  }
  if (device_->races != nullptr && !operation.kernel) device_->races->NoteOperation(this);
}

std::vector<Operation> Queue::EndCapture() {
  std::vector<Operation> operations = *std::move(captured_);
  captured_.reset();
  capture_valid_ = true;
  return operations;
}

void EnqueueLaunch(Stream& stream, const GridShape& shape, std::function<void()> body) {
  if (stream.failure().has_value()) return;
  if (std::optional<std::string> refusal = RefusalOf(shape); refusal.has_value()) {
    stream.KeepFailure(*std::move(refusal));
    return;
  }
  auto* const queue = static_cast<Queue*>(stream.native());
  if (!queue->device().IsCurrent()) {
    stream.KeepFailure("launch of " + shape.kernel + ": not the calling thread's device");
    return;
  }
  if (!queue->capture_valid()) {
    stream.KeepFailure("launch of " + shape.kernel + ": the stream's capture is invalid");
    return;
  }
  if (queue->device().injected.Strikes("Launch")) {
    stream.KeepFailure("launch of " + shape.kernel + ": injected refusal",
                       queue->device().injected.refusal);
    return;
  }
  const bool fails = queue->device().injected.Strikes("Kernel");
  queue->Put({.run = [queue, shape, fails, body = std::move(body)]() -> std::optional<std::string> {
                if (fails) return "kernel " + shape.kernel + ": injected error of the device";
                DeviceState& device = queue->device();
                return RunGrid(shape, body, device.fibers, device.stale_copies,
                               {device.races.get(), queue});
              },
              .kernel = true});
}

}  // namespace refrain::kernels::cuda::emulated
