#include "server/grpc/message.h"

#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/slice.h>

#include <cstdint>

#include "server/concat.h"

namespace refrain::server::rpc {

absl::Status ReadMessage(const Incoming& incoming) {
  // gRPC's handler made it, not as a constant, and does not look at it again.
  auto* const bytes = const_cast<::grpc::ByteBuffer*>(incoming.bytes);
  bool read = false;
  {
    ::grpc::ProtoBufferReader reader(bytes);
    read = reader.status().ok() && incoming.message->ParseFromZeroCopyStream(&reader);
  }
  bytes->Clear();
  if (read) return absl::OkStatus();
  return absl::InvalidArgumentError(
      Concat("the request is not a valid ", incoming.message->GetTypeName(),
             ": its bytes break off, are no Protobuf message, or have text that is not UTF-8"));
}

void WriteMessage(const google::protobuf::Message& message, ::grpc::ByteBuffer* bytes) {
  ::grpc::Slice slice(message.ByteSizeLong());
  // A new slice is nobody else's yet.
  message.SerializeWithCachedSizesToArray(const_cast<uint8_t*>(slice.begin()));
  ::grpc::ByteBuffer written(&slice, 1);
  bytes->Swap(&written);
}

}  // namespace refrain::server::rpc
