#include "tests/server/http/tls_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/x509.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <utility>

namespace refrain::testing {

TlsClient::TlsClient(uint16_t port, int receive_buffer_bytes)
    : context_(SSL_CTX_new(TLS_client_method()), &SSL_CTX_free), ssl_(nullptr, &SSL_free) {
  fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
  if (receive_buffer_bytes > 0) {
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof(receive_buffer_bytes));
  }
  const timeval patience = {.tv_sec = 5, .tv_usec = 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) return;
  ssl_.reset(SSL_new(context_.get()));
  SSL_set_fd(ssl_.get(), fd_);
  if (SSL_connect(ssl_.get()) != 1) ssl_.reset();
  ERR_clear_error();
}

TlsClient::~TlsClient() {
  if (fd_ >= 0) ::close(fd_);
}

TlsClient::TlsClient(TlsClient&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      context_(std::move(other.context_)),
      ssl_(std::move(other.ssl_)),
      pending_(std::move(other.pending_)) {}

bool TlsClient::Send(std::string_view bytes) {
  return ssl_ != nullptr && SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size())) > 0;
}

void TlsClient::HalfClose() {
  if (ssl_ != nullptr) SSL_shutdown(ssl_.get());
}

bool TlsClient::ReadSome() {
  char buffer[16384];
  const int bytes = ssl_ == nullptr ? 0 : SSL_read(ssl_.get(), buffer, sizeof(buffer));
  ERR_clear_error();
  if (bytes <= 0) return false;
  pending_.append(buffer, static_cast<size_t>(bytes));
  return true;
}

bool TlsClient::ReadUntil(std::string_view text) {
  for (;;) {
    if (const size_t at = pending_.find(text); at != std::string::npos) {
      pending_.erase(0, at + text.size());
      return true;
    }
    if (!ReadSome()) return false;
  }
}

bool TlsClient::ReadEnd(std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd file = {fd_, POLLIN, 0};
    if (left.count() <= 0 || ::poll(&file, 1, static_cast<int>(left.count())) <= 0) return false;
    if (!ReadSome()) return true;
  }
}

std::string TlsClient::peer_name() const {
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(
      ssl_ == nullptr ? nullptr : SSL_get1_peer_certificate(ssl_.get()), &X509_free);
  if (certificate == nullptr) return "";
  char name[256] = "";
  X509_NAME_get_text_by_NID(X509_get_subject_name(certificate.get()), NID_commonName, name,
                            sizeof(name));
  return name;
}

}  // namespace refrain::testing
