#ifndef REFRAIN_SERVER_GRPC_CREDENTIALS_H_
#define REFRAIN_SERVER_GRPC_CREDENTIALS_H_

#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <string>

namespace refrain::server::rpc {

// What a port speaks: TLS with this certificate chain and key, in PEM, or plain text for "". The
// files have been checked (http::ReadPemFiles). They are read again within a second or two of a
// change; connections keep what they began with.
std::shared_ptr<::grpc::ServerCredentials> MakeCredentials(const std::string& cert_file,
                                                           const std::string& key_file);

}  // namespace refrain::server::rpc

#endif  // REFRAIN_SERVER_GRPC_CREDENTIALS_H_
