#ifndef REFRAIN_SERVER_HTTP_QUEUED_REQUEST_H_
#define REFRAIN_SERVER_HTTP_QUEUED_REQUEST_H_

#include <atomic>
#include <utility>

#include "server/http/message.h"

namespace refrain::server::http {

// A request that waits for a worker thread. Whoever takes it, the worker or the I/O thread that
// sees its client go, has it. Inside http/ only.
class QueuedRequest {
 public:
  explicit QueuedRequest(Request request) : request_(std::move(request)) {}

  // Null when the other one has it. Any thread.
  Request* TakeOrNull() { return taken_.exchange(true) ? nullptr : &request_; }

 private:
  Request request_;
  std::atomic<bool> taken_{false};
};

}  // namespace refrain::server::http

#endif  // REFRAIN_SERVER_HTTP_QUEUED_REQUEST_H_
