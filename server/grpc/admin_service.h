#ifndef REFRAIN_SERVER_GRPC_ADMIN_SERVICE_H_
#define REFRAIN_SERVER_GRPC_ADMIN_SERVICE_H_

#include <grpcpp/impl/service_type.h>

#include <memory>

#include "server/grpc/reception.h"

namespace refrain::server::rpc {

// proto/admin.proto over one engine: every call takes an administration key. Its calls may wait for
// the engine, so they have threads of their own. The reception outlives it.
std::unique_ptr<::grpc::Service> MakeAdminService(Reception* reception);

}  // namespace refrain::server::rpc

#endif  // REFRAIN_SERVER_GRPC_ADMIN_SERVICE_H_
