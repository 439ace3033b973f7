#ifndef REFRAIN_SERVER_GRPC_CREDENTIALS_H_
#define REFRAIN_SERVER_GRPC_CREDENTIALS_H_

#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/log.h"

namespace refrain::server::rpc {

// What a port speaks: TLS with this certificate chain and key, in PEM, or plain text for "".
//
// The files are looked at when a client connects, once a second at most, and read again when they
// have changed; connections keep what they began with. A pair that cannot be read or does not fit,
// as while one file of two is replaced, is logged, and the one before stays in use until they fit.
//
// `log` and the result outlive the server that uses it. Fails as http::ReadPemFiles does.
absl::StatusOr<std::shared_ptr<::grpc::ServerCredentials>> MakeCredentials(
    const std::string& cert_file, const std::string& key_file, Log* log);

}  // namespace refrain::server::rpc

#endif  // REFRAIN_SERVER_GRPC_CREDENTIALS_H_
