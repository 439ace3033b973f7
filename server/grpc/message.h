#ifndef REFRAIN_SERVER_GRPC_MESSAGE_H_
#define REFRAIN_SERVER_GRPC_MESSAGE_H_

#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>

#include <memory>
#include <string_view>

#include "absl/status/status.h"

namespace refrain::server::rpc {

// Our methods are raw: gRPC hands over a message's bytes, and takes some. So nothing of a message
// is read before its sender is known and admitted, and what it will take is counted: a message of
// empty elements takes up to 45 times its bytes once it is read.

// A call's method and request. `message` is empty until ReadMessage; `bytes` lives as long as the
// call.
struct Incoming {
  std::string_view path;  // "/refrain.v1.Inference/Generate"; lives as long as the process
  const ::grpc::ByteBuffer* bytes = nullptr;
  std::shared_ptr<google::protobuf::Message> message;
};

// INVALID_ARGUMENT where the bytes are not such a message. Gives them free. Once per call.
absl::Status ReadMessage(const Incoming& incoming);

// `message` is under 2 GiB, as all of ours are by far.
void WriteMessage(const google::protobuf::Message& message, ::grpc::ByteBuffer* bytes);

}  // namespace refrain::server::rpc

#endif  // REFRAIN_SERVER_GRPC_MESSAGE_H_
