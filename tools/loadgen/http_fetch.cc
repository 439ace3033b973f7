#include "tools/loadgen/http_fetch.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/loadgen/answer_reader.h"
#include "tools/loadgen/connecting.h"
#include "tools/loadgen/tls_client.h"

namespace refrain::loadgen {
namespace {

namespace http = boost::beast::http;

constexpr uint64_t kMostBodyBytes = 64 << 20;

// The bytes of one connection, in plain text or by TLS, until the deadline. Send and Receive return
// what they moved, 0 at the end, below 0 on an error, which errno has (0: the other side broke TLS
// off).
class Channel {
 public:
  Channel(const HttpTarget& target, Socket socket, SteadyTime deadline)
      : target_(target), socket_(std::move(socket)), deadline_(deadline) {}

  absl::Status BeginTls() {
    ERR_clear_error();
    tls_.reset(SSL_new(target_.tls->context().native_handle()));
    if (tls_ != nullptr && SSL_set_fd(tls_.get(), socket_.fd()) == 1 &&
        target_.tls->Prepare(tls_.get(), target_.host) &&
        Repeat([this] { return SSL_connect(tls_.get()); }) == 1) {
      return absl::OkStatus();
    }
    std::string why = errno == ETIMEDOUT ? std::strerror(errno) : "the connection broke";
    if (const unsigned long code = ERR_get_error(); code != 0) {
      char text[256];
      ERR_error_string_n(code, text, sizeof(text));
      why = text;
    }
    return absl::UnavailableError(absl::StrCat(target_.host, ":", target_.port, ": no TLS: ", why));
  }

  ssize_t Send(std::string_view bytes) {
    if (tls_ == nullptr) {
      return Repeat(POLLOUT,
                    [&] { return ::send(socket_.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL); });
    }
    size_t sent = 0;
    const auto write = [&] { return SSL_write_ex(tls_.get(), bytes.data(), bytes.size(), &sent); };
    return Repeat(write) == 1 ? static_cast<ssize_t>(sent) : -1;
  }

  ssize_t Receive(char* to, size_t most) {
    if (tls_ == nullptr) {
      return Repeat(POLLIN, [&] { return ::recv(socket_.fd(), to, most, 0); });
    }
    size_t read = 0;
    if (Repeat([&] { return SSL_read_ex(tls_.get(), to, most, &read); }) == 1) {
      return static_cast<ssize_t>(read);
    }
    return (SSL_get_shutdown(tls_.get()) & SSL_RECEIVED_SHUTDOWN) != 0 ? 0 : -1;
  }

  absl::Status Broken(const char* step) const {
    const char* const why = errno == 0 ? "the connection broke" : std::strerror(errno);
    return absl::UnavailableError(
        absl::StrCat(target_.host, ":", target_.port, ": cannot ", step, ": ", why));
  }

 private:
  bool Wait(short events) {
    if (WaitForSocket(socket_.fd(), events, deadline_)) return true;
    errno = ETIMEDOUT;
    return false;
  }
  // What `step` returns once the socket lets it, or -1.
  template <typename Step>
  ssize_t Repeat(short events, const Step& step) {
    for (;;) {
      if (!Wait(events)) return -1;
      const ssize_t moved = step();
      if (moved >= 0 || (errno != EAGAIN && errno != EINTR)) return moved;
    }
  }
  // The same of a step of TLS, which reads and writes as it wants.
  template <typename Step>
  int Repeat(const Step& step) {
    for (;;) {
      ERR_clear_error();
      errno = 0;
      const int result = step();
      if (result == 1) return 1;
      const int wanted = SSL_get_error(tls_.get(), result);
      if (wanted != SSL_ERROR_WANT_READ && wanted != SSL_ERROR_WANT_WRITE) return result;
      if (!Wait(wanted == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT)) return -1;
    }
  }

  const HttpTarget& target_;
  const Socket socket_;
  const SteadyTime deadline_;
  std::unique_ptr<SSL, void (*)(SSL*)> tls_{nullptr, SSL_free};
};

using ReplyParser = http::response_parser<http::string_body>;

std::unique_ptr<ReplyParser> MakeParser() {
  auto parser = std::make_unique<ReplyParser>();
  parser->eager(true);
  parser->body_limit(kMostBodyBytes);
  return parser;
}

absl::StatusOr<HttpReply> ReadReply(const HttpTarget& target, Channel* channel) {
  const std::string from = absl::StrCat(target.host, ":", target.port);
  std::unique_ptr<ReplyParser> parser = MakeParser();
  std::string pending;
  const auto status = [&] { return static_cast<int>(parser->get().result_int()); };
  while (!parser->is_done()) {
    char piece[16384];
    boost::system::error_code error;
    const ssize_t bytes = channel->Receive(piece, sizeof(piece));
    if (bytes < 0) return channel->Broken("read");
    if (bytes == 0) {
      if (parser->got_some()) parser->put_eof(error);  // else it may not be called
      if (error || !parser->got_some()) {
        return absl::UnavailableError(absl::StrCat(from, ": the answer broke off"));
      }
      break;
    }
    pending.append(piece, static_cast<size_t>(bytes));
    pending.erase(0, parser->put(boost::asio::buffer(pending), error));
    while (parser->is_done() && IsAheadOfAnswer(status())) {
      parser = MakeParser();
      pending.erase(0, parser->put(boost::asio::buffer(pending), error));
    }
    if (error && error != http::error::need_more) {
      return absl::InvalidArgumentError(absl::StrCat(from, ": no HTTP: ", error.message()));
    }
  }
  return HttpReply{status(), parser->get().body()};
}

}  // namespace

absl::StatusOr<HttpReply> Fetch(const HttpTarget& target, const HttpQuestion& question) {
  const auto addresses = AddressesOf(target.host, target.port);
  if (!addresses.ok()) return addresses.status();
  const SteadyTime deadline = InSeconds(question.timeout_s);
  auto connected = ConnectToFirst(*addresses, deadline);
  if (!connected.ok()) {
    return absl::UnavailableError(
        absl::StrCat(target.host, ":", target.port, ": ", connected.status().message()));
  }
  Channel channel(target, std::move(connected->socket), deadline);
  if (target.tls != nullptr) {
    if (absl::Status status = channel.BeginTls(); !status.ok()) return status;
  }
  std::string request =
      absl::StrCat(std::string(question.method), " ", target.path, std::string(question.path),
                   " HTTP/1.1\r\nHost: ", HostField(target),
                   "\r\nUser-Agent: refrain-loadgen\r\nConnection: close\r\nContent-Length: ",
                   question.body.size(), "\r\n");
  if (!question.body.empty()) absl::StrAppend(&request, "Content-Type: application/json\r\n");
  if (!question.api_key.empty()) {
    absl::StrAppend(&request, "Authorization: Bearer ", std::string(question.api_key), "\r\n");
  }
  absl::StrAppend(&request, "\r\n", std::string(question.body));
  for (size_t sent = 0; sent < request.size();) {
    const ssize_t bytes = channel.Send(std::string_view(request).substr(sent));
    if (bytes <= 0) return channel.Broken("send");
    sent += static_cast<size_t>(bytes);
  }
  return ReadReply(target, &channel);
}

}  // namespace refrain::loadgen
