// Who ends a connection from outside, and when; the rest of it is in connection.cc.

#include <sys/socket.h>

#include <boost/asio/post.hpp>
#include <utility>

#include "server/http/connection.h"

namespace refrain::server::http {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

// Until it is looked again: input may be less than is waited for (a header, a TLS record), and a
// cancellation between two reads of one finds nothing to cancel.
constexpr std::chrono::milliseconds kLookAgain{100};

}  // namespace

// Goes off for nothing once a request has come: that is cheaper than to cancel it each time.
void Connection::ArmIdleTimer(std::chrono::milliseconds timeout) {
  if (shared_->stopping) timeout = kLookAgain;
  if (timeout.count() == 0) {
    idle_timer_.expires_at(TimePoint::max());
    return;
  }
  idle_timer_.expires_after(timeout);
  idle_timer_.async_wait([weak = weak_from_this()](const error_code& error) {
    if (error) return;
    if (const auto self = weak.lock()) self->OnIdleTimer();
  });
}

void Connection::OnIdleTimer() {
  if (std::chrono::steady_clock::now() < idle_timer_.expiry()) return;
  if (shared_->stopping) return CutReadingShort();
  if (!waiting_for_request_ && !waiting_for_refused_body_) return;
  if (!HasInput()) stream_.tcp().cancel();
  ArmIdleTimer(kLookAgain);
}

bool Connection::HasInput() {
  char byte;
  return ::recv(stream_.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

void Connection::EndReading() {
  if (discarding_ && !HasInput()) stream_.tcp().cancel();
  CutReadingShort();
}

void Connection::CutReadingShort() {
  // Cancelled and not closed: what has been read, of which the coroutine has not been told yet, is
  // answered all the same.
  if ((waiting_for_request_ || waiting_for_more_) && !HasInput()) stream_.tcp().cancel();
  ArmIdleTimer(kLookAgain);
}

void Connection::EndIfIdle(std::shared_ptr<Connection> connection,
                           IdleConnections::TimePoint latest) {
  const auto home = connection->stream_.get_executor();
  // The last to go is destroyed there.
  asio::post(home, [connection = std::move(connection), latest] {
    const auto& idle = connection->idle_;
    if (!idle.has_value() || idle->since() > latest || connection->HasInput()) return;
    ++connection->shared_->options.connection_counts->evicted;
    connection->stream_.tcp().cancel();
  });
}

void Connection::CloseNow() {
  peer_gone_ = true;
  DropQueued();
  stream_.close();
  Wake();
}

}  // namespace refrain::server::http
