#include "server/grpc/reflection_gate.h"

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <string>
#include <string_view>

#include "server/grpc/metadata.h"
#include "server/grpc/status_mapping.h"

namespace refrain::server::rpc {
namespace {

using ::grpc::experimental::InterceptionHookPoints;
using ::grpc::experimental::InterceptorBatchMethods;
using ::grpc::experimental::ServerRpcInfo;

// All versions of the service.
constexpr std::string_view kReflectionPrefix = "/grpc.reflection.";

void AppendLength(size_t length, std::string* out) {
  for (; length >= 0x80; length >>= 7) out->push_back(static_cast<char>(length | 0x80));
  out->push_back(static_cast<char>(length));
}

// A grpc.reflection ServerReflectionResponse that holds nothing but an ErrorResponse (field 7) with
// code and message, as bytes: gRPC's library has the types but not their header.
::grpc::ByteBuffer ErrorResponse(const ::grpc::Status& status) {
  static_assert(::grpc::StatusCode::UNAUTHENTICATED < 0x80);
  std::string error = {'\x08', static_cast<char>(status.error_code()), '\x12'};
  AppendLength(status.error_message().size(), &error);
  error += status.error_message();
  std::string response = "\x3a";
  AppendLength(error.size(), &response);
  const ::grpc::Slice slice(response + error);
  return {&slice, 1};
}

class ReflectionGate : public ::grpc::experimental::Interceptor {
 public:
  explicit ReflectionGate(const access::Gate* gate) : gate_(gate) {}

  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_INITIAL_METADATA)) {
      const std::string_view authorization =
          MetadataValue(*methods->GetRecvInitialMetadata(), "authorization");
      refusal_ =
          GrpcStatusOf(gate_->Authenticate(access::Area::kMonitoring, authorization).status());
    }
    if (!refusal_.ok()) {
      if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_MESSAGE)) {
        *methods->GetSerializedSendMessage() = ErrorResponse(refusal_);
      }
      if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
        methods->ModifySendStatus(refusal_);
      }
    }
    methods->Proceed();
  }

 private:
  const access::Gate* const gate_;
  ::grpc::Status refusal_;
};

class Factory : public ::grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit Factory(const access::Gate* gate) : gate_(gate) {}

  // Null where there is nothing to ask.
  ::grpc::experimental::Interceptor* CreateServerInterceptor(ServerRpcInfo* info) override {
    const bool reflects =
        std::string_view(info->method()).substr(0, kReflectionPrefix.size()) == kReflectionPrefix;
    return reflects ? new ReflectionGate(gate_) : nullptr;  // gRPC deletes it
  }

 private:
  const access::Gate* const gate_;
};

}  // namespace

std::unique_ptr<::grpc::experimental::ServerInterceptorFactoryInterface> MakeReflectionGate(
    const access::Gate* gate) {
  return std::make_unique<Factory>(gate);
}

}  // namespace refrain::server::rpc
