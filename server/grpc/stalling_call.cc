#include "server/grpc/stalling_call.h"

#include <algorithm>

namespace refrain::server::rpc {

void StallingCall::BeginWrite() {
  MutexLock lock(mutex_);
  write_began_ = std::chrono::steady_clock::now();
}

void StallingCall::EndWrite() {
  MutexLock lock(mutex_);
  write_began_.reset();
  while (canceller_ != std::thread::id() && canceller_ != std::this_thread::get_id()) {
    cancel_ended_.Wait(mutex_);
  }
}

void StallingCall::EndIfStalled(std::chrono::steady_clock::time_point now,
                                std::chrono::milliseconds most, Log* log) {
  // So that a client that does read is told why.
  constexpr std::chrono::milliseconds kLastMessage{2000};
  const bool gives_up = GivesUp();
  if (gives_up) most = std::min(most, kLastMessage);
  {
    MutexLock lock(mutex_);
    if (!write_began_.has_value() || now - *write_began_ < most) return;
    write_began_.reset();
    canceller_ = std::this_thread::get_id();
  }
  if (gives_up) {
    log->Error("an answer that is not read is cut: such answers take more than limits.unread_bytes",
               {{"request", request_id()}});
  } else {
    log->Info("ended a call whose client does not read", {{"request", request_id()}});
  }
  context_->TryCancel();
  MutexLock lock(mutex_);
  canceller_ = std::thread::id();
  cancel_ended_.NotifyAll();
}

}  // namespace refrain::server::rpc
