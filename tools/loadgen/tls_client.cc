#include "tools/loadgen/tls_client.h"

#include <arpa/inet.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "absl/strings/str_cat.h"

namespace refrain::loadgen {
namespace {

bool IsAddress(const std::string& host) {
  unsigned char bytes[16];
  return ::inet_pton(AF_INET, host.c_str(), bytes) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

}  // namespace

TlsClient::TlsClient(bool verify)
    : verify_(verify), context_(boost::asio::ssl::context::tls_client) {}

absl::StatusOr<std::shared_ptr<TlsClient>> TlsClient::Make(const TlsClientOptions& options) {
  std::shared_ptr<TlsClient> client(new TlsClient(options.verify));
  boost::system::error_code error;
  if (options.authorities_file.empty()) {
    client->context_.set_default_verify_paths(error);
    if (error) return absl::UnavailableError("no certificates of authorities on this system");
    return client;
  }
  client->context_.load_verify_file(options.authorities_file, error);
  if (error) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tls-ca is ", options.authorities_file,
                     ", which holds no certificates in PEM: ", error.message()));
  }
  return client;
}

bool TlsClient::Prepare(SSL* connection, const std::string& host) const {
  const bool address = IsAddress(host);
  // The server may have several names, but is not told an address.
  if (!address && SSL_set_tlsext_host_name(connection, host.c_str()) != 1) return false;
  if (!verify_) return true;
  SSL_set_verify(connection, SSL_VERIFY_PEER, nullptr);
  if (address) {
    return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(connection), host.c_str()) == 1;
  }
  return SSL_set1_host(connection, host.c_str()) == 1;
}

}  // namespace refrain::loadgen
