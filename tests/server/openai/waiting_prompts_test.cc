// Texts that wait to be encoded are a part of what all bodies may hold.

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/server/http/raw_client.h"
#include "tests/server/openai/served_fake.h"
#include "tests/support/eventually.h"

namespace refrain::server::openai {
namespace {

using nlohmann::json;
using ::refrain::testing::Eventually;
using ::refrain::testing::PostRequest;
using ::refrain::testing::RawClient;
using ::refrain::testing::ServedFake;

constexpr size_t kTextBytes = 200'000;
constexpr size_t kBodiesBytes = 300'000;

// What one client has waiting, and what another gets.
class WaitingPrompts : public ::testing::TestWithParam<const char*> {
 protected:
  std::string Post(const std::string& begin) const {
    const json body = {{"prompt", begin + std::string(kTextBytes, 'a')}};
    return PostRequest(GetParam(), body.dump());
  }
  // Ten times in a row: what is being read and parsed counts, too, for a moment.
  bool EventuallyAnswers(int status) const {
    return Eventually([&] {
      for (int i = 0; i < 10; ++i) {
        RawClient client(served_.port());
        client.Send(Post(""));
        if (client.ReadResponse().status != status) return false;
      }
      return true;
    });
  }

  int Taken() { return served_.engine().submitted() + served_.engine().tokenized(); }

  ServedFake served_{{.max_context_tokens = 1 << 20}, {.bodies_bytes = kBodiesBytes}};
};

TEST_P(WaitingPrompts, CountAmongTheBodiesUntilTheyAreEncodedOrGone) {
  ASSERT_TRUE(EventuallyAnswers(200));
  RawClient waiting(served_.port());
  const int taken = Taken();
  waiting.Send(Post("[[unencoded]]"));
  // Another body beside it would be too much while it is read.
  ASSERT_TRUE(Eventually([&] { return Taken() == taken + 1; }));
  EXPECT_TRUE(EventuallyAnswers(503));
  waiting.Close();
  EXPECT_TRUE(EventuallyAnswers(200));
}

// One that is encoded leaves its place, however long its answer takes.
TEST_P(WaitingPrompts, CountNoMoreWhenTheyAreEncoded) {
  RawClient held(served_.port());
  held.Send(Post("[[hold]]"));
  EXPECT_TRUE(EventuallyAnswers(200));
}

// Small values of a conversation take many times their bytes in the body until it is encoded.
// Values in the template's arguments, and as the JSON text that a tool call's arguments are.
class WaitingConversations : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(AsText, WaitingConversations, ::testing::Bool());

TEST_P(WaitingConversations, CountWithTheMemoryOfTheirValues) {
  ServedFake served({.max_context_tokens = 1 << 20}, {},
                    {.version = "9.9.9", .held_bytes = 4 << 20});
  std::string values = "{}";
  for (int i = 1; i < 10'000; ++i) values += ",{}";  // 30 KB
  const auto post = [&](const std::string& text) {
    const std::string calls = R"({"role":"assistant","tool_calls":[{"function":{"name":"f",)"
                              R"("arguments":"{\"x\":[)" +
                              values + R"(]}"}}]},)";
    return PostRequest("/v1/chat/completions",
                       R"({"max_tokens":1,"messages":[)" + (GetParam() ? calls : "") +
                           R"({"role":"user","content":")" + text + R"("}],)" +
                           R"("chat_template_kwargs":{"x":[)" + (GetParam() ? "" : values) + "]}}");
  };
  const auto status_of_another = [&] {
    RawClient client(served.port());
    client.Send(post("a"));
    return client.ReadResponse().status;
  };
  std::vector<RawClient> waiting;
  while (waiting.size() < 100 && status_of_another() == 200) {
    const int before = served.engine().submitted();
    waiting.emplace_back(served.port()).Send(post("[[unencoded]]"));
    ASSERT_TRUE(Eventually([&] { return served.engine().submitted() > before; }));
  }
  EXPECT_GE(waiting.size(), 1u);
  EXPECT_LE(waiting.size(), 4u);  // of more than 1 MB each
  EXPECT_EQ(status_of_another(), 503);
  waiting.clear();
  EXPECT_TRUE(Eventually([&] { return status_of_another() == 200; }));
}

// They stay with a request until it ends, bad words as tokens, too.
struct Words {
  const char* field;
  size_t count;
  size_t bytes;  // of each
};
class HeldWords : public ::testing::TestWithParam<Words> {};
INSTANTIATE_TEST_SUITE_P(Fields, HeldWords,
                         ::testing::Values(Words{"stop", 16, 1020}, Words{"bad_words", 12, 200}),
                         [](const auto& info) { return std::string(info.param.field); });

TEST_P(HeldWords, CountUntilTheRequestEnds) {
  ServedFake served({}, {}, {.version = "9.9.9", .held_bytes = 50'000});
  const auto post = [](const std::string& prompt, bool with_words) {
    json body = {{"prompt", prompt}, {"max_tokens", 1}};
    if (with_words) {
      body[GetParam().field] =
          std::vector<std::string>(GetParam().count, std::string(GetParam().bytes, 'z'));
    }
    return PostRequest("/v1/completions", body.dump());
  };
  const auto status_of = [&](bool with_words) {
    RawClient client(served.port());
    client.Send(post("a", with_words));
    return client.ReadResponse().status;
  };
  std::vector<RawClient> running;
  for (int i = 0; i < 2; ++i) running.emplace_back(served.port()).Send(post("[[hold]]", true));
  ASSERT_TRUE(served.engine().WaitForRunning(2));
  EXPECT_EQ(status_of(true), 503);
  EXPECT_EQ(status_of(false), 200);
  running.pop_back();
  EXPECT_TRUE(Eventually([&] { return status_of(true) == 200; }));
}

// A template may make much of a small body.
TEST(WaitingRenderedConversations, CountWithTheirText) {
  ServedFake served(
      {.max_context_tokens = 1 << 20,
       .chat_template = "{% for i in range(1000) %}{{ messages[0].content }}{% endfor %}"},
      {}, {.version = "9.9.9", .held_bytes = 4 << 20});
  const std::string post =
      PostRequest("/tokenize", R"({"messages":[{"role":"user","content":"[[unencoded]])" +
                                   std::string(1000, 'a') + R"("}]})");
  const auto is_taken = [&](RawClient& client) {
    const int before = served.engine().tokenized();
    client.Send(post);
    for (int i = 0; i < 300 && served.engine().tokenized() == before; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return served.engine().tokenized() > before;
  };
  std::vector<RawClient> waiting;
  for (int i = 0; i < 4; ++i)
    ASSERT_TRUE(is_taken(waiting.emplace_back(served.port())));  // 1 MB each
  RawClient another(served.port());
  another.Send(post);
  EXPECT_EQ(another.ReadResponse().status, 503);
  waiting.clear();
  bool taken = false;
  for (int i = 0; i < 10 && !taken; ++i) {
    RawClient client(served.port());
    taken = is_taken(client);
  }
  EXPECT_TRUE(taken);
}

INSTANTIATE_TEST_SUITE_P(Routes, WaitingPrompts, ::testing::Values("/v1/completions", "/tokenize"));

}  // namespace
}  // namespace refrain::server::openai
