#ifndef REFRAIN_SERVER_GRPC_MESSAGE_MEMORY_H_
#define REFRAIN_SERVER_GRPC_MESSAGE_MEMORY_H_

#include <google/protobuf/descriptor.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstddef>

namespace refrain::server::rpc {

// About how many bytes of memory a message of `type` takes once it is read from `bytes`: a bound
// for what has many small elements, which take most. Makes nothing of them, and stops counting
// behind `most`; of malformed ones it counts what stands before the fault. Linear, without
// recursion beyond that of the types. Pure; any thread.
size_t MemoryOnceRead(const ::grpc::ByteBuffer& bytes, const google::protobuf::Descriptor& type,
                      size_t most);

}  // namespace refrain::server::rpc

#endif  // REFRAIN_SERVER_GRPC_MESSAGE_MEMORY_H_
