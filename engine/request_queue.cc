#include "engine/request_queue.h"

#include <utility>

namespace refrain::engine {

void RequestQueue::Push(std::unique_ptr<EncodedRequest> request) {
  {
    MutexLock lock(mutex_);
    if (!items_.closed) {
      items_.requests.push_back(std::move(request));
      changed_.NotifyOne();
      return;
    }
  }
  request->stream->Finish(absl::CancelledError("the engine has stopped"));
}

void RequestQueue::PostCancel(uint64_t request_number) {
  MutexLock lock(mutex_);
  if (items_.closed) return;
  items_.cancelled.push_back(request_number);
  changed_.NotifyOne();
}

void RequestQueue::Ask(std::unique_ptr<CacheInspection> inspection) {
  {
    MutexLock lock(mutex_);
    if (!items_.closed) {
      items_.inspections.push_back(std::move(inspection));
      changed_.NotifyOne();
      return;
    }
  }
  inspection->answer.set_value(absl::UnavailableError("the engine has stopped"));
}

void RequestQueue::Close() {
  MutexLock lock(mutex_);
  items_.closed = true;
  changed_.NotifyOne();
}

bool RequestQueue::EmptyLocked() const {
  return items_.requests.empty() && items_.cancelled.empty() && items_.inspections.empty();
}

RequestQueue::Items RequestQueue::Take() {
  MutexLock lock(mutex_);
  Items taken;
  taken.requests = std::exchange(items_.requests, {});
  taken.cancelled = std::exchange(items_.cancelled, {});
  taken.inspections = std::exchange(items_.inspections, {});
  taken.closed = items_.closed;
  return taken;
}

RequestQueue::Items RequestQueue::WaitAndTake() {
  {
    MutexLock lock(mutex_);
    while (EmptyLocked() && !items_.closed) changed_.Wait(mutex_);
  }
  return Take();
}

}  // namespace refrain::engine
