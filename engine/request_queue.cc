#include "engine/request_queue.h"

#include <new>
#include <utility>

namespace refrain::engine {

void RequestQueue::Push(std::unique_ptr<EncodedRequest> request) {
  bool closed = false;
  try {
    MutexLock lock(mutex_);
    closed = items_.closed;
    if (!closed) {
      items_.requests.push_back(std::move(request));
      changed_.NotifyOne();
      return;
    }
  } catch (const std::bad_alloc&) {
    request->prompt = {};  // push_back has left the request as it was; its end takes memory, too
  }
  request->End(closed ? absl::CancelledError("the engine has stopped") : NoMemoryForPrompt());
}

void RequestQueue::PostCancel(uint64_t request_number) {
  MutexLock lock(mutex_);
  if (items_.closed) return;
  items_.cancelled.push_back(request_number);
  changed_.NotifyOne();
}

void RequestQueue::Post(TenantEnd end) {
  {
    MutexLock lock(mutex_);
    if (!items_.closed) {
      items_.tenant_ends.push_back(std::move(end));
      changed_.NotifyOne();
      return;
    }
  }
  end.done(absl::UnavailableError("the engine has stopped"));
}

void RequestQueue::Send(CacheErrand errand) {
  {
    MutexLock lock(mutex_);
    if (!items_.closed) {
      items_.errands.push_back(std::move(errand));
      changed_.NotifyOne();
      return;
    }
  }
  errand(absl::UnavailableError("the engine has stopped"));
}

void RequestQueue::Close() {
  MutexLock lock(mutex_);
  items_.closed = true;
  changed_.NotifyOne();
}

bool RequestQueue::EmptyLocked() const {
  return items_.requests.empty() && items_.cancelled.empty() && items_.tenant_ends.empty() &&
         items_.errands.empty();
}

RequestQueue::Items RequestQueue::Take() {
  MutexLock lock(mutex_);
  Items taken;
  taken.requests = std::exchange(items_.requests, {});
  taken.cancelled = std::exchange(items_.cancelled, {});
  taken.tenant_ends = std::exchange(items_.tenant_ends, {});
  taken.errands = std::exchange(items_.errands, {});
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
