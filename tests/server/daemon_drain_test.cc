// The daemon as a process that drains: who is answered, who is told, how long it takes, and the
// exit status.

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/daemon.h"
#include "tests/server/daemon_process.h"
#include "tests/server/http/raw_client.h"
#include "tests/support/eventually.h"

namespace refrain::server {
namespace {

using ::refrain::testing::DaemonArguments;
using ::refrain::testing::DaemonProcess;
using ::refrain::testing::Eventually;
using ::refrain::testing::GetRequest;
using ::refrain::testing::PostRequest;
using ::refrain::testing::RawClient;
using ::refrain::testing::RawResponse;
using namespace std::chrono_literals;

int StatusOf(ExitStatus status) { return static_cast<int>(status); }

// Asks for `path` until the answer is `enough`.
bool WaitForAnswer(uint16_t port, const char* path,
                   const std::function<bool(const RawResponse&)>& enough) {
  return Eventually([&] {
    RawClient client(port);
    client.Send(GetRequest(path));
    return enough(client.ReadResponse());
  });
}

bool WaitUntilRunning(uint16_t port, int requests) {
  const std::string line = "vllm:num_requests_running{model_name=\"fake-model\",engine=\"0\"} " +
                           std::to_string(requests) + "\n";
  return WaitForAnswer(port, "/metrics", [&](const RawResponse& response) {
    return response.body.find(line) != std::string::npos;
  });
}

bool WaitUntilNotReady(uint16_t port) {
  return WaitForAnswer(port, "/ready",
                       [](const RawResponse& response) { return response.status == 503; });
}

// What a request gets that comes when a drain has begun. Between the probe's turn and the engine's
// one may still be taken in; it is answered.
RawResponse RefusedRequest(uint16_t port) {
  for (;;) {
    RawClient late(port);
    late.Send(PostRequest("/v1/completions", R"({"prompt":"x"})"));
    if (RawResponse response = late.ReadResponse(); response.status != 200) return response;
  }
}

bool IsToldOfTheEnd(const RawResponse& response) {
  return response.status == 503 && response.headers.contains("retry-after");
}

// SIGTERM: not ready any more, new requests are refused, the running stream comes to its end.
TEST(DaemonDrain, DrainsOnSigterm) {
  DaemonProcess daemon(DaemonArguments("fake"));
  const uint16_t port = daemon.Port();
  ASSERT_TRUE(daemon.WaitForOutput("ready"));
  RawClient running(port);
  running.Send(
      PostRequest("/v1/completions",
                  R"({"prompt":"[[delay_ms=200]]0123456789","stream":true,"max_tokens":20})"));
  ASSERT_TRUE(running.ReadUntil("\"text\":\"0\""));
  daemon.Signal(SIGTERM);
  ASSERT_TRUE(daemon.WaitForOutput("draining"));
  ASSERT_TRUE(WaitUntilNotReady(port));
  RawClient health(port);
  health.Send(GetRequest("/health"));
  EXPECT_EQ(health.ReadResponse().status, 200);
  EXPECT_TRUE(IsToldOfTheEnd(RefusedRequest(port)));

  const RawResponse response = running.ReadResponse();
  EXPECT_TRUE(response.complete);
  EXPECT_NE(response.body.find("\"text\":\"9\""), std::string::npos);
  EXPECT_NE(response.body.find("data: [DONE]"), std::string::npos);
  running.Close();
  EXPECT_EQ(daemon.Wait(), StatusOf(ExitStatus::kOk));
}

TEST(DaemonDrain, ASecondSignalStopsAtOnce) {
  DaemonProcess daemon(DaemonArguments("fake"));
  const uint16_t port = daemon.Port();
  ASSERT_TRUE(daemon.WaitForOutput("ready"));
  RawClient running(port);
  running.Send(PostRequest("/v1/completions", R"({"prompt":"[[hold]]a"})"));
  ASSERT_TRUE(WaitUntilRunning(port, 1));
  daemon.Signal(SIGTERM);
  ASSERT_TRUE(daemon.WaitForOutput("draining"));
  daemon.Signal(SIGTERM);
  EXPECT_TRUE(IsToldOfTheEnd(running.ReadResponse()));
  EXPECT_EQ(daemon.Wait(), StatusOf(ExitStatus::kInterrupted));
}

// Whatever it is that takes its time there, a library perhaps.
TEST(DaemonDrain, ASecondSignalStopsAtOnceAlsoBehindTheDrain) {
  DaemonProcess daemon(DaemonArguments("stuck"));
  ASSERT_TRUE(daemon.WaitForOutput("ready"));
  daemon.Signal(SIGTERM);
  ASSERT_TRUE(daemon.WaitForOutput("stopped finished_all=yes"));
  daemon.Signal(SIGTERM);
  EXPECT_EQ(daemon.Wait(), StatusOf(ExitStatus::kOk)) << daemon.output();
}

TEST(DaemonDrain, EndsADrainThatTakesTooLong) {
  DaemonProcess daemon(DaemonArguments("fake", {"--set", "limits.drain_s=0.2"}));
  const uint16_t port = daemon.Port();
  ASSERT_TRUE(daemon.WaitForOutput("ready"));
  RawClient running(port);
  running.Send(PostRequest("/v1/completions", R"({"prompt":"[[hold]]a"})"));
  RawClient stream(port);
  stream.Send(PostRequest("/v1/completions",
                          R"({"prompt":"[[delay_ms=500]]ab","stream":true,"max_tokens":1000,)"
                          R"("ignore_eos":true})"));
  ASSERT_TRUE(stream.ReadUntil("\"text\":\"a\""));
  ASSERT_TRUE(WaitUntilRunning(port, 2));
  daemon.Signal(SIGTERM);
  EXPECT_TRUE(IsToldOfTheEnd(running.ReadResponse()));
  const RawResponse cut = stream.ReadResponse();
  EXPECT_NE(cut.body.find("\"error\":"), std::string::npos) << cut.body;
  EXPECT_EQ(cut.body.find("[DONE]"), std::string::npos);
  EXPECT_EQ(daemon.Wait(), StatusOf(ExitStatus::kInterrupted));
}

// Its client waits for an answer, whatever it may still send.
TEST(DaemonDrain, TellsWhoseBodyHasNotComeByTheEndOfADrain) {
  DaemonProcess daemon(DaemonArguments("fake", {"--set", "limits.drain_s=0.2"}));
  const uint16_t port = daemon.Port();
  ASSERT_TRUE(daemon.WaitForOutput("ready"));
  RawClient client(port);
  const std::string request =
      PostRequest("/v1/completions", R"({"prompt":"abc"})", "Expect: 100-continue\r\n");
  client.Send(request.substr(0, request.size() - 5));
  EXPECT_EQ(client.ReadResponse(/*head_only=*/true).status, 100) << "it reads the body";
  daemon.Signal(SIGTERM);
  EXPECT_TRUE(IsToldOfTheEnd(client.ReadResponse()));
  EXPECT_TRUE(client.ReadEnd());
  client.Close();
  EXPECT_EQ(daemon.Wait(), StatusOf(ExitStatus::kOk));
}

// Whoever sends requests here has to see that it will end, also where nothing runs.
TEST(DaemonDrain, StaysForItsNotice) {
  DaemonProcess daemon(DaemonArguments("fake", {"--set", "limits.drain_notice_s=1"}));
  ASSERT_TRUE(daemon.WaitForOutput("ready"));
  const auto begin = std::chrono::steady_clock::now();
  daemon.Signal(SIGTERM);
  EXPECT_EQ(daemon.Wait(), StatusOf(ExitStatus::kOk));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 1s);
}

// For as long as the test looks; then it is told not to wait.
TEST(DaemonDrain, TellsAllWhoComeDuringItsNoticeUnlessASecondSignalEndsIt) {
  DaemonProcess daemon(DaemonArguments("fake", {"--set", "limits.drain_notice_s=3600"}));
  const uint16_t port = daemon.Port();
  ASSERT_TRUE(daemon.WaitForOutput("ready"));
  RawClient kept(port);
  kept.Send(GetRequest("/ready"));
  EXPECT_EQ(kept.ReadResponse().status, 200);
  daemon.Signal(SIGTERM);
  ASSERT_TRUE(daemon.WaitForOutput("draining"));
  ASSERT_TRUE(WaitUntilNotReady(port));
  kept.Send(GetRequest("/ready"));
  EXPECT_TRUE(IsToldOfTheEnd(kept.ReadResponse()));
  EXPECT_TRUE(IsToldOfTheEnd(RefusedRequest(port)));
  daemon.Signal(SIGTERM);
  EXPECT_EQ(daemon.Wait(), StatusOf(ExitStatus::kOk));
}

// The notice is for those who come; who runs has limits.drain_s.
TEST(DaemonDrain, EndsWhatRunsAtTheEndOfTheDrainThoughTheNoticeIsLonger) {
  DaemonProcess daemon(
      DaemonArguments("fake", {"--set", "limits.drain_s=0.2", "--set", "limits.drain_notice_s=4"}));
  const uint16_t port = daemon.Port();
  ASSERT_TRUE(daemon.WaitForOutput("ready"));
  RawClient running(port);
  running.Send(PostRequest("/v1/completions", R"({"prompt":"[[hold]]a"})"));
  ASSERT_TRUE(WaitUntilRunning(port, 1));
  const auto begin = std::chrono::steady_clock::now();
  daemon.Signal(SIGTERM);
  EXPECT_TRUE(IsToldOfTheEnd(running.ReadResponse()));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 3s);
  EXPECT_TRUE(IsToldOfTheEnd(RefusedRequest(port))) << "still there";
  EXPECT_EQ(daemon.Wait(), StatusOf(ExitStatus::kInterrupted)) << daemon.output();
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 4s);
}

// A stream of megabytes, more than the sockets hold, of which only the beginning is read yet.
bool BeginLongStream(RawClient* client) {
  client->Send(PostRequest("/v1/completions",
                           R"({"prompt":"abc","max_tokens":4000,"ignore_eos":true,"logprobs":5,)"
                           R"("stream":true})"));
  return client->ReadUntil("data:");
}

// All was computed in time, and in the end all was read.
TEST(DaemonDrain, ADrainIsCompleteWhereTheLastAnswerIsReadInTheTimeOfItsNotice) {
  DaemonProcess daemon(
      DaemonArguments("fake", {"--set", "limits.drain_s=0.2", "--set", "limits.drain_notice_s=5"}));
  RawClient slow(daemon.Port(), /*receive_buffer_bytes=*/64 << 10);
  ASSERT_TRUE(daemon.WaitForOutput("ready"));
  ASSERT_TRUE(BeginLongStream(&slow));
  ASSERT_TRUE(WaitUntilRunning(daemon.Port(), 0));
  daemon.Signal(SIGTERM);
  ASSERT_TRUE(daemon.WaitForOutput("draining"));
  std::this_thread::sleep_for(2500ms);  // longer than readers get without a notice
  EXPECT_TRUE(slow.ReadResponse().body.ends_with("data: [DONE]\n\n"));
  slow.Close();
  EXPECT_EQ(daemon.Wait(), StatusOf(ExitStatus::kOk)) << daemon.output();
}

// The engine has finished; its client begins to read when those whose time is over are ended.
TEST(DaemonDrain, ADrainWaitsForAClientThatReadsSlowly) {
  DaemonProcess daemon(DaemonArguments("fake"));
  const uint16_t port = daemon.Port();
  RawClient slow(port, /*receive_buffer_bytes=*/64 << 10);
  ASSERT_TRUE(daemon.WaitForOutput("ready"));
  ASSERT_TRUE(BeginLongStream(&slow));
  daemon.Signal(SIGTERM);
  ASSERT_TRUE(daemon.WaitForOutput("draining"));
  ASSERT_TRUE(WaitUntilRunning(port, 0));
  std::this_thread::sleep_for(3s);
  // Whoever looks after the process still has to see it live.
  RawClient health(port);
  health.Send(GetRequest("/health"));
  EXPECT_EQ(health.ReadResponse().status, 200);
  const RawResponse response = slow.ReadResponse();
  EXPECT_TRUE(response.complete);
  EXPECT_TRUE(response.body.ends_with("data: [DONE]\n\n"));
  slow.Close();
  EXPECT_EQ(daemon.Wait(), StatusOf(ExitStatus::kOk)) << daemon.output();
}

TEST(DaemonDrain, ADrainThatCutsAnAnswerShortSaysSo) {
  DaemonProcess daemon(DaemonArguments("fake", {"--set", "limits.drain_s=0.2"}));
  RawClient slow(daemon.Port(), /*receive_buffer_bytes=*/64 << 10);
  ASSERT_TRUE(daemon.WaitForOutput("ready"));
  ASSERT_TRUE(BeginLongStream(&slow));
  daemon.Signal(SIGTERM);
  EXPECT_EQ(daemon.Wait(), StatusOf(ExitStatus::kInterrupted)) << daemon.output();
}

TEST(DaemonDrain, ASecondSignalStopsAlsoWhileAnswersAreSent) {
  DaemonProcess daemon(DaemonArguments("fake"));
  const uint16_t port = daemon.Port();
  RawClient slow(port, /*receive_buffer_bytes=*/64 << 10);
  ASSERT_TRUE(daemon.WaitForOutput("ready"));
  ASSERT_TRUE(BeginLongStream(&slow));
  daemon.Signal(SIGTERM);
  ASSERT_TRUE(daemon.WaitForOutput("draining"));
  // Nothing is generated any more: what is left is the reader.
  ASSERT_TRUE(WaitUntilRunning(port, 0));
  daemon.Signal(SIGTERM);
  EXPECT_EQ(daemon.Wait(), StatusOf(ExitStatus::kInterrupted)) << daemon.output();
}

}  // namespace
}  // namespace refrain::server
