#ifndef REFRAIN_SERVER_GRPC_STALLING_CALL_H_
#define REFRAIN_SERVER_GRPC_STALLING_CALL_H_

#include <grpcpp/server_context.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "engine/annotated_mutex.h"
#include "server/log.h"

namespace refrain::server::rpc {

// A call whose client may stop reading. Such a call is cancelled from outside, as no write or end
// of its own would get past what the client has not read: Reception's watcher asks each call that
// it knows (EndIfStalled), the call says when a message is on its way (BeginWrite, EndWrite).
//
// The context may go as soon as gRPC is done with the call, so OnDone begins with EndWrite, which
// waits for a cancel under way. Any thread. Cannot fail.
class StallingCall {
 public:
  virtual ~StallingCall() = default;

  // Cancels the call if one message has been on its way for so long; where the call gives up, for
  // two seconds.
  void EndIfStalled(std::chrono::steady_clock::time_point now, std::chrono::milliseconds most,
                    Log* log);

 protected:
  explicit StallingCall(::grpc::CallbackServerContext* context) : context_(context) {}

  void BeginWrite();
  // No write is on its way any more, and nobody is about to cancel it.
  void EndWrite();

 private:
  virtual const std::string& request_id() const = 0;
  // What is left is not worth waiting for until the client reads on.
  virtual bool GivesUp() { return false; }

  ::grpc::CallbackServerContext* const context_;
  Mutex mutex_;
  std::optional<std::chrono::steady_clock::time_point> write_began_ REFRAIN_GUARDED_BY(mutex_);
  // Who is in TryCancel. Calls of ours that gRPC makes out of it, on the same thread, do not wait
  // for it.
  std::thread::id canceller_ REFRAIN_GUARDED_BY(mutex_);
  ConditionVariable cancel_ended_;
};

}  // namespace refrain::server::rpc

#endif  // REFRAIN_SERVER_GRPC_STALLING_CALL_H_
