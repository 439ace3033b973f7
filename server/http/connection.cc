#include "server/http/connection.h"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/read.hpp>
#include <exception>
#include <utility>

#include "server/concat.h"

namespace refrain::server::http {

namespace asio = boost::asio;
namespace beast = boost::beast;
using boost::system::error_code;

namespace {

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);

// Bodies beyond this are parsed by a worker thread: JSON goes at about 100 MB/s here.
constexpr size_t kInlineBodyBytes = 16 << 10;
// What a refused client may still be sending is read and dropped, so that it sees the refusal
// instead of a reset connection.
constexpr size_t kDiscardedBytes = 64 << 20;
constexpr std::chrono::milliseconds kDiscardTime{3000};
// A small body comes right behind its header, or a second later where a packet is lost. A refused
// client that takes longer loses its connection, and nothing else.
constexpr std::chrono::milliseconds kRefusedBodyTime{2000};

constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

}  // namespace

Connection::Connection(asio::ip::tcp::socket socket, Shared* shared, WakeupQueue* wakeups)
    : shared_(shared),
      wakeups_(wakeups),
      stream_(std::move(socket),
              shared->options.tls != nullptr ? shared->options.tls->context() : nullptr),
      buffer_(std::max(shared->options.header_bytes, kSentAheadBytes) + 2 * kReadBytes),
      wakeup_timer_(stream_.get_executor()),
      idle_timer_(stream_.get_executor()),
      sent_timer_(stream_.get_executor()),
      sent_watch_(shared->options.write_timeout) {}

std::unique_ptr<Reply> Connection::Screen(const Parser& parser, const Request& request,
                                          std::string_view target_problem, Record* record) {
  if (!HasRightHost(parser)) {
    return MakeErrorReply(400, "an HTTP/1.1 request has exactly one Host header");
  }
  if (!target_problem.empty()) return MakeErrorReply(400, target_problem);
  if (auto preflight = shared_->options.cors.PreflightOrNull(request)) return preflight;
  if (shared_->options.filter) {
    if (auto refused = shared_->options.filter(request)) return refused;
  }
  if (auto unknown = FindRoute(request, record)) return unknown;
  if (const std::string_view coding = ContentCoding(request);
      !coding.empty() && record->route->reads_body) {
    constexpr size_t kShownBytes = 64;
    return MakeErrorReply(
        415,
        Concat("the request body's Content-Encoding is \"", coding.substr(0, kShownBytes),
               coding.size() > kShownBytes ? "..." : "", "\"; only \"identity\" is understood"),
        {{"Accept-Encoding", "identity"}});
  }
  const auto length = parser.content_length();
  const bool is_small = length.has_value() && *length <= kInlineBodyBytes;
  if (!record->route->reads_body && !parser.is_done() && !is_small) {
    return MakeErrorReply(
        413, Concat("a ", request.method, " of ", record->route->path, " may have a body of ",
                    kInlineBodyBytes, " bytes at most, of a stated length"));
  }
  if (length.has_value() && *length > shared_->options.body_bytes) {
    const ReadFailure failure =
        ClassifyReadError(beast::http::error::body_limit, parser, shared_->options);
    return MakeErrorReply(failure.status, failure.message);
  }
  return nullptr;
}

std::unique_ptr<Reply> Connection::FindRoute(const Request& request, Record* record) {
  const Router::Match match = shared_->router.Find(request.method, request.path);
  record->route = match.route;
  if (match.route != nullptr) return nullptr;
  if (match.allowed.empty()) {
    return MakeErrorReply(404, "unknown path: " + request.method + " " + request.path);
  }
  const std::string allowed = AllowHeader(match);
  return MakeErrorReply(405, request.method + " is not allowed here, only " + allowed,
                        {{"Allow", allowed}});
}

// An exception is memory that could not be had, or a bug; it ends this connection, not the daemon.
asio::awaitable<void> Connection::Run() {
  const auto self = shared_from_this();
  try {
    co_await ServeRequests();
  } catch (const std::exception& fault) {
    TellFault(fault);
    parked_ = writing_ = nullptr;
    replying_ = false;
  }
  answering_.reset();
  uploading_.reset();
  error_code ignored;
  stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
  stream_.close();
}

asio::awaitable<void> Connection::ServeRequests() {
  bool open = true;
  if (stream_.encrypted()) {
    stream_.tcp().expires_after(shared_->options.header_timeout);
    waiting_for_request_ = true;
    const auto [error] = co_await stream_.async_handshake(kAwait);
    waiting_for_request_ = false;
    open = !error;
  }
  while (open) {
    if (!co_await WaitForFirstByte()) break;
    std::optional<Parser> parser(std::in_place, shared_->options.header_bytes);
    if (!co_await ReadHeader(&*parser)) break;

    Request request;
    const std::string_view target_problem = TakeHeader(*parser, &request);
    Record record = BeginRecord(request.id);
    record.method = request.method;
    if (target_problem.empty()) record.path = request.path;
    request.notes = record.notes;
    Framing framing;
    framing.request_id = request.id;
    framing.keep_alive = parser->keep_alive() && HasRightHost(*parser);
    framing.chunked_allowed = parser->get().version() >= 11;
    framing.head_only = request.method == "HEAD";
    framing.headers = shared_->options.cors.AnswerHeaders(request);

    std::unique_ptr<Reply> reply = Screen(*parser, request, target_problem, &record);
    const bool expects_continue = Expects100Continue(*parser);
    // Who withholds the body would hold this, too.
    Forget(&*parser);
    if (reply != nullptr) request = Request();
    if (reply != nullptr && !parser->is_done()) {
      // A small body is read all the same, so that the connection can go on.
      const auto length = parser->content_length();
      const bool is_small = length.has_value() && *length <= kInlineBodyBytes;
      if (!is_small || expects_continue || !co_await ReadRefusedBody(&*parser)) {
        record.request_body_bytes = parser->get().body().size();
        co_await RefuseWithoutBody(std::move(reply), std::move(framing), &record);
        break;
      }
    }
    if (reply == nullptr && !parser->is_done()) {
      // Counted before it is asked: whoever begins a drain sees the one or is seen by the other.
      uploading_.emplace(&shared_->uploads);
      if (shared_->draining) uploading_.reset();
    }
    if (expects_continue && !parser->is_done() && !co_await Write(kContinue)) {
      Report(record);
      break;
    }
    if (!co_await ReadBody(&*parser, framing, &record)) break;
    answering_.emplace(&shared_->answers);
    uploading_.reset();
    std::string body = std::move(parser->get().body());
    parser.reset();  // with the fields behind the last chunk
    record.request_body_bytes = body.size();
    record.begin = std::chrono::steady_clock::now();
    if (reply == nullptr) {
      request.body = std::move(body);
      request.body_hold = std::move(body_bytes_);
      request.arrived = record.begin;
      reply = co_await Handle(std::move(request), record.route);
    }
    if (!co_await SendReply(std::move(reply), std::move(framing), &record)) break;
  }
}

asio::awaitable<bool> Connection::WaitForFirstByte() {
  // Some clients end a body with an empty line; one is ignored (RFC 9112 section 2.2).
  constexpr std::string_view kEmptyLine = "\r\n";
  // Its timer would drop a request that it finds read when the process was stopped meanwhile.
  stream_.tcp().expires_never();
  struct Idle {
    std::optional<IdleConnections::Waiting>* waiting;
    ~Idle() { waiting->reset(); }
  } const idle{&idle_};
  for (bool dropped = false;;) {
    const std::string_view ahead(static_cast<const char*>(buffer_.data().data()), buffer_.size());
    if (!dropped && ahead.starts_with(kEmptyLine)) {
      buffer_.consume(kEmptyLine.size());
      dropped = true;
      continue;
    }
    const bool begun_line = !dropped && ahead == kEmptyLine.substr(0, 1);
    if (!ahead.empty() && !begun_line) co_return true;
    // What a large request was read into is not kept by a connection that idles.
    if (ahead.empty() && buffer_.capacity() > kReadBytes) buffer_.shrink_to_fit();
    if (peer_gone_ || (shared_->stopping && !HasInput())) co_return false;
    if (!idle_.has_value()) {
      idle_.emplace(&shared_->idle, weak_from_this());
      ArmIdleTimer(leaving_ ? shared_->options.last_requests : shared_->options.idle_timeout);
    }
    waiting_for_request_ = true;
    const auto [error, bytes] =
        co_await stream_.async_read_some(buffer_.prepare(kReadBytes), kAwait);
    waiting_for_request_ = false;
    // Ended from outside, for want of a request: one may have come since.
    if (error == asio::error::operation_aborted && !peer_gone_ && HasInput()) continue;
    if (error) co_return false;
    buffer_.commit(bytes);
  }
}

asio::awaitable<bool> Connection::ReadHeader(Parser* parser) {
  const ServerOptions& options = shared_->options;
  parser->body_limit(boost::none);  // Screen has more to say to one that is too long
  stream_.tcp().expires_after(options.header_timeout);
  ReadFailure failure;
  for (bool unread = buffer_.size() > 0; !parser->is_header_done(); unread = false) {
    if (!unread && IsCutShort()) {
      failure = {503, "the server is shutting down; the request's header has not come"};
      break;
    }
    const error_code error = co_await ReadSome(parser);
    if (!error || IsStopsDoing(error)) continue;
    failure = ClassifyReadError(error, *parser, options);
    if (failure.status == 0) co_return false;
    break;
  }
  if (failure.status == 0) failure = CheckFraming(*parser);
  if (failure.status == 0) co_return true;
  std::string id = RequestIdOf(*parser);
  Forget(parser);
  co_await RefuseUnread(failure, std::move(id));
  co_return false;
}

void Connection::Forget(Parser* parser) {
  parser->get() = Parser::value_type();
  if (buffer_.size() == 0 && buffer_.capacity() > kReadBytes) buffer_.shrink_to_fit();
}

asio::awaitable<error_code> Connection::ReadSome(Parser* parser) {
  waiting_for_more_ = true;
  const auto [error, bytes] =
      co_await beast::http::async_read_some(stream_, buffer_, *parser, kAwait);
  waiting_for_more_ = false;
  input_ended_ = error == beast::http::error::partial_message;
  co_return error;
}

asio::awaitable<bool> Connection::ReadRefusedBody(Parser* parser) {
  // A timeout of the stream's own would close it.
  stream_.tcp().expires_never();
  ArmIdleTimer(std::min(kRefusedBodyTime, shared_->options.header_timeout));
  waiting_for_refused_body_ = true;
  parser->eager(true);
  for (bool unread = buffer_.size() > 0; !parser->is_done(); unread = false) {
    if (!unread && IsCutShort()) break;
    if (co_await ReadSome(parser)) break;
  }
  waiting_for_refused_body_ = false;
  ArmIdleTimer(std::chrono::milliseconds(0));
  co_return parser->is_done();
}

asio::awaitable<bool> Connection::ReadBody(Parser* parser, const Framing& framing, Record* record) {
  const ServerOptions& options = shared_->options;
  // What nothing reads holds a connection for no longer than a header does.
  const bool is_read = record->route != nullptr && record->route->reads_body;
  stream_.tcp().expires_after(is_read ? options.body_timeout : options.header_timeout);
  parser->body_limit(options.body_bytes);
  parser->eager(true);
  std::string& body = parser->get().body();
  ReadFailure failure;
  // What was read with the header may be all of it.
  for (bool unread = buffer_.size() > 0; !parser->is_done(); unread = false) {
    if (!unread && IsCutShort()) {
      // Nothing is left of the drain.
      failure = {503, "the server is shutting down; the request's body has not come"};
      break;
    }
    const error_code error = co_await ReadSome(parser);
    if (IsStopsDoing(error)) continue;
    if (error) {
      failure = ClassifyReadError(error, *parser, options);
      record->request_body_bytes = body.size();
      if (failure.status != 0) break;
      if (error == beast::error::timeout) record->status = 408;  // which cannot be sent any more
      Report(*record);
      co_return false;
    }
    // What counts is what has come: who only promises a large body takes nothing from others.
    if (body.size() <= kInlineBodyBytes) continue;
    if (body_bytes_ == nullptr) {
      body_bytes_ = std::make_shared<HeldBytes>(
          shared_->bodies, record->notes != nullptr ? record->notes->principal : "");
    }
    if (body_bytes_->GrowTo(body.size())) continue;
    failure = {503, Concat("the server holds as many bytes of request bodies as it may, in all or "
                           "of one key: ",
                           shared_->bodies->bytes(), " (limits.bodies_bytes)")};
    break;
  }
  if (failure.status == 0) co_return true;
  // There may be no memory for a refusal beside it.
  std::string().swap(body);
  body_bytes_.reset();
  std::unique_ptr<Reply> reply = MakeFailureReply(failure);
  co_await RefuseWithoutBody(std::move(reply), framing, record);
  co_return false;
}

asio::awaitable<void> Connection::RefuseWithoutBody(std::unique_ptr<Reply> reply, Framing framing,
                                                    Record* record) {
  framing.keep_alive = false;
  ReplyFramer framer(std::move(framing));
  ReplyPart part = reply->Next();
  if (part.head.has_value()) record->status = part.head->status;
  record->complete = co_await Write(framer.Frame(part));
  uploading_.reset();
  Report(*record);
  if (record->complete) co_await DiscardInput(kDiscardTime);
}

asio::awaitable<void> Connection::RefuseUnread(const ReadFailure& failure, std::string id) {
  Record record = BeginRecord(std::move(id));
  Framing framing;  // not a temporary: g++ 12 would destroy it twice
  framing.request_id = record.id;
  std::unique_ptr<Reply> reply = MakeFailureReply(failure);
  co_await RefuseWithoutBody(std::move(reply), std::move(framing), &record);
}

asio::awaitable<void> Connection::DiscardInput(std::chrono::milliseconds most) {
  bool hurried = shared_->stopping || most <= kCloseTime;
  stream_.tcp().expires_after(hurried ? kCloseTime : most);
  discarding_ = true;
  // Under TLS the answer's end has to be authentic; a client that is still sending makes this fail.
  if (stream_.encrypted()) co_await stream_.async_shutdown(kAwait);
  error_code ignored;
  stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  buffer_.clear();
  for (size_t discarded = 0; !input_ended_ && discarded < kDiscardedBytes;) {
    if (!hurried && shared_->stopping) {
      hurried = true;
      stream_.tcp().expires_after(kCloseTime);
    }
    const auto [error, bytes] =
        co_await stream_.tcp().async_read_some(buffer_.prepare(kReadBytes), kAwait);
    if (error && !IsStopsDoing(error)) break;
    discarded += bytes;
  }
  discarding_ = false;
}

std::unique_ptr<Reply> Connection::MakeErrorReply(int status, std::string_view message,
                                                  Headers headers) {
  ResponseHead head;
  head.status = status;
  head.headers = std::move(headers);
  return MakeReply(std::move(head), shared_->options.error_body(status, message));
}

std::unique_ptr<Reply> Connection::MakeFailureReply(const ReadFailure& failure) {
  const bool passes = failure.status == 503;
  return MakeErrorReply(failure.status, failure.message,
                        passes ? Headers{{"Retry-After", "1"}} : Headers());
}

asio::awaitable<std::unique_ptr<Reply>> Connection::Handle(Request request,
                                                           const Router::Route* route) {
  // An exception here is memory that could not be had, or a bug; neither ends the daemon.
  const auto handle = [this, route](Request request) -> std::unique_ptr<Reply> {
    try {
      return route->handler(std::move(request));
    } catch (const std::exception& fault) {
      TellFault(fault);
      return MakeErrorReply(500, "internal error");
    }
  };
  if (route->speed == HandlerSpeed::kQuick && request.body.size() <= kInlineBodyBytes) {
    co_return handle(std::move(request));
  }
  TaskQueue& threads = route->speed == HandlerSpeed::kProbe   ? shared_->probes
                       : route->speed == HandlerSpeed::kWaits ? shared_->waits
                                                              : shared_->workers;
  std::unique_ptr<Reply> reply;
  request.on_worker = true;
  const std::shared_ptr<RequestNotes> notes = request.notes;
  // Who asks for a page of some milliseconds may have half-closed, and gets it all the same.
  const bool is_watched = !request.body.empty();
  QueuedRequest queued(std::move(request));
  struct Place {
    Connection* connection;
    ~Place() { connection->queued_ = nullptr; }
  } const place{this};
  queued_ = &queued;
  if (is_watched) {
    replying_ = true;
    Watch();
  }
  const std::function<void()> work = [&] {
    if (Request* taken = queued.TakeOrNull()) reply = handle(std::move(*taken));
  };
  co_await OnThread(&threads, notes.get(), work);
  if (reply == nullptr) reply = MakeReply({}, "");  // nobody is there to get it
  co_return reply;
}

asio::awaitable<void> Connection::OnThread(TaskQueue* threads, const RequestNotes* notes,
                                           std::function<void()> work) {
  const auto begin = [&](auto handler) {
    const auto back = asio::get_associated_executor(handler);
    const auto resume = std::make_shared<decltype(handler)>(std::move(handler));
    threads->Post(notes != nullptr ? notes->principal : "", [&work, back, resume] {
      std::exception_ptr failure;
      try {
        work();
      } catch (const std::exception&) {
        failure = std::current_exception();
      }
      asio::post(back, [resume, failure] { std::move (*resume)(failure); });
    });
  };
  co_await asio::async_initiate<const asio::use_awaitable_t<>, void(std::exception_ptr)>(
      begin, asio::use_awaitable);
}

void Connection::TellFault(const std::exception& fault) const {
  if (!shared_->options.on_fault) return;
  try {
    shared_->options.on_fault(fault.what());
  } catch (const std::exception&) {
    return;  // there was no memory to tell of it
  }
}

Connection::Record Connection::BeginRecord(std::string id) {
  Record record;
  record.id = std::move(id);
  if (shared_->options.on_exchange) record.notes = std::make_shared<RequestNotes>();
  record.response_bytes_before = written_bytes_;
  record.begin = std::chrono::steady_clock::now();
  return record;
}

void Connection::Report(const Record& record) const {
  if (!shared_->options.on_exchange) return;
  Exchange exchange;
  exchange.request_id = record.id;
  exchange.method = record.method;
  if (record.route != nullptr) exchange.route = record.route->path;
  exchange.path = record.path;
  exchange.principal = record.notes->principal;
  exchange.details = record.notes->details;
  exchange.status = record.status;
  exchange.complete = record.complete;
  exchange.request_body_bytes = record.request_body_bytes;
  exchange.response_bytes = written_bytes_ - record.response_bytes_before;
  exchange.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - record.begin).count();
  shared_->options.on_exchange(exchange);
}

asio::awaitable<bool> Connection::Write(std::string_view bytes, TimePoint latest) {
  while (!bytes.empty()) {
    const std::string_view piece = bytes.substr(0, kWritePieceBytes);
    stream_.tcp().expires_at(
        std::min(std::chrono::steady_clock::now() + shared_->options.write_timeout, latest));
    const auto [error, written] =
        co_await asio::async_write(stream_, asio::buffer(piece.data(), piece.size()), kAwait);
    written_bytes_ += written;
    if (error) co_return false;
    bytes.remove_prefix(written);
  }
  co_return true;
}

asio::awaitable<void> Connection::WaitForWakeup(asio::steady_timer::time_point latest) {
  if (!woken_) {
    wakeup_timer_.expires_at(latest);
    co_await wakeup_timer_.async_wait(kAwait);
  }
  woken_ = false;
}

void Connection::Wake() {
  woken_ = true;
  wakeup_timer_.cancel();
}

}  // namespace refrain::server::http
