#ifndef REFRAIN_ENGINE_REQUEST_QUEUE_H_
#define REFRAIN_ENGINE_REQUEST_QUEUE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/annotated_mutex.h"
#include "engine/cache_errand.h"
#include "engine/encoded_request.h"
#include "engine/tenant_end.h"

namespace refrain::engine {

// The engine thread's inbox: encoded requests, cancellations, ends of tenants and errands, from any
// thread. Its length is bounded by the AdmissionLedger that every request has passed. After Close,
// what is pushed is dropped with its stream finished as CANCELLED.
class RequestQueue {
 public:
  struct Items {
    std::vector<std::unique_ptr<EncodedRequest>> requests;  // in order of arrival here
    std::vector<uint64_t> cancelled;                        // request numbers
    std::vector<TenantEnd> tenant_ends;
    std::vector<CacheErrand> errands;
    bool closed = false;
  };

  // Where the system refuses memory for it, its stream is finished as RESOURCE_EXHAUSTED.
  void Push(std::unique_ptr<EncodedRequest> request);
  void PostCancel(uint64_t request_number);
  // After Close these are told UNAVAILABLE at once.
  void Post(TenantEnd end);
  void Send(CacheErrand errand);
  void Close();

  // Everything there is; never blocks.
  Items Take();
  // The same, after sleeping until there is something.
  Items WaitAndTake();

 private:
  bool EmptyLocked() const REFRAIN_REQUIRES(mutex_);

  Mutex mutex_;
  ConditionVariable changed_;
  Items items_ REFRAIN_GUARDED_BY(mutex_);
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_REQUEST_QUEUE_H_
