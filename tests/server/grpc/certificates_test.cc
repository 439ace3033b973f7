// The certificate of the gRPC port, replaced while it serves.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "server/access/gate.h"
#include "server/grpc/server.h"
#include "server/log.h"
#include "tests/server/http/tls_client.h"
#include "tests/support/certificate.h"
#include "tests/support/eventually.h"
#include "tests/support/temporary_directory.h"

namespace refrain::server::rpc {
namespace {

using ::refrain::testing::Eventually;
using ::refrain::testing::MakeCertificate;
using ::refrain::testing::TlsClient;
using namespace std::chrono_literals;

class GrpcCertificates : public ::testing::Test {
 protected:
  void Write(const std::string& file, const std::string& text) const {
    std::ofstream(folder_.path() + "/" + file) << text;
  }

  absl::Status Start() {
    ServerOptions options{.host = "127.0.0.1"};
    options.tls_cert_file = folder_.path() + "/cert";
    options.tls_key_file = folder_.path() + "/key";
    auto server = Server::Start(options, gate_.get(), &log_);
    if (!server.ok()) return server.status();
    server_ = *std::move(server);
    return absl::OkStatus();
  }

  // Whose certificate a new connection meets; "" when there is no handshake.
  std::string Peer() const { return TlsClient(server_->port()).peer_name(); }

  bool WaitForPeer(const std::string& name) const {
    return Eventually([&] { return Peer() == name; });
  }

  const testing::TemporaryDirectory folder_;
  const std::unique_ptr<access::Gate> gate_ = access::MakeOpenGate();
  Log log_{LogFormat::kText, LogLevel::kInfo};
  std::unique_ptr<Server> server_;
};

TEST_F(GrpcCertificates, AHalfReplacedPairLeavesTheOldOneInUseUntilBothFit) {
  const auto old = MakeCertificate("old");
  Write("cert", old.certificate);
  Write("key", old.key);
  ASSERT_TRUE(Start().ok());
  EXPECT_EQ(Peer(), "old");
  const auto next = MakeCertificate("next");
  ::testing::internal::CaptureStderr();
  Write("cert", next.certificate);  // the key does not fit yet
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < 2500ms) {
    EXPECT_EQ(Peer(), "old");
    std::this_thread::sleep_for(50ms);
  }
  Write("key", next.key);
  EXPECT_TRUE(WaitForPeer("next"));
  const std::string said = ::testing::internal::GetCapturedStderr();
  const size_t complaint = said.find("cannot reload");
  EXPECT_NE(complaint, std::string::npos) << said;
  EXPECT_EQ(said.find("cannot reload", complaint + 1), std::string::npos) << "once:\n" << said;
  EXPECT_NE(said.find("reloaded what=", complaint), std::string::npos) << said;
  EXPECT_EQ(said.find("PRIVATE"), std::string::npos);
}

TEST_F(GrpcCertificates, FilesThatVanishLeaveThePairInUse) {
  const auto old = MakeCertificate("old");
  Write("cert", old.certificate);
  Write("key", old.key);
  ASSERT_TRUE(Start().ok());
  ::remove((folder_.path() + "/key").c_str());
  std::this_thread::sleep_for(1100ms);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Peer(), "old");
}

TEST_F(GrpcCertificates, APairThatDoesNotFitIsRefusedAtStart) {
  Write("cert", MakeCertificate("one").certificate);
  Write("key", MakeCertificate("another").key);
  const absl::Status status = Start();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
}

}  // namespace
}  // namespace refrain::server::rpc
