// /tokenize and /detokenize: nothing of a long text is worked off on the threads of the server.

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "server/access/gate.h"
#include "tests/server/http/raw_client.h"
#include "tests/server/openai/served_fake.h"

namespace refrain::server::openai {
namespace {

using nlohmann::json;
using ::refrain::testing::PostRequest;
using ::refrain::testing::RawClient;
using ::refrain::testing::RawResponse;
using ::refrain::testing::ServedFake;

RawResponse Post(uint16_t port, std::string_view path, const json& body) {
  RawClient client(port);
  client.Send(PostRequest(path, body.dump()));
  return client.ReadResponse();
}

// A key that may have nothing more at once.
class FullGate final : public access::Gate {
 public:
  absl::StatusOr<access::Principal> Authenticate(access::Area, std::string_view) const override {
    return access::Principal{.key_name = "team-a"};
  }
  absl::StatusOr<access::Ticket> Admit(const access::Principal&) override {
    return absl::ResourceExhaustedError("too many requests at once");
  }
};

TEST(Tokenize, ALongTextComesBackWhole) {
  const ServedFake served;
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += static_cast<char>('a' + i % 26);
  const RawResponse response = Post(served.port(), "/tokenize", {{"prompt", text}});
  EXPECT_EQ(response.status, 200);
  const json answer = json::parse(response.body);
  EXPECT_EQ(answer["count"], text.size());
  ASSERT_EQ(answer["tokens"].size(), text.size());
  EXPECT_EQ(answer["tokens"][27], 'b');
  const json back = {{"tokens", answer["tokens"]}};
  EXPECT_EQ(json::parse(Post(served.port(), "/detokenize", back).body)["prompt"], text);
}

TEST(Tokenize, CountsAmongTheRequestsOfItsKey) {
  FullGate gate;
  const ServedFake served({}, {}, {.version = "9.9.9", .gate = &gate});
  EXPECT_EQ(Post(served.port(), "/tokenize", {{"prompt", "abc"}}).status, 429);
  EXPECT_EQ(Post(served.port(), "/detokenize", {{"tokens", {97}}}).status, 429);
}

TEST(Tokenize, AnEngineThatHasStoppedIsNoAnswer) {
  ServedFake served;
  served.engine().Die(absl::InternalError("broken"));
  EXPECT_EQ(Post(served.port(), "/tokenize", {{"prompt", "abc"}}).status, 503);
}

}  // namespace
}  // namespace refrain::server::openai
