#ifndef REFRAIN_TESTS_SERVER_HTTP_TLS_CLIENT_H_
#define REFRAIN_TESTS_SERVER_HTTP_TLS_CLIENT_H_

#include <openssl/ssl.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace refrain::testing {

// A TLS client that trusts every certificate and sends just what it is told to. Blocking, with five
// seconds of patience for every call. One thread.
class TlsClient {
 public:
  // Connects and shakes hands.
  explicit TlsClient(uint16_t port, int receive_buffer_bytes = 0);
  ~TlsClient();
  TlsClient(TlsClient&& other) noexcept;
  TlsClient(const TlsClient&) = delete;

  bool connected() const { return ssl_ != nullptr; }
  bool Send(std::string_view bytes);
  void HalfClose();  // close_notify; its end of the connection stays open
  // Reads until `text` has come, and forgets what came up to it; false at the end.
  bool ReadUntil(std::string_view text);
  // True when the server closes within `patience`.
  bool ReadEnd(std::chrono::milliseconds patience = std::chrono::milliseconds(5000));
  // The common name in the server's certificate.
  std::string peer_name() const;

 private:
  bool ReadSome();

  int fd_ = -1;
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context_;
  std::unique_ptr<SSL, decltype(&SSL_free)> ssl_;
  std::string pending_;
};

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SERVER_HTTP_TLS_CLIENT_H_
