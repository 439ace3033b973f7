// How a connection sees beside its answer that its client sends more, goes, or takes nothing; the
// rest of it is in connection.cc.

#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/error.hpp>
#include <cerrno>
#include <chrono>
#include <memory>
#include <utility>

#include "server/http/connection.h"

namespace refrain::server::http {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

constexpr std::chrono::milliseconds kCancelPeriod{100};
// Of the time that a client has for what it is sent: how often is looked whether it takes it.
constexpr int kLooksAtSent = 32;

}  // namespace

// Waits beside the answer for the client to send or to close. A wait has no effect of its own, so
// one that is still there when the next request is read does no harm.
void Connection::Watch() {
  if (watching_ || peer_gone_ || buffer_.size() >= kSentAheadBytes) return;
  if (stream_.encrypted()) return WatchEncrypted();
  stream_.socket().async_wait(asio::ip::tcp::socket::wait_read,
                              [self = shared_from_this()](const error_code& error) {
                                self->watching_ = false;
                                if (self->replying_ && !error) self->OnReadable();
                              });
  watching_ = true;  // not before: there may have been no memory for it
}

// What has arrived on the socket says nothing before it is decrypted, so this is a read. Others
// must not read beside it: StopWatching comes first.
void Connection::WatchEncrypted() {
  struct Lost {
    void operator()(Connection* connection) const {
      connection->watching_ = false;
      connection->OnPeerGone();
    }
  };
  stream_.tcp().expires_never();
  const auto room = buffer_.prepare(kReadBytes);
  watching_ = true;
  // Goes without the read having ended where there was no memory for one of its steps: no other
  // read would ever end behind it.
  std::unique_ptr<Connection, Lost> lost(this);
  stream_.async_read_some(room, [self = shared_from_this(), lost = std::move(lost)](
                                    const error_code& error, size_t bytes) mutable {
    static_cast<void>(lost.release());
    self->watching_ = false;
    self->buffer_.commit(bytes);
    if (error && error != asio::error::operation_aborted) return self->OnPeerGone();
    if (self->replying_) self->Watch();
    self->Wake();
  });
}

asio::awaitable<void> Connection::StopWatching() {
  if (!stream_.encrypted() || !watching_) co_return;
  // A cancellation between two reads of one record finds nothing to cancel.
  while (watching_) {
    stream_.tcp().cancel();
    co_await WaitForWakeup(std::chrono::steady_clock::now() + kCancelPeriod);
  }
}

void Connection::OnReadable() {
  // The wait may be one that began beside an earlier answer.
  if (buffer_.size() >= kSentAheadBytes) return;
  const auto room = buffer_.prepare(kReadBytes);
  const ssize_t bytes =
      ::recv(stream_.socket().native_handle(), room.data(), room.size(), MSG_DONTWAIT);
  if (bytes > 0) {
    buffer_.commit(static_cast<size_t>(bytes));
    Watch();
    return;
  }
  if (bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
    Watch();
    return;
  }
  OnPeerGone();
}

void Connection::OnPeerGone() {
  peer_gone_ = true;
  DropQueued();
  // The client may not read either. Closed and not cancelled: a cancellation between two of the
  // writes that a part takes would find nothing to cancel.
  if (writing_ != nullptr) stream_.close();
  Wake();
}

// What the socket holds of an answer blocks nothing, so that no write of ours would time out; it
// goes on to be looked at behind the answer.
void Connection::WatchSent() {
  if (watching_sent_) return;
  const auto now = std::chrono::steady_clock::now();
  const auto next = now + shared_->options.write_timeout / kLooksAtSent;
  sent_timer_.expires_at(sent_watch_.latest() > now ? std::min(next, sent_watch_.latest()) : next);
  sent_timer_.async_wait([weak = weak_from_this()](const error_code& error) {
    const auto self = weak.lock();
    if (error || self == nullptr) return;
    self->watching_sent_ = false;
    self->LookAtSent();
  });
  watching_sent_ = true;  // not before: there may have been no memory for it
}

void Connection::LookAtSent() {
  const std::optional<SentBytes> sent = SentBytesOf(stream_.socket().native_handle());
  if (!sent.has_value()) return;  // closed
  if (!sent_watch_.IsStalled(*sent, std::chrono::steady_clock::now())) {
    if (replying_ || sent->outstanding > 0) WatchSent();
    return;
  }
  // With a reset: the system would go on to offer what nobody takes, and keep it for that.
  const linger none = {.l_onoff = 1, .l_linger = 0};
  ::setsockopt(stream_.socket().native_handle(), SOL_SOCKET, SO_LINGER, &none, sizeof(none));
  CloseNow();
}

void Connection::DropQueued() {
  if (queued_ == nullptr) return;
  if (Request* dropped = queued_->TakeOrNull()) *dropped = Request();
}

}  // namespace refrain::server::http
