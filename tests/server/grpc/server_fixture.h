#ifndef REFRAIN_TESTS_SERVER_GRPC_SERVER_FIXTURE_H_
#define REFRAIN_TESTS_SERVER_GRPC_SERVER_FIXTURE_H_

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "server/access/gate.h"
#include "server/grpc/server.h"
#include "server/log.h"
#include "tests/support/fake_engine.h"

namespace refrain::server::rpc {

// A server on a free port in front of a fake engine, open to everybody unless a gate is given. It
// is stopped at the end of the test; before, or when Start is called again, it is the test's to
// stop.
class GrpcServerTest : public ::testing::Test {
 public:
  explicit GrpcServerTest(testing::FakeEngineOptions engine = {},
                          LogLevel log_level = LogLevel::kError)
      : log_(LogFormat::kText, log_level), engine_(std::move(engine)) {}
  explicit GrpcServerTest(std::unique_ptr<access::Gate> gate) : GrpcServerTest() {
    gate_ = std::move(gate);
  }

 protected:
  void TearDown() override {
    if (server_ != nullptr) server_->Stop(std::chrono::milliseconds(0));
  }

  void Start(ServerOptions options = {}) {
    options.host = "127.0.0.1";
    auto server = Server::Start(options, gate_.get(), &log_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    server_->SetEngine(&engine_);
  }

  // A connection of its own, made at the first call.
  std::shared_ptr<::grpc::Channel> Connect() const {
    ::grpc::ChannelArguments own;
    own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return ::grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(server_->port()),
                                       ::grpc::InsecureChannelCredentials(), own);
  }

  std::unique_ptr<access::Gate> gate_ = access::MakeOpenGate();
  Log log_;
  testing::FakeEngine engine_;
  std::unique_ptr<Server> server_;
};

}  // namespace refrain::server::rpc

#endif  // REFRAIN_TESTS_SERVER_GRPC_SERVER_FIXTURE_H_
