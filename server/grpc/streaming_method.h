#ifndef REFRAIN_SERVER_GRPC_STREAMING_METHOD_H_
#define REFRAIN_SERVER_GRPC_STREAMING_METHOD_H_

#include <grpc/grpc.h>
#include <grpcpp/impl/codegen/server_callback_handlers.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <functional>
#include <utility>

namespace refrain::server::rpc {

// A method with raw messages that answers with a stream, for Service::MarkMethodRawCallback, as the
// generated WithRawCallbackMethod_* would make it; but its calls are told the queue by which gRPC
// tells about them, too (CompleteHere). That is nowhere in gRPC's interface but with those classes
// that generated code is made of.
class StreamingMethod final : public ::grpc::internal::MethodHandler {
 public:
  using Reactor = ::grpc::ServerWriteReactor<::grpc::ByteBuffer>;
  using Start =
      std::function<Reactor*(::grpc::CallbackServerContext* context,
                             const ::grpc::ByteBuffer* request, grpc_completion_queue* queue)>;

  explicit StreamingMethod(Start start)
      : start_(std::move(start)),
        handler_([this](::grpc::CallbackServerContext* context, const ::grpc::ByteBuffer* request) {
          return start_(context, request, queue_);
        }) {}

  void RunHandler(const HandlerParameter& call) override {
    queue_ = call.call->cq()->cq();  // the same one for all calls of a process
    handler_.RunHandler(call);
  }
  void* Deserialize(grpc_call* call, grpc_byte_buffer* request, ::grpc::Status* status,
                    void** data) override {
    return handler_.Deserialize(call, request, status, data);
  }

 private:
  const Start start_;
  std::atomic<grpc_completion_queue*> queue_{nullptr};
  ::grpc::internal::CallbackServerStreamingHandler<::grpc::ByteBuffer, ::grpc::ByteBuffer> handler_;
};

}  // namespace refrain::server::rpc

#endif  // REFRAIN_SERVER_GRPC_STREAMING_METHOD_H_
