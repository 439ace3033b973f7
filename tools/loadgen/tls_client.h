#ifndef REFRAIN_TOOLS_LOADGEN_TLS_CLIENT_H_
#define REFRAIN_TOOLS_LOADGEN_TLS_CLIENT_H_

#include <openssl/types.h>

#include <boost/asio/ssl/context.hpp>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace refrain::loadgen {

struct TlsClientOptions {
  std::string authorities_file;  // PEM; empty: those of the system
  bool verify = true;            // that the server is who its name says
};

// How the client's side of TLS is done, for any number of connections at a time. Any thread.
class TlsClient {
 public:
  // INVALID_ARGUMENT when the file holds no certificates.
  static absl::StatusOr<std::shared_ptr<TlsClient>> Make(const TlsClientOptions& options);

  boost::asio::ssl::context& context() { return context_; }
  // Before the handshake of a connection to `host`: what is told to the server, and what its
  // certificate must say. False when it cannot be had.
  bool Prepare(SSL* connection, const std::string& host) const;

 private:
  explicit TlsClient(bool verify);

  const bool verify_;
  boost::asio::ssl::context context_;
};

}  // namespace refrain::loadgen

#endif  // REFRAIN_TOOLS_LOADGEN_TLS_CLIENT_H_
