#ifndef REFRAIN_SERVER_HTTP_CONNECTION_H_
#define REFRAIN_SERVER_HTTP_CONNECTION_H_

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/byte_budget.h"
#include "server/http/client_stream.h"
#include "server/http/counted.h"
#include "server/http/idle_connections.h"
#include "server/http/queued_request.h"
#include "server/http/request_header.h"
#include "server/http/sending.h"
#include "server/http/server.h"
#include "server/http/wire.h"
#include "server/stall_watch.h"
#include "server/task_queue.h"
#include "server/wakeup_queue.h"

namespace refrain::server::http {

// One client connection: reads requests, has them handled, sends the answers in order. Lives on
// one I/O thread from construction to destruction; only the wakeup it hands to replies is called
// elsewhere. Inside http/ only.
//
// A coroutine, but for what happens for every token: a wakeup fetches the next part and hands it
// to the socket itself (Pump). The coroutine goes on where that cannot be done without waiting, and
// at the answer's end.
class Connection final : public WakeupQueue::Target,
                         public std::enable_shared_from_this<Connection> {
 public:
  // What all connections of a server share; outlives them.
  struct Shared {
    const ServerOptions& options;
    const Router& router;
    TaskQueue& workers;
    TaskQueue& probes;
    TaskQueue& waits;  // HandlerSpeed::kWaits
    std::shared_ptr<ByteBudget> bodies;
    std::atomic<bool> draining{false};  // answers that begin end their connection
    std::atomic<bool> stopping{false};  // what has not been sent by now is not waited for
    std::atomic<int> answers{0};        // under way: of requests that have been read
    std::atomic<int> uploads{0};        // bodies that are coming, since before the drain
    IdleConnections idle;
  };

  // `wakeups` is its I/O thread's; both outlive the connection.
  Connection(boost::asio::ip::tcp::socket socket, Shared* shared, WakeupQueue* wakeups);

  // Serves until the connection ends. Never throws.
  boost::asio::awaitable<void> Run();

  // On the connection's thread, once the server is stopping: ends it now if it waits for a request
  // of which nothing has come, or before that for TLS, else after its answer; one that waits for
  // more of a body refuses it, and one that has been refused is given less time to close.
  void EndReading();
  // On the connection's thread: ends it now.
  void CloseNow();
  // On any thread: ends it soon if it has waited for a request since before `latest`, of which
  // nothing has come.
  static void EndIfIdle(std::shared_ptr<Connection> connection, IdleConnections::TimePoint latest);

 private:
  // What is known of the exchange under way; owns what an Exchange shows.
  struct Record {
    std::string method;
    std::string path;
    const Router::Route* route = nullptr;
    std::string id;
    std::shared_ptr<RequestNotes> notes;
    int status = 499;
    bool complete = false;
    size_t request_body_bytes = 0;
    size_t response_bytes_before = 0;  // of written_bytes_
    std::chrono::steady_clock::time_point begin;
  };
  // Each has the write timeout for itself: what counts is that the client goes on reading.
  static constexpr size_t kWritePieceBytes = 64 << 10;
  static constexpr size_t kReadBytes = 16 << 10;
  // Requests sent ahead are kept up to this and one read more; then nothing is read, and their
  // sender is not watched for closing.
  static constexpr size_t kSentAheadBytes = 64 << 10;
  // After a last answer the client is given this long to close first.
  static constexpr std::chrono::milliseconds kCloseTime{500};

  using Parser = RequestParser;

  boost::asio::awaitable<void> ServeRequests();
  boost::asio::awaitable<bool> WaitForFirstByte();
  // 0: it does not go off. Of a server that is stopping it does, soon.
  void ArmIdleTimer(std::chrono::milliseconds timeout);
  void OnIdleTimer();
  // Ends what waits for a request or for more of one, and looks again as long as the server is
  // stopping.
  void CutReadingShort();
  // Whether something has come that has not been read. Closed with that unread, the client would
  // see a reset, and not know whether it was heard.
  bool HasInput();
  // False when the connection is to end; an error answer has been sent where one is due.
  boost::asio::awaitable<bool> ReadHeader(Parser* parser);
  // Frees what a header takes; its body may go on to be read.
  void Forget(Parser* parser);
  // Of a request that has its answer: false when it has not come in a short time.
  boost::asio::awaitable<bool> ReadRefusedBody(Parser* parser);
  boost::asio::awaitable<bool> ReadBody(Parser* parser, const Framing& framing, Record* record);
  // What has come of the request, or is next to come, into the parser.
  boost::asio::awaitable<boost::system::error_code> ReadSome(Parser* parser);
  // Whether the server ends while no more of the request that is being read has come.
  bool IsCutShort() { return shared_->stopping && !peer_gone_ && !HasInput(); }
  // Whether reading ended because EndReading asked for that, so that IsCutShort is looked at.
  bool IsStopsDoing(const boost::system::error_code& error) const {
    return error == boost::asio::error::operation_aborted && shared_->stopping && !peer_gone_;
  }
  // The answer to a request whose header is enough to refuse it; null for others, which have a
  // route then.
  std::unique_ptr<Reply> Screen(const Parser& parser, const Request& request,
                                std::string_view target_problem, Record* record);
  std::unique_ptr<Reply> FindRoute(const Request& request, Record* record);
  // Where not even the header could be read.
  boost::asio::awaitable<void> RefuseUnread(const ReadFailure& failure, std::string id);
  // Until the client closes; for no longer than kCloseTime once the server is stopping.
  boost::asio::awaitable<void> DiscardInput(std::chrono::milliseconds most);
  // Calls `work` on a thread of `threads`, where the owner of the request has its turn.
  static boost::asio::awaitable<void> OnThread(TaskQueue* threads, const RequestNotes* notes,
                                               std::function<void()> work);
  boost::asio::awaitable<std::unique_ptr<Reply>> Handle(Request request,
                                                        const Router::Route* route);
  // False when the connection is to end.
  boost::asio::awaitable<bool> SendReply(std::unique_ptr<Reply> reply, Framing framing,
                                         Record* record);
  Record BeginRecord(std::string id);
  void Report(const Record& record) const;
  // Sends a whole answer to a request whose body is not read.
  boost::asio::awaitable<void> RefuseWithoutBody(std::unique_ptr<Reply> reply, Framing framing,
                                                 Record* record);
  // Each 64 KiB within the write timeout, and all of it by `latest`.
  using TimePoint = std::chrono::steady_clock::time_point;
  boost::asio::awaitable<bool> Write(std::string_view bytes, TimePoint latest = TimePoint::max());
  // When a client has read so many bytes that reads no slower than it may.
  TimePoint LatestEnd(size_t bytes) const;
  // The rest of what is framed.
  boost::asio::awaitable<bool> WriteFramed(Sending* sending);
  boost::asio::awaitable<void> WaitForWakeup(
      boost::asio::steady_timer::time_point latest = boost::asio::steady_timer::time_point::max());

  // Sends what there is, as far as that goes without waiting.
  Sending::State Pump(Sending* sending);
  Sending::State PumpParts(Sending* sending);
  // Sends what the reply has for a client, or a proxy, that gives up where nothing comes for long.
  Sending::State Ping(Sending* sending);
  TimePoint NextPing(const Sending& sending) const;
  Sending::State PingOnce(Sending* sending);
  // What `step` says; where it throws, what becomes of the answer.
  Sending::State Try(Sending::State (Connection::*step)(Sending*), Sending* sending);
  boost::asio::awaitable<Sending::State> MakePart(Sending* sending);
  void Frame(ReplyPart part, Sending* sending) const;
  // What a reply throws is memory that could not be had, or a bug: its answer becomes a 500 where
  // nothing of it has been framed and there is memory for that, else it breaks off. Never throws.
  void Fail(const std::exception& fault, Sending* sending) const;
  void TellFault(const std::exception& fault) const;  // never throws
  Sending::State SendFramed(Sending* sending);
  // Hands bytes to the socket; false when some are left.
  bool SendNow(Sending* sending);
  void NoteSent(Sending* sending) const;
  // What can be sent before the reply is told of its last bytes; 0: they are next, or it was told.
  static size_t BytesBeforeEnd(const Sending& sending);
  static void NoteEnding(Sending* sending);
  void OnWakeup() override;

  std::unique_ptr<Reply> MakeErrorReply(int status, std::string_view message, Headers headers = {});
  std::unique_ptr<Reply> MakeFailureReply(const ReadFailure& failure);
  void Wake();
  void Watch();
  void WatchEncrypted();
  boost::asio::awaitable<void> StopWatching();
  void OnReadable();
  void OnPeerGone();
  // Looks from now on whether the client takes what it is sent, until all of an answer's is taken.
  void WatchSent();
  void LookAtSent();
  void DropQueued();  // frees its memory

  Shared* const shared_;
  WakeupQueue* const wakeups_;
  ClientStream stream_;
  // What has been read and not been parsed. Bounded: a chunk's extensions, or what stands behind
  // the last chunk, would else be gathered for as long as they come.
  boost::beast::flat_buffer buffer_;
  std::shared_ptr<HeldBytes> body_bytes_;  // of a large body that is being read
  boost::asio::steady_timer wakeup_timer_;
  boost::asio::steady_timer idle_timer_;
  boost::asio::steady_timer sent_timer_;
  StallWatch sent_watch_;
  std::optional<IdleConnections::Waiting> idle_;
  size_t written_bytes_ = 0;
  QueuedRequest* queued_ = nullptr;  // while the coroutine waits for a worker
  Sending* parked_ = nullptr;        // while the coroutine waits for the reply to have more
  bool woken_ = false;
  std::optional<Counted> answering_, uploading_;
  bool waiting_for_request_ = false, waiting_for_more_ = false, waiting_for_refused_body_ = false;
  bool discarding_ = false;
  bool replying_ = false, watching_ = false, watching_sent_ = false;
  Sending* writing_ = nullptr;  // while its client has to read first, but for a last part
  bool input_ended_ = false;    // within a request: its client has said that no more will come
  bool peer_gone_ = false;
  bool leaving_ = false;  // the drain began behind the head of its last answer
};

}  // namespace refrain::server::http

#endif  // REFRAIN_SERVER_HTTP_CONNECTION_H_
