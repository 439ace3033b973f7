#include "tools/loadgen/http_backend.h"

#include <poll.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <deque>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tools/loadgen/answer_reader.h"
#include "tools/loadgen/connecting.h"
#include "tools/loadgen/tls_client.h"

namespace refrain::loadgen {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Tcp = asio::ip::tcp;

constexpr size_t kReadBytes = 32 << 10;
// What a server that closes an idle connection may need to say so to a request on its way (RFC
// 9110, 9.2.2): about a round trip. What is closed later is a server that had the request.
constexpr double kMostStaleS = 0.05;

class HttpBackend;

// Why there is no connection: what this machine lacks, files or ports, is no failure of the server.
const char* KindOf(const error_code& error) {
  namespace errc = boost::system::errc;
  if (error == asio::error::connection_refused) return "connection_refused";
  const bool ours = error == errc::too_many_files_open ||
                    error == errc::too_many_files_open_in_system ||
                    error == errc::address_not_available;
  return ours ? "client_limit" : "connect_failed";
}

// One connection, with at most one request under way. States: idle (no sink), connecting (and the
// handshake of TLS), writing and reading at once. The back end owns it; callbacks hold it alive and
// do nothing after Close.
class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(HttpBackend* backend, asio::io_context& context)
      : backend_(backend), socket_(context), buffer_(kReadBytes) {}

  // `resent`: the request has gone out before, on another connection.
  void Start(std::shared_ptr<const std::string> request, bool resent, AnswerSink* sink);
  // Ends the request, if any, with this failure, and the connection.
  void Abort(Failure failure);
  void Close();

  uint64_t request_number() const { return request_number_; }
  bool busy() const { return sink_ != nullptr; }
  // Of an idle connection: nothing tells that it cannot be used again. Asks the system, waits for
  // nothing.
  bool IsOpen();

 private:
  void OnConnected();
  // In plain text or by TLS.
  template <typename Buffers, typename Done>
  void WriteAll(const Buffers& buffers, Done done);
  template <typename Buffers, typename Done>
  void ReadSome(const Buffers& buffers, Done done);
  void Write();
  void Read();
  void OnRead(const error_code& error, size_t bytes);
  void Lost(const error_code& error, double at_s);
  void Finish(double at_s, AnswerEnd end, bool reusable);

  HttpBackend* backend_;
  Tcp::socket socket_;
  // Made once: a connection that was closed is not opened again.
  std::optional<asio::ssl::stream<Tcp::socket&>> tls_;
  std::vector<char> buffer_;
  size_t filled_ = 0;
  std::shared_ptr<const std::string> request_;
  std::unique_ptr<AnswerReader> reader_;
  AnswerSink* sink_ = nullptr;
  uint64_t request_number_ = 0;
  double written_s_ = 0;      // when writing began
  bool resent_ = false;       // the request
  bool used_before_ = false;  // the request went to a kept connection
  bool connected_ = false;
  bool writing_ = false;
};

class HttpBackend final : public Backend {
 public:
  HttpBackend(AsioLoop* loop, const HttpBackendOptions& options, const Endpoint& endpoint)
      : loop_(loop), options_(options), endpoint_(endpoint) {
    fields_ = absl::StrCat("Host: ", HostField(options.target),
                           "\r\nUser-Agent: refrain-loadgen\r\nAccept: text/event-stream\r\n",
                           "Content-Type: application/json\r\n");
    if (!options.api_key.empty()) {
      absl::StrAppend(&fields_, "Authorization: Bearer ", options.api_key, "\r\n");
    }
  }
  ~HttpBackend() override { CancelAll(); }

  std::string Encode(const GenerationRequest& request) const override {
    const std::string body = EncodeBody(options_.wire, request);
    return absl::StrCat("POST ", options_.target.path, std::string(CompletionPath(request.form)),
                        " HTTP/1.1\r\n", fields_, "Content-Length: ", body.size(), "\r\n\r\n",
                        body);
  }

  void Start(std::string encoded, AnswerSink* sink) override {
    std::shared_ptr<HttpConnection> connection = TakeIdle();
    if (connection == nullptr) connection = NewConnection();
    StartOn(connection, std::make_shared<const std::string>(std::move(encoded)), /*resent=*/false,
            sink);
  }

  void StartOn(const std::shared_ptr<HttpConnection>& connection,
               std::shared_ptr<const std::string> request, bool resent, AnswerSink* sink) {
    busy_.insert(connection);
    connection->Start(std::move(request), resent, sink);
    DropDoneDeadlines();
    deadlines_.push_back(
        {loop_->NowS() + options_.timeout_s, connection, connection->request_number()});
    ArmDeadline();
  }

  void CancelAll() override {
    const std::set<std::shared_ptr<HttpConnection>> busy = std::move(busy_);
    busy_.clear();
    for (const auto& connection : busy) {
      connection->Abort({"unfinished", "the run ended before the answer"});
    }
    for (const auto& connection : idle_) connection->Close();
    idle_.clear();
  }

  // The connection has no request any more.
  void Release(const std::shared_ptr<HttpConnection>& connection, bool reusable) {
    busy_.erase(connection);
    if (reusable) idle_.push_back(connection);
  }

  // The server had closed a kept connection when the request went out on it.
  void Resend(const std::shared_ptr<HttpConnection>& connection,
              std::shared_ptr<const std::string> request, AnswerSink* sink) {
    busy_.erase(connection);
    StartOn(NewConnection(), std::move(request), /*resent=*/true, sink);
  }

  bool resends() const { return options_.resends; }
  const HttpTarget& target() const { return options_.target; }
  double NowS() const { return loop_->NowS(); }
  const Endpoint& endpoint() const { return endpoint_; }
  uint64_t NextNumber() { return ++last_number_; }

 private:
  struct Deadline {
    double at_s = 0;
    std::weak_ptr<HttpConnection> connection;
    uint64_t request_number = 0;
  };

  std::shared_ptr<HttpConnection> NewConnection() {
    return std::make_shared<HttpConnection>(this, loop_->context());
  }

  // Null when there is none.
  std::shared_ptr<HttpConnection> TakeIdle() {
    while (!idle_.empty()) {
      const std::shared_ptr<HttpConnection> connection = std::move(idle_.back());
      idle_.pop_back();
      if (connection->IsOpen()) return connection;
      connection->Close();
    }
    return nullptr;
  }

  // The request's connection while it still waits for its answer.
  static std::shared_ptr<HttpConnection> Waiting(const Deadline& deadline) {
    std::shared_ptr<HttpConnection> connection = deadline.connection.lock();
    if (connection == nullptr || !connection->busy()) return nullptr;
    return connection->request_number() == deadline.request_number ? connection : nullptr;
  }

  void DropDoneDeadlines() {
    while (!deadlines_.empty() && Waiting(deadlines_.front()) == nullptr) deadlines_.pop_front();
  }

  // All requests have the same time, so the first in the queue is the first due. One timer at most.
  void ArmDeadline() {
    if (deadlines_.empty() || armed_in_run_ == loop_->runs()) return;
    armed_in_run_ = loop_->runs();
    loop_->CallAt(deadlines_.front().at_s, [this, alive = std::weak_ptr(alive_)] {
      if (alive.expired()) return;
      armed_in_run_.reset();
      for (DropDoneDeadlines(); !deadlines_.empty() && deadlines_.front().at_s <= loop_->NowS();
           DropDoneDeadlines()) {
        const auto connection = Waiting(deadlines_.front());
        deadlines_.pop_front();
        connection->Abort({"timeout", "no whole answer within the time allowed"});
      }
      ArmDeadline();
    });
  }

  AsioLoop* const loop_;
  const HttpBackendOptions options_;
  const Endpoint endpoint_;
  std::string fields_;
  uint64_t last_number_ = 0;
  std::vector<std::shared_ptr<HttpConnection>> idle_;  // the one used last is used first
  std::set<std::shared_ptr<HttpConnection>> busy_;
  std::deque<Deadline> deadlines_;
  // A timer runs, for a deadline that stands or stood first, until that run of the loop ends.
  std::optional<int64_t> armed_in_run_;
  const std::shared_ptr<int> alive_ = std::make_shared<int>();  // until this object ends
};

void HttpConnection::Start(std::shared_ptr<const std::string> request, bool resent,
                           AnswerSink* sink) {
  request_ = std::move(request);
  resent_ = resent;
  sink_ = sink;
  reader_ = std::make_unique<AnswerReader>(sink);
  request_number_ = backend_->NextNumber();
  filled_ = 0;
  used_before_ = connected_;
  if (connected_) return Write();
  socket_.async_connect(backend_->endpoint(), [self = shared_from_this()](const error_code& error) {
    if (!self->busy()) return;
    if (error) {
      self->Abort({KindOf(error), error.message()});
      return;
    }
    error_code ignored;
    self->socket_.set_option(Tcp::no_delay(true), ignored);
    self->OnConnected();
  });
}

bool HttpConnection::IsOpen() {
  pollfd poller = {.fd = socket_.native_handle(), .events = POLLIN | POLLRDHUP};
  if (::poll(&poller, 1, 0) <= 0) return true;
  // TLS may have sent a ticket behind the answer; in plain text nothing was to come.
  return tls_.has_value() && poller.revents == POLLIN;
}

void HttpConnection::OnConnected() {
  const HttpTarget& target = backend_->target();
  if (target.tls == nullptr) {
    connected_ = true;
    return Write();
  }
  tls_.emplace(socket_, target.tls->context());
  if (!target.tls->Prepare(tls_->native_handle(), target.host)) {
    return Abort({"tls_failed", "the host's name cannot be checked"});
  }
  tls_->async_handshake(asio::ssl::stream_base::client,
                        [self = shared_from_this()](const error_code& error) {
                          if (!self->busy()) return;
                          if (error) return self->Abort({"tls_failed", error.message()});
                          self->connected_ = true;
                          self->Write();
                        });
}

template <typename Buffers, typename Done>
void HttpConnection::WriteAll(const Buffers& buffers, Done done) {
  if (tls_.has_value()) {
    asio::async_write(*tls_, buffers, std::move(done));
  } else {
    asio::async_write(socket_, buffers, std::move(done));
  }
}

template <typename Buffers, typename Done>
void HttpConnection::ReadSome(const Buffers& buffers, Done done) {
  if (tls_.has_value()) {
    tls_->async_read_some(buffers, std::move(done));
  } else {
    socket_.async_read_some(buffers, std::move(done));
  }
}

void HttpConnection::Write() {
  // A failure to write is left to the reader: the server may have answered (413, 429) and closed
  // without reading all.
  writing_ = true;
  written_s_ = backend_->NowS();
  WriteAll(asio::buffer(*request_), [self = shared_from_this(), kept = request_](
                                        const error_code&, size_t) { self->writing_ = false; });
  Read();
}

void HttpConnection::Read() {
  if (filled_ == buffer_.size()) buffer_.resize(buffer_.size() * 2);
  ReadSome(
      asio::buffer(buffer_.data() + filled_, buffer_.size() - filled_),
      [self = shared_from_this(), number = request_number_](const error_code& error, size_t bytes) {
        if (self->busy() && self->request_number_ == number) self->OnRead(error, bytes);
      });
}

void HttpConnection::OnRead(const error_code& error, size_t bytes) {
  const double at_s = backend_->NowS();
  if (error) return Lost(error, at_s);
  filled_ += bytes;
  const size_t taken = reader_->Feed({buffer_.data(), filled_}, at_s);
  std::copy(buffer_.begin() + static_cast<ptrdiff_t>(taken),
            buffer_.begin() + static_cast<ptrdiff_t>(filled_), buffer_.begin());
  filled_ -= taken;
  if (!reader_->done()) return Read();
  // Behind an early answer the rest of this request would go into the next one.
  Finish(at_s, reader_->TakeEnd(), reader_->keep_alive() && filled_ == 0 && !writing_);
}

void HttpConnection::Lost(const error_code& error, double at_s) {
  const bool stale = used_before_ && !reader_->started() && at_s - written_s_ <= kMostStaleS;
  if (stale && backend_->resends()) {
    AnswerSink* sink = std::exchange(sink_, nullptr);
    Close();
    backend_->Resend(shared_from_this(), std::move(request_), sink);
    return;
  }
  const bool ended = error == asio::error::eof || error == asio::ssl::error::stream_truncated;
  if (ended) reader_->FeedEnd(at_s);
  Finish(at_s, reader_->TakeEnd(), false);
}

void HttpConnection::Finish(double at_s, AnswerEnd end, bool reusable) {
  end.resent = resent_;
  AnswerSink* sink = std::exchange(sink_, nullptr);
  if (!reusable) Close();
  backend_->Release(shared_from_this(), reusable);
  sink->OnEnd(at_s, end);
}

void HttpConnection::Abort(Failure failure) {
  if (!busy()) return;
  AnswerEnd end;
  end.failure = std::move(failure);
  Finish(backend_->NowS(), std::move(end), false);
}

void HttpConnection::Close() {
  error_code ignored;
  socket_.close(ignored);
  connected_ = false;
}

}  // namespace

absl::StatusOr<HttpTarget> ParseTarget(std::string_view url) {
  const auto refuse = [url](const char* why) {
    return absl::InvalidArgumentError(
        absl::StrCat("--url is ", std::string(url), ", ", why,
                     "; valid: http://HOST:PORT[/PATH], https://HOST:PORT[/PATH]"));
  };
  constexpr std::string_view kPlain = "http://";
  constexpr std::string_view kSecure = "https://";
  HttpTarget target;
  target.https = url.starts_with(kSecure);
  if (!target.https && !url.starts_with(kPlain)) {
    return refuse("which does not begin with http:// or https://");
  }
  std::string_view rest = url.substr(target.https ? kSecure.size() : kPlain.size());
  const size_t slash = rest.find('/');
  if (slash != std::string_view::npos) {
    target.path = rest.substr(slash);
    rest = rest.substr(0, slash);
    while (target.path.ends_with('/')) target.path.pop_back();
    if (target.path.ends_with("/v1")) target.path.resize(target.path.size() - 3);
  }
  const size_t bracket = rest.find(']');
  const size_t colon = rest.find(':', bracket == std::string_view::npos ? 0 : bracket);
  target.host = rest.substr(0, colon);
  target.port = target.https ? "443" : "80";
  if (colon != std::string_view::npos) target.port = std::string(rest.substr(colon + 1));
  if (target.host.starts_with('[') && target.host.ends_with(']')) {
    target.host = target.host.substr(1, target.host.size() - 2);
  }
  if (target.host.empty()) return refuse("which names no host");
  if (target.port.empty() || !std::all_of(target.port.begin(), target.port.end(),
                                          [](char c) { return c >= '0' && c <= '9'; })) {
    return refuse("whose port is no number");
  }
  return target;
}

absl::StatusOr<std::unique_ptr<Backend>> MakeHttpBackend(AsioLoop* loop,
                                                         const HttpBackendOptions& options) {
  const auto addresses = AddressesOf(options.target.host, options.target.port);
  if (!addresses.ok()) return addresses.status();
  // One address: a name such as localhost may have another where nobody listens.
  const auto found = ConnectToFirst(*addresses, InSeconds(options.find_s));
  const size_t listens = found.ok() ? found->address : 0;
  return std::make_unique<HttpBackend>(loop, options, (*addresses)[listens]);
}

}  // namespace refrain::loadgen
