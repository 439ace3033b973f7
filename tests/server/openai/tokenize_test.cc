// /tokenize and /detokenize: nothing of a long text is worked off on the threads of the server.

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/annotated_mutex.h"
#include "server/access/gate.h"
#include "server/http/exchange.h"
#include "tests/server/http/raw_client.h"
#include "tests/server/openai/served_fake.h"
#include "tests/support/eventually.h"

namespace refrain::server::openai {
namespace {

using nlohmann::json;
using ::refrain::testing::Eventually;
using ::refrain::testing::PostRequest;
using ::refrain::testing::RawClient;
using ::refrain::testing::RawResponse;
using ::refrain::testing::ServedFake;

constexpr auto kEos = static_cast<int>(::refrain::testing::ByteTokenizer::kEos);  // "<eos>"

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

TEST(Tokenize, GivesTheTokensTextsOnRequest) {
  const ServedFake served;
  json request = {{"prompt", "a\xc3\xa9"}};
  EXPECT_TRUE(json::parse(Post(served.port(), "/tokenize", request).body)["token_strs"].is_null());
  request["return_token_strs"] = true;
  const json answer = json::parse(Post(served.port(), "/tokenize", request).body);
  EXPECT_EQ(answer["token_strs"], json({"a", "bytes:\\xc3", "bytes:\\xa9"}));
  request["prompt"] = "";
  EXPECT_EQ(json::parse(Post(served.port(), "/tokenize", request).body)["token_strs"],
            json::array());
}

// Clients that name the model are told when it is another one; an empty name is none.
TEST(Tokenize, RefusesAnotherModel) {
  const ServedFake served;
  EXPECT_EQ(Post(served.port(), "/tokenize", {{"model", "other"}, {"prompt", "a"}}).status, 404);
  EXPECT_EQ(Post(served.port(), "/detokenize", {{"model", "other"}, {"tokens", {97}}}).status, 404);
  for (const char* model : {"fake-model", ""}) {
    EXPECT_EQ(Post(served.port(), "/tokenize", {{"model", model}, {"prompt", "a"}}).status, 200);
    EXPECT_EQ(Post(served.port(), "/detokenize", {{"model", model}, {"tokens", {97}}}).status, 200);
  }
}

constexpr char kTemplate[] =
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    "{% if x %}{{ x }}{% endif %}"
    "{% if documents %}{% for d in documents %}({{ d.text }}){% endfor %}{% endif %}"
    "{% if add_generation_prompt %}>{% endif %}";

std::string TextOf(uint16_t port, const json& request) {
  const RawResponse answer = Post(port, "/tokenize", request);
  EXPECT_EQ(answer.status, 200) << answer.body;
  const json back = {{"tokens", json::parse(answer.body)["tokens"]}};
  return json::parse(Post(port, "/detokenize", back).body)["prompt"];
}

// As vLLM: the ids of a conversation, without an answer.
TEST(Tokenize, TakesTheMessagesOfAChat) {
  const ServedFake served({.chat_template = kTemplate});
  json request = {{"messages", {{{"role", "user"}, {"content", "hi"}}}}};
  EXPECT_EQ(TextOf(served.port(), request), "[user]hi>");
  request["add_generation_prompt"] = false;
  EXPECT_EQ(TextOf(served.port(), request), "[user]hi");
  request["chat_template_kwargs"] = {{"x", "!"}};
  EXPECT_EQ(TextOf(served.port(), request), "[user]hi!");
  request["documents"] = {{{"text", "one"}}, {{"text", "two"}}};
  EXPECT_EQ(TextOf(served.port(), request), "[user]hi!(one)(two)");
  request["chat_template_kwargs"]["documents"] = json::array();
  EXPECT_EQ(TextOf(served.port(), request), "[user]hi!");
}

// What the same fields make of a chat.
TEST(Tokenize, ShowsReasoningAndItsEffortAsAChatDoes) {
  const ServedFake served(
      {.chat_template = "{% for m in messages %}({{ m.reasoning_content }}){{ m.content }}"
                        "{% endfor %}{% if enable_thinking is defined and not enable_thinking %}"
                        "[{{ reasoning_effort }}]{% endif %}"});
  json request = {{"messages", {{{"role", "assistant"}, {"content", "b"}, {"reasoning", "a"}}}}};
  EXPECT_EQ(TextOf(served.port(), request), "(a)b");
  request["reasoning_effort"] = "high";
  EXPECT_EQ(TextOf(served.port(), request), "(a)b");
  request["reasoning_effort"] = "none";
  EXPECT_EQ(TextOf(served.port(), request), "(a)b[none]");
}

TEST(Tokenize, EndsWithTheMessageThatIsToBeContinued) {
  const ServedFake served(
      {.chat_template = "{% for m in messages %}[{{ m.role }}]{{ m.content }}<end>{% endfor %}"});
  json request = {
      {"messages",
       {{{"role", "user"}, {"content", "hi"}}, {{"role", "assistant"}, {"content", "well "}}}},
      {"continue_final_message", true}};
  EXPECT_EQ(TextOf(served.port(), request), "[user]hi<end>[assistant]well ");
  request["messages"][1]["content"] = "";
  EXPECT_EQ(TextOf(served.port(), request), "[user]hi<end>[assistant]");
}

// A message is text whatever it spells; what the template puts around it is not.
TEST(Tokenize, CountsControlTokensThatMessagesSpellAsText) {
  const ServedFake served(
      {.chat_template = "{% for m in messages %}{{ m.content }}<eos>{% endfor %}"});
  const RawResponse answer = Post(served.port(), "/tokenize",
                                  {{"messages", {{{"role", "user"}, {"content", "a<eos>b"}}}}});
  EXPECT_EQ(json::parse(answer.body)["tokens"], json({'a', '<', 'e', 'o', 's', '>', 'b', kEos}));
  EXPECT_EQ(json::parse(Post(served.port(), "/tokenize", {{"prompt", "a<eos>"}}).body)["tokens"],
            json({'a', kEos}));
}

// As DeepSeek R1's: calls only where there is no content, their arguments added to a string.
constexpr char kConcatenatingTemplate[] =
    "{% for message in messages %}"
    "{% if message['role'] == 'user' %}{{ '<U>' + message['content'] }}{% endif %}"
    "{% if message['role'] == 'assistant' and message['content'] is none %}"
    "{% for tool in message['tool_calls'] %}{{ '<C>' + tool['type'] + '<S>' + "
    "tool['function']['name'] + '\n```json\n' + tool['function']['arguments'] + '\n```' }}"
    "{% endfor %}{% endif %}"
    "{% if message['role'] == 'assistant' and message['content'] is not none %}"
    "{{ '<A>' + message['content'] }}{% endif %}"
    "{% if message['role'] == 'tool' %}{{ '<R>' + message['content'] }}{% endif %}{% endfor %}";

// Expected value: jinja2, of the messages with content null and the arguments as text.
TEST(Tokenize, KeepsTheToolCallsOfTemplatesThatTakeThemOtherwise) {
  const ServedFake served({.chat_template = kConcatenatingTemplate});
  for (const json& arguments : {json(R"({"a":1})"), json{{"a", 1}}}) {
    json call = {{"role", "assistant"},
                 {"content", nullptr},
                 {"tool_calls",
                  {{{"id", "1"},
                    {"type", "function"},
                    {"function", {{"name", "f"}, {"arguments", arguments}}}}}}};
    for (const bool null : {true, false}) {
      if (!null) call["content"] = "";
      const json request = {{"messages",
                             {{{"role", "user"}, {"content", "q"}},
                              call,
                              {{"role", "tool"}, {"content", "r"}},
                              {{"role", "assistant"}, {"content", "x"}}}}};
      EXPECT_EQ(TextOf(served.port(), request),
                "<U>q<C>function<S>f\n```json\n{\"a\":1}\n```<R>r<A>x");
    }
  }
}

// 2^64 - 1 is common as a bound in the schemas of tools.
TEST(Tokenize, ShowsLargeIntegersWithTheirDigits) {
  const ServedFake served({.chat_template = kTemplate});
  const json request = {{"messages", {{{"role", "user"}, {"content", "hi"}}}},
                        {"chat_template_kwargs", {{"x", 18446744073709551615u}}}};
  EXPECT_EQ(TextOf(served.port(), request), "[user]hi18446744073709551615>");
}

TEST(Tokenize, RefusesMessagesThatItCannotCount) {
  const ServedFake served({.chat_template = kTemplate});
  const json messages = {{{"role", "user"}, {"content", "hi"}}};
  const std::pair<json, const char*> kWrong[] = {
      {{{"messages", json::array()}}, "messages"},
      {{{"messages", messages}, {"prompt", "a"}}, "messages"},
      {{{"messages", messages}, {"tools", {{{"function", {{"name", "f"}}}}}}}, "tools"},
      {{{"messages", messages}, {"continue_final_message", true}, {"add_generation_prompt", true}},
       "continue_final_message"},
      {{{"messages", messages}, {"documents", {"text"}}}, "documents"},
      {{{"messages", messages}, {"documents", "text"}}, "documents"},
      {{{"prompt", "a"}, {"tools", 5}}, "tools"},
      {json::object(), "prompt"}};
  for (const auto& [request, param] : kWrong) {
    const RawResponse answer = Post(served.port(), "/tokenize", request);
    EXPECT_EQ(answer.status, 400) << request;
    EXPECT_EQ(json::parse(answer.body)["error"]["param"], param) << request;
  }
  const ServedFake bare;
  EXPECT_EQ(Post(bare.port(), "/tokenize", {{"messages", messages}}).status, 400);
}

TEST(Tokenize, TurnsBoundedlyManyIdsIntoText) {
  const ServedFake served;
  const std::vector<int> ids((1 << 20) + 1, 'a');
  const RawResponse response = Post(served.port(), "/detokenize", {{"tokens", ids}});
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(json::parse(response.body)["error"]["param"], "tokens");
}

// Answers of some megabytes each, to clients that do not read them.
TEST(Tokenize, AnswersOnTheirWayAreBounded) {
  const json ids = {{"tokens", std::vector<int>(1 << 20, kEos)}};
  const json text = {{"prompt", std::string(2 << 20, 'a')}};
  for (const std::string path : {"/detokenize", "/tokenize"}) {
    const ServedFake served({}, {}, {.version = "9.9.9", .held_bytes = 40 << 20});
    const std::string request = PostRequest(path, (path == "/tokenize" ? text : ids).dump());
    std::vector<RawClient> clients;
    int held = 0;
    for (int i = 0; i < 10; ++i) {
      RawClient& client = clients.emplace_back(served.port());
      client.Send(request);
      ASSERT_TRUE(client.ReadPast(0));
      if (client.pending().starts_with("HTTP/1.1 200")) ++held;
    }
    EXPECT_GE(held, 1) << path;
    EXPECT_LE(held, 8) << path;  // of 5 MB and more each
    clients.clear();
    EXPECT_TRUE(Eventually([&] {
      RawClient client(served.port());
      client.Send(request);
      return client.ReadResponse().status == 200;
    })) << path;
  }
}

TEST(Tokenize, EndsWithItsTimeout) {
  const ServedFake served;
  for (const auto& [header, status] :
       {std::pair("0.001", 408), std::pair("5", 200), std::pair("soon", 400)}) {
    RawClient client(served.port());
    client.Send(PostRequest("/tokenize", R"({"prompt":"abc"})",
                            "X-Request-Timeout: " + std::string(header) + "\r\n"));
    const auto response = client.ReadResponse();
    EXPECT_EQ(response.status, status) << header;
    // Clients that try again by themselves would, with the whole time once more.
    EXPECT_EQ(response.headers.contains("x-should-retry"), status == 408) << header;
  }
}

// What one exchange says for the request log, once it is over.
class LastDetails {
 public:
  http::ExchangeObserver observer() {
    return [this](const http::Exchange& exchange) {
      MutexLock lock(mutex_);
      details_ = exchange.details;
    };
  }
  // Waits for it.
  std::string Take() {
    std::optional<std::string> details;
    EXPECT_TRUE(Eventually([&] {
      MutexLock lock(mutex_);
      details = std::exchange(details_, std::nullopt);
      return details.has_value();
    }));
    return details.value_or("");
  }

 private:
  Mutex mutex_;
  std::optional<std::string> details_ REFRAIN_GUARDED_BY(mutex_);
};

TEST(Tokenize, TheRequestLogSaysWhyThereIsNoAnswer) {
  LastDetails details;
  // Room for no answer of 5,000 ids, nor for 15,000 bytes that take six each in JSON.
  const ServedFake served({}, {.on_exchange = details.observer()},
                          {.version = "9.9.9", .held_bytes = 32 << 10});
  RawClient hurried(served.port());
  hurried.Send(PostRequest("/tokenize", R"({"prompt":"abc"})", "X-Request-Timeout: 0.001\r\n"));
  EXPECT_EQ(hurried.ReadResponse().status, 408);
  EXPECT_EQ(details.Take(), R"("error":"timeout")");
  const json text = {{"prompt", std::string(5000, 'a')}};
  EXPECT_EQ(Post(served.port(), "/tokenize", text).status, 400);
  EXPECT_EQ(details.Take(), R"("error":"invalid_request_error")");
  const json ids = {{"tokens", std::vector<int>(15'000, 1)}};
  EXPECT_EQ(Post(served.port(), "/detokenize", ids).status, 400);
  EXPECT_EQ(details.Take(), R"("error":"invalid_request_error")");
  EXPECT_EQ(Post(served.port(), "/tokenize", {{"prompt", "abc"}}).status, 200);
  EXPECT_EQ(details.Take(), "");
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
