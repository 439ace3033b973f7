// Clients that go away before their answer is there, and those whose key does.

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "tests/server/http/raw_client.h"
#include "tests/server/openai/served_fake.h"
#include "tests/support/counting_gate.h"
#include "tests/support/eventually.h"

namespace refrain::server::openai {
namespace {

using ::refrain::testing::CountingGate;
using ::refrain::testing::Eventually;
using ::refrain::testing::PostRequest;
using ::refrain::testing::RawClient;
using ::refrain::testing::ServedFake;
using namespace std::chrono_literals;

TEST(AbandonedCalls, AreChargedWhatWasComputedForThem) {
  const std::string prompt = "[[hold]]abcdef";  // no token comes
  for (const char* stream : {"true", "false"}) {
    CountingGate gate;
    ServedFake served({}, {}, {.version = "9.9.9", .gate = &gate});
    {
      RawClient client(served.port());
      client.Send(PostRequest("/v1/completions",
                              R"({"prompt":")" + prompt + R"(","stream":)" + stream + "}"));
      ASSERT_TRUE(served.engine().WaitForRunning(1));
      std::this_thread::sleep_for(50ms);  // the answer waits for a token by then
      served.engine().TellUsage();
    }
    EXPECT_TRUE(Eventually([&] { return gate.requests() == 1; }));
    EXPECT_EQ(gate.charged_tokens(), static_cast<int64_t>(prompt.size()));
  }
}

// Scenario: the key is removed between when the call is let in and when its prompts are submitted,
// so that they come behind the end of what waits of the key.
TEST(AbandonedCalls, EndWhereTheirKeyWentAsTheyWereSubmitted) {
  CountingGate gate;
  ServedFake served({}, {}, {.version = "9.9.9", .gate = &gate});
  gate.removed = true;
  RawClient client(served.port());
  client.Send(PostRequest("/v1/completions", R"({"prompt":["[[hold]]a","[[hold]]b"]})"));
  const auto answer = client.ReadResponse();
  EXPECT_EQ(answer.status, 401);
  EXPECT_NE(answer.body.find("invalid_api_key"), std::string::npos) << answer.body;
  EXPECT_TRUE(served.engine().WaitForCancelled(2));
  EXPECT_TRUE(Eventually([&] { return gate.requests() == 1; }));
}

}  // namespace
}  // namespace refrain::server::openai
