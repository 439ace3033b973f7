// Streams of which nothing comes for long, over real sockets: with a ping interval they get
// comments, which change nothing else.

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/server/http/raw_client.h"
#include "tests/server/http/tls_client.h"
#include "tests/server/openai/served_fake.h"
#include "tests/support/certificate.h"
#include "tests/support/eventually.h"
#include "tests/support/slow_build.h"
#include "tests/support/temporary_directory.h"

namespace refrain::server::openai {
namespace {

using ::refrain::testing::Eventually;
using ::refrain::testing::kSlowBuildFactor;
using ::refrain::testing::PostRequest;
using ::refrain::testing::RawClient;
using ::refrain::testing::RawResponse;
using ::refrain::testing::ServedFake;
using namespace std::chrono_literals;

constexpr std::string_view kPing = ": ping\n\n";
constexpr auto kInterval = 50ms;

std::string Completion(const std::string& prompt, const std::string& more = R"(,"stream":true)") {
  return PostRequest("/v1/completions", R"({"prompt":")" + prompt + "\"" + more + "}");
}

// How often `what` is in it; with `erase`, it no longer is.
int Count(std::string_view what, std::string* text, bool erase = false) {
  int count = 0;
  for (size_t at = 0; (at = text->find(what, at)) != std::string::npos; ++count) {
    if (erase) {
      text->erase(at, what.size());
    } else {
      at += what.size();
    }
  }
  return count;
}

class StreamPingsTest : public ::testing::Test {
 protected:
  static RawResponse Answer(const ServedFake& served, const std::string& request) {
    RawClient client(served.port());
    client.Send(request);
    return client.ReadResponse();
  }

  std::mutex mutex_;
  std::vector<int> statuses_;
  ServedFake served_{{},
                     {.ping_interval = kInterval,
                      .on_exchange =
                          [this](const http::Exchange& exchange) {
                            const std::lock_guard lock(mutex_);
                            statuses_.push_back(exchange.status);
                          }},
                     {.version = "9.9.9"}};
};

// Before its first token and between two.
TEST_F(StreamPingsTest, ComeWhileNothingElseDoes) {
  ServedFake silent;
  const std::string request = Completion("[[delay_ms=300]]ab");
  RawResponse with = Answer(served_, request);
  RawResponse without = Answer(silent, request);
  for (RawResponse* response : {&with, &without}) {
    EXPECT_EQ(response->status, 200);
    EXPECT_TRUE(response->complete);
    EXPECT_EQ(response->headers["content-type"], "text/event-stream; charset=utf-8");
  }
  EXPECT_EQ(Count(kPing, &without.body), 0);
  EXPECT_TRUE(with.body.starts_with(kPing));
  const size_t first = with.body.find("data: ");
  EXPECT_NE(with.body.find(kPing, first), std::string::npos) << "none between tokens";
  const int pings = Count(kPing, &with.body, /*erase=*/true);
  EXPECT_GE(pings, 2);
  EXPECT_LE(pings, 3 * (300 / 50));  // three steps: two tokens and the end
  EXPECT_EQ(Count("data: ", &with.body), Count("data: ", &without.body));
  EXPECT_TRUE(with.body.starts_with("data: {"));
  EXPECT_TRUE(with.body.ends_with("}\n\ndata: [DONE]\n\n"));
}

TEST_F(StreamPingsTest, DoNotComeWhileTokensDo) {
  ServedFake served({}, {.ping_interval = 2s * kSlowBuildFactor}, {.version = "9.9.9"});
  RawResponse response =
      Answer(served, Completion("[[delay_ms=20]]abc", R"(,"stream":true,"max_tokens":150,)"
                                                      R"("ignore_eos":true)"));
  EXPECT_EQ(Count("data: ", &response.body), 151);
  EXPECT_EQ(Count(kPing, &response.body), 0);
}

// It has no place for them.
TEST_F(StreamPingsTest, AnAnswerThatIsNoStreamGetsNone) {
  RawResponse response = Answer(served_, Completion("[[delay_ms=200]]a", ""));
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.chunks, 0);
  EXPECT_EQ(Count(kPing, &response.body), 0);
}

// Of a response with long instructions, which a worker writes with its first token.
TEST_F(StreamPingsTest, ComeToALongRequestThatWaits) {
  const std::string instructions(20'000, 'x');
  RawResponse response =
      Answer(served_, PostRequest("/v1/responses", R"({"input":"[[delay_ms=300]]a","stream":true,)"
                                                   R"("instructions":")" +
                                                       instructions + "\"}"));
  EXPECT_TRUE(response.body.starts_with(kPing)) << response.body.substr(0, 100);
  EXPECT_NE(response.body.find("response.completed"), std::string::npos);
}

// Of many choices: it is begun on a worker thread.
TEST_F(StreamPingsTest, ComeToAnAnswerThatAWorkerBegan) {
  RawResponse response =
      Answer(served_, Completion("[[delay_ms=300]]a", R"(,"stream":true,"n":20)"));
  EXPECT_TRUE(response.body.starts_with(kPing));
  EXPECT_TRUE(response.body.ends_with("data: [DONE]\n\n"));
}

// The head has said 200.
TEST_F(StreamPingsTest, AFailureBehindOneIsAnEvent) {
  constexpr int kDeadlineExceeded = 4;
  RawResponse response = Answer(
      served_, Completion("[[late=" + std::to_string(kDeadlineExceeded) + "]][[delay_ms=300]]a"));
  EXPECT_EQ(response.status, 200);
  EXPECT_GE(Count(kPing, &response.body, /*erase=*/true), 1);
  EXPECT_TRUE(response.body.starts_with(R"(data: {"error":{)")) << response.body;
  EXPECT_EQ(Count("[DONE]", &response.body), 0);
  EXPECT_EQ(response.headers["connection"], "keep-alive");
  EXPECT_TRUE(Eventually([&] {
    const std::lock_guard lock(mutex_);
    return statuses_ == std::vector<int>{200};
  }));
  // What is refused before keeps its status.
  EXPECT_EQ(Answer(served_, Completion("[[late=4]]a")).status, 408);
  EXPECT_EQ(Answer(served_, Completion("[[reject=8]]a")).status, 429);
}

TEST_F(StreamPingsTest, AClientThatGoesAwayBetweenThemEndsItsRequest) {
  RawClient client(served_.port());
  client.Send(Completion("[[hold]]a"));
  ASSERT_TRUE(client.ReadUntil(": ping\n\n"));
  client.Close();
  EXPECT_TRUE(served_.engine().WaitForCancelled(1));
}

TEST_F(StreamPingsTest, ComeToAllOfManyStreams) {
  constexpr int kStreams = 200;
  std::vector<RawClient> clients;
  for (int i = 0; i < kStreams; ++i) {
    clients.emplace_back(served_.port());
    clients.back().Send(Completion("[[hold]]a"));
  }
  for (RawClient& client : clients) {
    EXPECT_TRUE(client.ReadUntil("\r\n\r\n8\r\n: ping\n\n\r\n8\r\n: ping\n\n\r\n"));
  }
}

TEST_F(StreamPingsTest, ComeUnderTls) {
  testing::TemporaryDirectory folder;
  const auto pair = testing::MakeCertificate("localhost");
  std::ofstream(folder.path() + "/cert") << pair.certificate;
  std::ofstream(folder.path() + "/key") << pair.key;
  auto tls = http::TlsCertificate::Load(folder.path() + "/cert", folder.path() + "/key");
  ASSERT_TRUE(tls.ok()) << tls.status();
  ServedFake served({}, {.ping_interval = kInterval, .tls = *std::move(tls)});
  testing::TlsClient client(served.port());
  client.Send(Completion("[[delay_ms=300]]a"));
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(client.ReadUntil(": ping\n\n"));
  EXPECT_TRUE(client.ReadUntil("data: [DONE]"));
}

}  // namespace
}  // namespace refrain::server::openai
