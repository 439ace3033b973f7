#ifndef REFRAIN_SERVER_GRPC_INFERENCE_SERVICE_H_
#define REFRAIN_SERVER_GRPC_INFERENCE_SERVICE_H_

#include <grpcpp/impl/service_type.h>

#include <memory>

#include "server/grpc/reception.h"

namespace refrain::server::rpc {

// proto/inference.proto over one engine. The reception outlives it.
std::unique_ptr<::grpc::Service> MakeInferenceService(Reception* reception);

}  // namespace refrain::server::rpc

#endif  // REFRAIN_SERVER_GRPC_INFERENCE_SERVICE_H_
