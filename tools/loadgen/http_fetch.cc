#include "tools/loadgen/http_fetch.h"

#include <netdb.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "tools/loadgen/tls_client.h"

namespace refrain::loadgen {
namespace {

namespace http = boost::beast::http;

constexpr uint64_t kMostBodyBytes = 64 << 20;

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  Socket(const Socket&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

absl::Status Broken(const HttpTarget& target, const char* step) {
  return absl::UnavailableError(
      absl::StrCat(target.host, ":", target.port, ": cannot ", step, ": ", std::strerror(errno)));
}

// The bytes of one connection, in plain text or by TLS. Both return what they moved, 0 at the end,
// below 0 on an error.
class Channel {
 public:
  explicit Channel(int fd) : fd_(fd) {}

  absl::Status BeginTls(const HttpTarget& target) {
    ERR_clear_error();
    tls_.reset(SSL_new(target.tls->context().native_handle()));
    if (tls_ != nullptr && SSL_set_fd(tls_.get(), fd_) == 1 &&
        target.tls->Prepare(tls_.get(), target.host) && SSL_connect(tls_.get()) == 1) {
      return absl::OkStatus();
    }
    std::string why = "the connection broke";
    if (const unsigned long code = ERR_get_error(); code != 0) {
      char text[256];
      ERR_error_string_n(code, text, sizeof(text));
      why = text;
    }
    return absl::UnavailableError(absl::StrCat(target.host, ":", target.port, ": no TLS: ", why));
  }

  ssize_t Send(std::string_view bytes) {
    if (tls_ == nullptr) return ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    size_t sent = 0;
    return SSL_write_ex(tls_.get(), bytes.data(), bytes.size(), &sent) == 1
               ? static_cast<ssize_t>(sent)
               : -1;
  }

  ssize_t Receive(char* to, size_t most) {
    if (tls_ == nullptr) return ::recv(fd_, to, most, 0);
    size_t read = 0;
    if (SSL_read_ex(tls_.get(), to, most, &read) == 1) return static_cast<ssize_t>(read);
    return SSL_get_error(tls_.get(), 0) == SSL_ERROR_ZERO_RETURN ? 0 : -1;
  }

 private:
  const int fd_;
  std::unique_ptr<SSL, void (*)(SSL*)> tls_{nullptr, SSL_free};
};

// One connection, or the error of the last address tried.
absl::StatusOr<std::unique_ptr<Socket>> Connect(const HttpTarget& target, double timeout_s) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(target.host.c_str(), target.port.c_str(), &hints, &found);
  if (code != 0) {
    return absl::UnavailableError(
        absl::StrCat("no address of ", target.host, ": ", ::gai_strerror(code)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(found, ::freeaddrinfo);
  const timeval timeout = {
      .tv_sec = static_cast<time_t>(timeout_s),
      .tv_usec = static_cast<suseconds_t>(
          (timeout_s - static_cast<double>(static_cast<time_t>(timeout_s))) * 1e6)};
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    auto socket =
        std::make_unique<Socket>(::socket(entry->ai_family, entry->ai_socktype | SOCK_CLOEXEC, 0));
    if (socket->fd() < 0) continue;
    // On Linux the time to send limits connecting, too.
    ::setsockopt(socket->fd(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    ::setsockopt(socket->fd(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
    if (::connect(socket->fd(), entry->ai_addr, entry->ai_addrlen) == 0) return socket;
  }
  return Broken(target, "connect");
}

}  // namespace

absl::StatusOr<HttpReply> Fetch(const HttpTarget& target, const HttpQuestion& question) {
  const auto socket = Connect(target, question.timeout_s);
  if (!socket.ok()) return socket.status();
  Channel channel((*socket)->fd());
  if (target.tls != nullptr) {
    if (absl::Status status = channel.BeginTls(target); !status.ok()) return status;
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
    if (bytes <= 0) return Broken(target, "send");
    sent += static_cast<size_t>(bytes);
  }
  http::response_parser<http::string_body> parser;
  parser.eager(true);
  parser.body_limit(kMostBodyBytes);
  std::string pending;
  boost::system::error_code error;
  while (!parser.is_done()) {
    char piece[16384];
    const ssize_t bytes = channel.Receive(piece, sizeof(piece));
    if (bytes < 0) return Broken(target, "read");
    if (bytes == 0) {
      parser.put_eof(error);
      if (error)
        return absl::UnavailableError(
            absl::StrCat(target.host, ":", target.port, ": the answer broke off"));
      break;
    }
    pending.append(piece, static_cast<size_t>(bytes));
    pending.erase(0, parser.put(boost::asio::buffer(pending), error));
    if (error && error != http::error::need_more) {
      return absl::InvalidArgumentError(
          absl::StrCat(target.host, ":", target.port, ": no HTTP: ", error.message()));
    }
  }
  return HttpReply{static_cast<int>(parser.get().result_int()), parser.get().body()};
}

}  // namespace refrain::loadgen
