// How a connection sends its answers; the rest of it is in connection.cc.

#include <sys/socket.h>

#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <chrono>
#include <exception>
#include <utility>

#include "server/http/connection.h"

namespace refrain::server::http {

namespace asio = boost::asio;

namespace {

// Parts that are sent one after the other before other connections get their turn.
constexpr int kPartsInARow = 4;

}  // namespace

asio::awaitable<bool> Connection::SendReply(std::unique_ptr<Reply> reply, Framing framing,
                                            Record* record) {
  if (shared_->draining) framing.keep_alive = false;
  Sending sending{.reply = std::move(reply),
                  .framer = ReplyFramer(std::move(framing)),
                  .notes = record->notes.get()};
  replying_ = true;
  woken_ = false;
  Watch();
  WatchSent();
  sending.reply->Start(wakeups_->MakeWaker(weak_from_this()));
  for (sending.state = Pump(&sending); sending.state != Sending::State::kDone;) {
    if (sending.state == Sending::State::kWaiting) {
      parked_ = &sending;
      co_await WaitForWakeup(NextPing(sending));
      parked_ = nullptr;
      // OnWakeup has gone on; without it somebody says that the client is gone, or it is time for a
      // ping: later than was thought where OnWakeup has sent something.
      if (sending.state != Sending::State::kWaiting && !peer_gone_) continue;
      if (!peer_gone_ && std::chrono::steady_clock::now() >= NextPing(sending)) {
        sending.state = Ping(&sending);
        continue;
      }
    } else if (sending.state == Sending::State::kMaking) {
      sending.state = co_await MakePart(&sending);
      continue;
    } else if (sending.state == Sending::State::kBlocked) {
      writing_ = sending.last ? nullptr : &sending;
      if (writing_ != nullptr) sending.reply->WhileBlocked();
      if (!co_await WriteFramed(&sending)) peer_gone_ = true;
      writing_ = nullptr;
      sending.bytes.clear();
      sending.sent_bytes = 0;
      if (!peer_gone_) NoteSent(&sending);
    } else {
      co_await asio::post(stream_.get_executor(), asio::use_awaitable);
    }
    sending.state = Pump(&sending);
  }
  sending.reply.reset();  // before anything else waits: cancels when it was not finished
  replying_ = false;
  co_await StopWatching();
  if (sending.framer.started()) record->status = sending.head_status;
  record->complete = sending.last && !peer_gone_;
  Report(*record);
  answering_.reset();
  if (peer_gone_) co_return false;
  if (!sending.framer.keep_alive()) {
    co_await DiscardInput(kCloseTime);
    co_return false;
  }
  leaving_ = shared_->draining;
  co_return true;
}

Sending::State Connection::Pump(Sending* sending) { return Try(&Connection::PumpParts, sending); }

Sending::State Connection::Ping(Sending* sending) { return Try(&Connection::PingOnce, sending); }

Sending::State Connection::Try(Sending::State (Connection::*step)(Sending*), Sending* sending) {
  try {
    return (this->*step)(sending);
  } catch (const std::exception& fault) {
    Fail(fault, sending);
  }
  if (!sending->broken) return SendFramed(sending);
  peer_gone_ = true;
  return Sending::State::kDone;
}

Sending::State Connection::PumpParts(Sending* sending) {
  using State = Sending::State;
  for (int i = 0; i < kPartsInARow; ++i) {
    if (sending->last || peer_gone_) return State::kDone;
    ReplyPart part = sending->reply->Next();
    if (part.make) {
      sending->make = std::move(part.make);
      return State::kMaking;
    }
    Frame(std::move(part), sending);
    if (const State state = SendFramed(sending); state != State::kYielding) return state;
  }
  return sending->last ? State::kDone : State::kYielding;
}

Sending::State Connection::PingOnce(Sending* sending) {
  Frame(sending->reply->Ping(), sending);
  sending->can_ping = !sending->bytes.empty();
  return SendFramed(sending);
}

Connection::TimePoint Connection::NextPing(const Sending& sending) const {
  const std::chrono::milliseconds interval = shared_->options.ping_interval;
  const bool pings = interval.count() > 0 && sending.can_ping;
  return pings ? sending.last_sent + interval : TimePoint::max();
}

// The client may go meanwhile; the reply stays until the worker is done with it.
asio::awaitable<Sending::State> Connection::MakePart(Sending* sending) {
  const auto make = std::exchange(sending->make, nullptr);
  const std::function<void()> work = [&] {
    try {
      Frame(make(), sending);
    } catch (const std::exception& fault) {
      Fail(fault, sending);
    }
  };
  co_await OnThread(&shared_->workers, sending->notes, work);
  if (sending->broken) peer_gone_ = true;
  if (peer_gone_) co_return Sending::State::kDone;
  // A wakeup meanwhile may be forgotten by now, so that there is always a Next behind it.
  const Sending::State state = SendFramed(sending);
  co_return state == Sending::State::kWaiting ? Sending::State::kYielding : state;
}

void Connection::Frame(ReplyPart part, Sending* sending) const {
  sending->last = part.last;
  // One that has said that the connection is kept is kept to (but by a reply that throws).
  if (shared_->draining && !sending->framer.started()) part.close = true;
  if (part.head.has_value() && !sending->framer.started()) {
    sending->head_status = part.head->status;
  }
  sending->due_since = part.due_since;
  sending->framer.FrameTo(part, &sending->bytes);
}

void Connection::Fail(const std::exception& fault, Sending* sending) const {
  TellFault(fault);
  sending->broken = sending->framer.started();
  if (sending->broken) return;
  try {
    ReplyPart part;
    part.head = ResponseHead{.status = 500};
    part.body = shared_->options.error_body(500, "internal error");
    part.last = true;
    Frame(std::move(part), sending);
  } catch (const std::exception&) {
    sending->broken = true;
  }
}

Sending::State Connection::SendFramed(Sending* sending) {
  using State = Sending::State;
  if (sending->bytes.empty()) return sending->last ? State::kDone : State::kWaiting;
  if (!SendNow(sending)) return State::kBlocked;
  if (!peer_gone_) NoteSent(sending);
  return State::kYielding;
}

bool Connection::SendNow(Sending* sending) {
  if (stream_.encrypted()) return false;
  std::string& bytes = sending->bytes;
  size_t& sent = sending->sent_bytes;
  while (sent < bytes.size()) {
    size_t size = bytes.size() - sent;
    if (const size_t before = BytesBeforeEnd(*sending); before > 0) {
      size = before;
    } else {
      NoteEnding(sending);
    }
    const ssize_t count = ::send(stream_.socket().native_handle(), bytes.data() + sent, size,
                                 MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count > 0) {
      sent += static_cast<size_t>(count);
      written_bytes_ += static_cast<size_t>(count);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return false;
    } else if (errno != EINTR) {
      peer_gone_ = true;
      break;
    }
  }
  bytes.clear();
  sent = 0;
  return true;
}

asio::awaitable<bool> Connection::WriteFramed(Sending* sending) {
  std::string_view rest = std::string_view(sending->bytes).substr(sending->sent_bytes);
  const TimePoint latest = LatestEnd(rest.size());
  const size_t before = BytesBeforeEnd(*sending);
  if (!co_await Write(rest.substr(0, before), latest)) co_return false;
  NoteEnding(sending);
  rest.remove_prefix(before);
  co_return co_await Write(rest, latest);
}

Connection::TimePoint Connection::LatestEnd(size_t bytes) const {
  const size_t per_s = shared_->options.answer_bytes_per_s;
  if (per_s == 0) return TimePoint::max();
  const std::chrono::milliseconds reading{bytes * 1000 / per_s};
  return std::chrono::steady_clock::now() + shared_->options.write_timeout + reading;
}

size_t Connection::BytesBeforeEnd(const Sending& sending) {
  const size_t left = sending.bytes.size() - sending.sent_bytes;
  return sending.last && !sending.ending && left > kWritePieceBytes ? left - kWritePieceBytes : 0;
}

void Connection::NoteEnding(Sending* sending) {
  if (!sending->last || std::exchange(sending->ending, true)) return;
  sending->reply->OnLastBytes();
}

void Connection::NoteSent(Sending* sending) const {
  const ServerOptions& options = shared_->options;
  const bool is_told = sending->due_since.has_value() && options.on_part_sent;
  if (!is_told && options.ping_interval.count() == 0) return;
  sending->last_sent = std::chrono::steady_clock::now();
  if (is_told) options.on_part_sent(sending->last_sent - *sending->due_since);
}

void Connection::OnWakeup() {
  if (writing_ != nullptr) {
    try {
      writing_->reply->WhileBlocked();
    } catch (const std::exception& fault) {
      TellFault(fault);  // this is no coroutine, and the event loop's
    }
  }
  if (parked_ == nullptr || peer_gone_) return Wake();
  parked_->state = Pump(parked_);
  if (parked_->state == Sending::State::kWaiting) return;
  parked_ = nullptr;  // it is the coroutine's turn
  Wake();
}

}  // namespace refrain::server::http
