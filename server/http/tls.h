#ifndef REFRAIN_SERVER_HTTP_TLS_H_
#define REFRAIN_SERVER_HTTP_TLS_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/annotated_mutex.h"

namespace boost::asio::ssl {
class context;
}

namespace refrain::server::http {

// A certificate chain and its private key as PEM text, for whoever terminates TLS itself (gRPC:
// grpc::SslServerCredentialsOptions::PemKeyCertPair takes these two strings).
struct PemFiles {
  std::string certificate_chain;
  std::string private_key;
};

// Reads both and checks that they are what they should be and belong together. The errors name the
// file and show nothing of what is in it.
absl::StatusOr<PemFiles> ReadPemFiles(const std::string& cert_file, const std::string& key_file);

// What the HTTP server's connections do TLS with: 1.2 or newer, server certificate only. Each
// connection takes the certificate that is current when it is accepted and keeps it, so a reload
// disturbs nobody. Any thread.
class TlsCertificate {
 public:
  static absl::StatusOr<std::shared_ptr<TlsCertificate>> Load(std::string cert_file,
                                                              std::string key_file);

  // Reads the files again; on failure what was there stays in use.
  absl::Status Reload();

  std::shared_ptr<boost::asio::ssl::context> context() const;
  // When the certificate ends, for the log: "2027-01-31T12:00:00Z".
  std::string expires() const;
  bool has_expired() const;

 private:
  TlsCertificate(std::string cert_file, std::string key_file);

  const std::string cert_file_;
  const std::string key_file_;
  mutable Mutex mutex_;
  std::shared_ptr<boost::asio::ssl::context> context_ REFRAIN_GUARDED_BY(mutex_);
};

}  // namespace refrain::server::http

#endif  // REFRAIN_SERVER_HTTP_TLS_H_
