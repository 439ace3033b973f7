#ifndef REFRAIN_TESTS_SERVER_GRPC_HEALTH_CHECK_H_
#define REFRAIN_TESTS_SERVER_GRPC_HEALTH_CHECK_H_

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <utility>

namespace refrain::server::rpc {

// What Health/Check says of the whole server: 1 = serving, 2 = not.
inline int HealthOf(const std::shared_ptr<::grpc::Channel>& channel) {
  ::grpc::GenericStub stub(channel);
  ::grpc::ClientContext context;
  const ::grpc::Slice nothing;
  ::grpc::ByteBuffer request(&nothing, 1), response;
  std::promise<::grpc::Status> done;
  stub.UnaryCall(&context, "/grpc.health.v1.Health/Check", {}, &request, &response,
                 [&](::grpc::Status status) { done.set_value(std::move(status)); });
  const ::grpc::Status status = done.get_future().get();
  EXPECT_TRUE(status.ok()) << status.error_message();
  ::grpc::Slice bytes;
  EXPECT_TRUE(response.DumpToSingleSlice(&bytes).ok());
  return bytes.size() == 2 ? bytes.begin()[1] : 0;
}

}  // namespace refrain::server::rpc

#endif  // REFRAIN_TESTS_SERVER_GRPC_HEALTH_CHECK_H_
