#include "server/grpc/credentials.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

namespace refrain::server::rpc {
namespace {

namespace tls = ::grpc::experimental;

constexpr unsigned kRefreshS = 1;

}  // namespace

std::shared_ptr<::grpc::ServerCredentials> MakeCredentials(const std::string& cert_file,
                                                           const std::string& key_file) {
  if (cert_file.empty()) return ::grpc::InsecureServerCredentials();
  tls::TlsServerCredentialsOptions options(
      std::make_shared<tls::FileWatcherCertificateProvider>(key_file, cert_file, kRefreshS));
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  return tls::TlsServerCredentials(options);
}

}  // namespace refrain::server::rpc
