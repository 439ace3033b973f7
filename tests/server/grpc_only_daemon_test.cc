// The daemon without HTTP (server.http_listen is empty).

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "proto/inference.grpc.pb.h"
#include "server/daemon.h"
#include "tests/server/daemon_process.h"
#include "tests/support/little_room.h"

namespace refrain::server {
namespace {

using ::refrain::testing::DaemonProcess;

std::vector<std::string> Arguments() {
  return {"--model", "fake", "--listen", "", "--grpc-listen", "127.0.0.1:0"};
}

std::unique_ptr<v1::Inference::Stub> StubOf(uint16_t port) {
  return v1::Inference::NewStub(::grpc::CreateChannel("127.0.0.1:" + std::to_string(port),
                                                      ::grpc::InsecureChannelCredentials()));
}

v1::GenerateRequest RequestOf(const std::string& prompt) {
  v1::GenerateRequest request;
  request.mutable_text()->set_text(prompt);
  request.mutable_params()->mutable_stop()->set_max_tokens(20);
  return request;
}

// Of so many clients that ask at once, each on a connection of its own.
int AnsweredCalls(uint16_t port, int clients) {
  std::atomic<int> answered{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < clients; ++i) {
    threads.emplace_back([&] {
      ::grpc::ChannelArguments own;
      own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
      const auto stub = v1::Inference::NewStub(::grpc::CreateCustomChannel(
          "127.0.0.1:" + std::to_string(port), ::grpc::InsecureChannelCredentials(), own));
      ::grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
      const auto reader = stub->Generate(&context, RequestOf("0123456789"));
      v1::GenerateResponse message;
      while (reader->Read(&message)) continue;
      if (reader->Finish().ok()) ++answered;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return answered;
}

// SIGTERM while an answer is on its way: it comes to its end, then the daemon stops.
TEST(GrpcOnlyDaemon, AnswersDrainsAndStops) {
  DaemonProcess daemon(Arguments());
  const std::unique_ptr<v1::Inference::Stub> stub = StubOf(daemon.GrpcPort());
  ASSERT_TRUE(daemon.WaitForOutput("ready model=fake-model")) << daemon.output();
  EXPECT_NE(daemon.output().find("listening http=off grpc=127.0.0.1:"), std::string::npos)
      << daemon.output();

  ::grpc::ClientContext context;
  const auto reader = stub->Generate(&context, RequestOf("[[delay_ms=200]]0123456789"));
  v1::GenerateResponse message;
  std::string text;
  ASSERT_TRUE(reader->Read(&message));
  daemon.Signal(SIGTERM);
  ASSERT_TRUE(daemon.WaitForOutput("draining"));
  do {
    for (const v1::ChoiceDelta& delta : message.choices()) text += delta.text();
  } while (reader->Read(&message));
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(text, "0123456789");
  EXPECT_EQ(daemon.Wait(), static_cast<int>(ExitStatus::kOk)) << daemon.output();
}

TEST(GrpcOnlyDaemon, ASecondSignalStopsAtOnce) {
  DaemonProcess daemon(Arguments());
  const std::unique_ptr<v1::Inference::Stub> stub = StubOf(daemon.GrpcPort());
  ASSERT_TRUE(daemon.WaitForOutput("ready"));
  ::grpc::ClientContext context;
  const auto reader = stub->Generate(&context, RequestOf("[[delay_ms=1000]]0123456789"));
  v1::GenerateResponse message;
  ASSERT_TRUE(reader->Read(&message));
  daemon.Signal(SIGTERM);
  ASSERT_TRUE(daemon.WaitForOutput("draining"));
  daemon.Signal(SIGTERM);
  EXPECT_EQ(daemon.Wait(), static_cast<int>(ExitStatus::kInterrupted)) << daemon.output();
}

TEST(GrpcOnlyDaemon, FailsWhenTheModelCannotBeLoaded) {
  std::vector<std::string> arguments = Arguments();
  arguments[1] = "fail";
  DaemonProcess daemon(arguments);
  EXPECT_EQ(daemon.Wait(), static_cast<int>(ExitStatus::kFailed));
  EXPECT_NE(daemon.output().find("no such model: fail"), std::string::npos);
}

// As daemon_surroundings_test has it for HTTP. gRPC's own threads are among those that are refused.
TEST(GrpcOnlyDaemon, SaysWhichLimitsThereAreWhereTheSystemRefusesAThread) {
#ifndef REFRAIN_TESTS_CAN_LIMIT_ADDRESSES
  GTEST_SKIP() << "a sanitizer takes terabytes of addresses";
#endif
  constexpr rlim_t kStackBytes = rlim_t{2} << 30;
  int threads = 0;
  // gRPC wants some for each processor.
  const int step = std::max<int>(3, static_cast<int>(std::thread::hardware_concurrency()));
  for (;; threads += step) {
    ASSERT_LT(threads, 20 * step + 100);
    const rlim_t addresses = kStackBytes * threads + kStackBytes / 2;
    DaemonProcess daemon(Arguments(), {.stack_bytes = rlimit{kStackBytes, kStackBytes},
                                       .address_bytes = rlimit{addresses, addresses}});
    if (daemon.WaitForOutput(" ready ")) break;
    EXPECT_EQ(daemon.Wait(), static_cast<int>(ExitStatus::kFailed)) << threads << daemon.output();
    EXPECT_NE(daemon.output().find("TasksMax"), std::string::npos) << threads << daemon.output();
  }
  EXPECT_GT(threads, 12) << "the limit has no effect";
}

// With the usual stacks the addresses may also end between the rehearsal and gRPC's own threads,
// for which the library would wait as it ends. It depends on other things, too, which start that
// is.
TEST(GrpcOnlyDaemon, EndsAStartThatAddressesDoNotSufficeFor) {
#ifndef REFRAIN_TESTS_CAN_LIMIT_ADDRESSES
  GTEST_SKIP() << "a sanitizer takes terabytes of addresses";
#endif
  using Clock = std::chrono::steady_clock;
  constexpr rlim_t kStackBytes = rlim_t{8} << 20;
  constexpr auto kTime = std::chrono::seconds(10);
  constexpr auto kLibraryTime = std::chrono::seconds(20);  // of StartLibraryThreads, at most
  constexpr auto kPatience = 3 * kLibraryTime;
  int refused = 0;
  int refused_by_library = 0;
  const Clock::time_point begin = Clock::now();
  for (rlim_t mib = 224; mib < 640 && Clock::now() < begin + kTime; mib += 16) {
    const rlim_t addresses = mib << 20;
    DaemonProcess daemon(Arguments(), {.stack_bytes = rlimit{kStackBytes, kStackBytes},
                                       .address_bytes = rlimit{addresses, addresses}});
    const Clock::time_point started = Clock::now();
    bool ready = daemon.WaitForOutput(" ready ");
    int status = -1;
    while (!ready && !daemon.has_ended() && Clock::now() < started + kPatience) {
      status = daemon.Wait();
      ready = daemon.WaitForOutput(" ready ");  // later than it is waited for at once
    }
    if (ready) continue;
    ASSERT_TRUE(daemon.has_ended()) << mib << " MiB: " << daemon.output();
    ++refused;
    if (Clock::now() >= started + kLibraryTime) ++refused_by_library;
    if (status < 0) continue;  // gRPC aborts where it gets no memory
    EXPECT_EQ(status, static_cast<int>(ExitStatus::kFailed)) << mib << daemon.output();
    EXPECT_NE(daemon.output().find("ulimit"), std::string::npos) << mib << daemon.output();
  }
  EXPECT_GT(refused, 0) << "the limit has no effect";
  if (refused_by_library == 0) GTEST_SKIP() << "none of these had got as far as gRPC's own threads";
}

// gRPC starts threads when there is much to do, and what it gives to one that it was refused is
// never done, also when threads can be had again.
TEST(GrpcOnlyDaemon, NeedsNoThreadThatItHasNotGotAtTheStart) {
#ifndef REFRAIN_TESTS_CAN_LIMIT_ADDRESSES
  GTEST_SKIP() << "a sanitizer takes terabytes of addresses";
#endif
  constexpr rlim_t kStackBytes = rlim_t{2} << 30;
  DaemonProcess daemon(Arguments(), {.stack_bytes = rlimit{kStackBytes, kStackBytes}});
  const uint16_t port = daemon.GrpcPort();
  ASSERT_TRUE(daemon.WaitForOutput(" ready ")) << daemon.output();
  daemon.LimitMoreAddresses(kStackBytes - (rlim_t{1} << 20));
  EXPECT_EQ(AnsweredCalls(port, 40), 40);
  daemon.LiftAddressLimit();
  EXPECT_EQ(AnsweredCalls(port, 40), 40);
  daemon.Signal(SIGTERM);
  EXPECT_EQ(daemon.Wait(), static_cast<int>(ExitStatus::kOk)) << daemon.output();
}

}  // namespace
}  // namespace refrain::server
