// What grpc.health.v1 tells those that watch: how it is, and then each change once.

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "absl/status/status.h"
#include "tests/server/grpc/server_fixture.h"

namespace refrain::server::rpc {
namespace {

using namespace std::chrono_literals;

// As in the protocol, but for the end.
enum Serving { kEnded = 0, kServing = 1, kNotServing = 2, kUnknown = 3 };

// A stream of Health/Watch, read message by message.
class HealthWatch {
 public:
  HealthWatch(const std::shared_ptr<::grpc::Channel>& channel, std::string_view service)
      : stub_(channel) {
    call_ = stub_.PrepareCall(&context_, "/grpc.health.v1.Health/Watch", &queue_);
    call_->StartCall(this);
    EXPECT_TRUE(Completed());
    std::string request;  // HealthCheckRequest: string service = 1
    if (!service.empty()) {
      request = std::string{10, static_cast<char>(service.size())} + std::string(service);
    }
    const ::grpc::Slice slice(request);
    call_->WriteLast(::grpc::ByteBuffer(&slice, 1), {}, this);
    EXPECT_TRUE(Completed());
  }
  ~HealthWatch() {
    context_.TryCancel();
    queue_.Shutdown();
    void* tag;
    for (bool ok; queue_.Next(&tag, &ok);) continue;
  }

  // The next message, waited for; kEnded where none comes any more.
  Serving Next() {
    ::grpc::ByteBuffer message;
    call_->Read(&message, this);
    if (!Completed()) return kEnded;
    ::grpc::Slice bytes;
    EXPECT_TRUE(message.DumpToSingleSlice(&bytes).ok());
    EXPECT_EQ(bytes.size(), 2u);  // HealthCheckResponse: ServingStatus status = 1
    return bytes.size() == 2 ? static_cast<Serving>(bytes.begin()[1]) : kEnded;
  }

 private:
  bool Completed() {
    void* tag;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }

  ::grpc::ClientContext context_;
  ::grpc::CompletionQueue queue_;
  ::grpc::GenericStub stub_;
  std::unique_ptr<::grpc::GenericClientAsyncReaderWriter> call_;
};

class GrpcHealthWatch : public GrpcServerTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(GrpcHealthWatch, TellsOfADrainOnce) {
  Start();
  HealthWatch watch(Connect(), GetParam());
  EXPECT_EQ(watch.Next(), kServing);
  server_->BeginDrain();
  EXPECT_EQ(watch.Next(), kNotServing);
  std::thread stopper([&] { server_->Stop(10s); });
  EXPECT_EQ(watch.Next(), kEnded);
  stopper.join();
}

TEST_P(GrpcHealthWatch, TellsOfADeadEngineOnce) {
  Start();
  HealthWatch watch(Connect(), GetParam());
  EXPECT_EQ(watch.Next(), kServing);
  engine_.Die(absl::InternalError("broken"));
  EXPECT_EQ(watch.Next(), kNotServing);
  std::thread stopper([&] { server_->Stop(10s); });
  EXPECT_EQ(watch.Next(), kEnded);
  stopper.join();
}

TEST_P(GrpcHealthWatch, TellsOfAStallAndOfItsEnd) {
  Start();
  HealthWatch watch(Connect(), GetParam());
  EXPECT_EQ(watch.Next(), kServing);
  engine_.Die(absl::UnavailableError("it hangs"));
  EXPECT_EQ(watch.Next(), kNotServing);
  engine_.Die(absl::OkStatus());
  EXPECT_EQ(watch.Next(), kServing);
  std::thread stopper([&] { server_->Stop(10s); });
  EXPECT_EQ(watch.Next(), kNotServing);
  EXPECT_EQ(watch.Next(), kEnded);
  stopper.join();
}

// gRPC keeps a place for every name that is watched: what is said of all would be said of it.
TEST_F(GrpcServerTest, AWatchedServiceThatIsNotThereNeverServes) {
  Start();
  HealthWatch watch(Connect(), "typo");
  EXPECT_EQ(watch.Next(), kUnknown);
  server_->BeginDrain();
  std::thread stopper([&] { server_->Stop(10s); });
  EXPECT_EQ(watch.Next(), kEnded);
  stopper.join();
}

INSTANTIATE_TEST_SUITE_P(Services, GrpcHealthWatch,
                         ::testing::Values("", "refrain.v1.Inference", "refrain.v1.Admin"));

}  // namespace
}  // namespace refrain::server::rpc
