// What answers show beside text: tokens, tool calls, why the cache missed; what the log has of
// them.

#include <iterator>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/server/openai/served_fake.h"
#include "tests/server/openai/service_fixture.h"
#include "tests/support/counting_gate.h"
#include "tests/support/eventually.h"

namespace refrain::server::openai {
namespace {

TEST_F(ServiceTest, GivesPromptLogprobsWithoutEcho) {
  Start();
  const json request = {{"prompt", "ab"}, {"max_tokens", 1}, {"prompt_logprobs", 1}, {"n", 2}};
  const json body = json::parse(Post(kCompletions, request).body);
  for (const json& choice : body["choices"]) {
    EXPECT_EQ(choice["text"], "a");
    EXPECT_TRUE(choice["logprobs"].is_null());
    EXPECT_EQ(choice["prompt_logprobs"], json::parse(R"([null,
        {"98":{"logprob":-0.5,"rank":1,"decoded_token":"b"}}])"));
  }
  const json chat = json::parse(
      Post(kChat, {{"messages", {{{"role", "user"}, {"content", "ab"}}}}, {"prompt_logprobs", 2}})
          .body);
  EXPECT_FALSE(chat["choices"][0].contains("prompt_logprobs"));
  EXPECT_EQ(chat["prompt_logprobs"][1]["99"], json::parse(R"({"logprob":-1.5,"rank":2,
        "decoded_token":"c"})"));
}

// The echoed tokens have as many alternatives as `logprobs` says, whatever `prompt_logprobs` does.
TEST_F(ServiceTest, KeepsTheTwoKindsOfPromptLogprobsApart) {
  Start();
  const json body = json::parse(Post(kCompletions, {{"prompt", "ab"},
                                                    {"echo", true},
                                                    {"max_tokens", 0},
                                                    {"logprobs", 2},
                                                    {"prompt_logprobs", 3}})
                                    .body);
  const json& choice = body["choices"][0];
  EXPECT_EQ(choice["logprobs"]["top_logprobs"][1].size(), 2u);
  EXPECT_EQ(choice["prompt_logprobs"][1].size(), 3u);
}

TEST_F(ServiceTest, ReturnsTokenIdsOfPromptAndOutput) {
  Start();
  const json request = {{"prompt", {"ab", "c"}}, {"return_token_ids", true}};
  const json body = json::parse(Post(kCompletions, request).body);
  EXPECT_EQ(body["choices"][0]["text"], "ab");
  EXPECT_EQ(body["choices"][0]["prompt_token_ids"], json({97, 98}));
  EXPECT_EQ(body["choices"][0]["token_ids"], json({97, 98, 256}));  // with the end token
  EXPECT_EQ(body["choices"][1]["prompt_token_ids"], json({99}));
  json ids = {json::array(), json::array()};
  for (const json& event : Events(StreamText(kCompletions, request))) {
    const json& choice = event["choices"][0];
    json& seen = ids[choice["index"].get<size_t>()];
    EXPECT_EQ(choice.contains("prompt_token_ids"), seen.empty());
    for (const json& id : choice["token_ids"]) seen.push_back(id);
  }
  EXPECT_EQ(ids, json::parse("[[97,98,256],[99,256]]"));
  const json messages = {{{"role", "user"}, {"content", "a"}}};
  const json chat =
      json::parse(Post(kChat, {{"messages", messages}, {"return_token_ids", true}}).body);
  EXPECT_EQ(chat["prompt_token_ids"], json({97}));
  EXPECT_EQ(chat["choices"][0]["token_ids"], json({97, 256}));
}

// Their log-probabilities come step by step, the ids at once.
TEST_F(ServiceTest, StreamsAllPromptIdsWithTheFirstEvent) {
  Start();
  const json request = {{"prompt", "abcdefgh"}, {"echo", true}, {"logprobs", 1},
                        {"max_tokens", 2},      {"n", 2},       {"return_token_ids", true}};
  std::vector<int> events(2);
  std::vector<std::string> text(2);
  for (const json& event : Events(StreamText(kCompletions, request))) {
    const json& choice = event["choices"][0];
    const auto index = choice["index"].get<size_t>();
    text[index] += choice["text"].get<std::string>();
    if (events[index]++ > 0) {
      EXPECT_FALSE(choice.contains("prompt_token_ids"));
    } else {
      EXPECT_EQ(choice["prompt_token_ids"], json({97, 98, 99, 100, 101, 102, 103, 104}));
    }
  }
  EXPECT_GE(events[0], 2);
  EXPECT_EQ(text, (std::vector<std::string>{"abcdefghab", "abcdefghab"}));
}

// All that was generated, however little of it a stop string shows.
TEST_F(ServiceTest, TokenIdsHoldWhatAStopStringHides) {
  Start();
  const json request = {{"prompt", "one two"}, {"stop", " t"}, {"return_token_ids", true}};
  const json body = json::parse(Post(kCompletions, request).body);
  EXPECT_EQ(body["choices"][0]["text"], "one");
  EXPECT_EQ(body["choices"][0]["token_ids"], json({'o', 'n', 'e', ' ', 't'}));
  json streamed = json::array();
  for (const json& event : Events(StreamText(kCompletions, request))) {
    for (const json& id : event["choices"][0]["token_ids"]) streamed.push_back(id);
  }
  EXPECT_EQ(streamed, json({'o', 'n', 'e', ' ', 't'}));
}

// An echoed prompt is no output.
TEST_F(ServiceTest, TokenIdsDoNotRepeatAnEchoedPrompt) {
  Start();
  const json body = json::parse(
      Post(kCompletions,
           {{"prompt", "ab"}, {"max_tokens", 1}, {"return_token_ids", true}, {"echo", true}})
          .body);
  EXPECT_EQ(body["choices"][0]["text"], "aba");
  EXPECT_EQ(body["choices"][0]["token_ids"], json({97}));
}

TEST_F(ServiceTest, AChatEchoesTheMessageThatItContinues) {
  Start();
  const json user = {{"role", "user"}, {"content", "ab"}};
  const json parts = {{{"type", "text"}, {"text", "So "}}};
  json request = {{"messages", {user, {{"role", "assistant"}, {"content", parts}}}},
                  {"n", 2},
                  {"return_token_ids", true},
                  {"continue_final_message", true},
                  {"echo", true}};
  const json body = json::parse(Post(kChat, request).body);
  // The fake says the last message again.
  EXPECT_EQ(body["choices"][0]["message"]["content"], "So So ");
  EXPECT_EQ(body["choices"][1]["message"]["content"], "So So  #1");
  std::string streamed[2];
  for (const json& event : Events(StreamText(kChat, request))) {
    const json& choice = event["choices"][0];
    std::string& text = streamed[choice["index"].get<size_t>()];
    EXPECT_EQ(choice["delta"].contains("role"), text.empty());
    EXPECT_EQ(event.contains("prompt_token_ids"), text.empty());
    text += choice["delta"].value("content", "");
  }
  EXPECT_EQ(streamed[0], "So So ");
  EXPECT_EQ(streamed[1], "So So  #1");
  // Another's message is not the answer's beginning.
  request["messages"] = {user};
  request["continue_final_message"] = false;
  EXPECT_EQ(json::parse(Post(kChat, request).body)["choices"][0]["message"]["content"], "ab");
}

TEST_F(ServiceTest, NamesTokensByTheirIdsOnRequest) {
  Start();
  const json body = json::parse(Post(kCompletions, {{"prompt", "ab"},
                                                    {"max_tokens", 1},
                                                    {"logprobs", 1},
                                                    {"return_tokens_as_token_ids", true}})
                                    .body);
  EXPECT_EQ(body["choices"][0]["logprobs"]["tokens"], json({"token_id:97"}));
  EXPECT_EQ(body["choices"][0]["logprobs"]["top_logprobs"][0], json({{"token_id:97", -0.5}}));
}

TEST_F(ServiceTest, KeepsOnlyTheEndOfATruncatedPrompt) {
  Start();
  const json body = json::parse(
      Post(kCompletions,
           {{"prompt", "abcdef"}, {"max_tokens", 1}, {"echo", true}, {"truncate_prompt_tokens", 2}})
          .body);
  EXPECT_EQ(body["choices"][0]["text"], "efa");
  EXPECT_EQ(body["usage"]["prompt_tokens"], 2);
}

TEST_F(ServiceTest, EchoesThePromptInEveryChoice) {
  Start();
  const json body = json::parse(
      Post(kCompletions, {{"prompt", "ab"}, {"n", 2}, {"max_tokens", 1}, {"echo", true}}).body);
  EXPECT_EQ(body["choices"][0]["text"], "aba");
  EXPECT_EQ(body["choices"][1]["text"], "aba");
}

// As it was sent, in one piece or in several.
TEST_F(ServiceTest, EchoShowsControlTokensOfThePrompt) {
  Start();
  for (const bool skip_special : {true, false}) {
    for (const bool logprobs : {true, false}) {
      json request = {{"prompt", {'a', 256, 'b', 257}},
                      {"max_tokens", 1},
                      {"echo", true},
                      {"skip_special_tokens", skip_special}};
      if (logprobs) request["logprobs"] = 0;
      const json choice = json::parse(Post(kCompletions, request).body)["choices"][0];
      EXPECT_EQ(choice["text"], "a<eos>b<bos>a");
      if (logprobs) {
        EXPECT_EQ(choice["logprobs"]["text_offset"], json({0, 1, 6, 7, 12}));
      }
      std::string streamed;
      for (const json& event : Events(StreamText(kCompletions, request))) {
        streamed += event["choices"][0]["text"].get<std::string>();
      }
      EXPECT_EQ(streamed, "a<eos>b<bos>a");
    }
  }
}

// What vLLM's clients read to tell a stop string or token from the model's own end.
TEST_F(ServiceTest, TellsWhatStoppedAChoice) {
  Start();
  struct Case {
    json fields;
    json reason;
  };
  const Case cases[] = {{json::object(), nullptr},
                        {{{"max_tokens", 3}}, nullptr},
                        {{{"stop", {"x", " t"}}}, " t"},
                        {{{"stop_token_ids", {'w'}}}, 'w'},
                        {{{"stop_token_ids", {256}}}, nullptr}};  // the model's own end
  for (const Case& one : cases) {
    json request = {{"prompt", "one two"}};
    request.update(one.fields);
    const json body = json::parse(Post(kCompletions, request).body);
    ASSERT_TRUE(body["choices"][0].contains("stop_reason")) << one.fields;
    EXPECT_EQ(body["choices"][0]["stop_reason"], one.reason) << one.fields;
    // Streamed, every event has the member, the last one the reason.
    const auto events = Events(StreamText(kCompletions, request));
    for (const json& event : events) {
      ASSERT_TRUE(event["choices"][0].contains("stop_reason"));
      EXPECT_EQ(event["choices"][0]["stop_reason"], &event == &events.back() ? one.reason : json());
    }
    json chat = {{"messages", {{{"role", "user"}, {"content", "one two"}}}}};
    chat.update(one.fields);
    const json message = json::parse(Post(kChat, chat).body);
    ASSERT_TRUE(message["choices"][0].contains("stop_reason")) << one.fields;
    EXPECT_EQ(message["choices"][0]["stop_reason"], one.reason) << one.fields;
    const auto chunks = Events(StreamText(kChat, chat));
    EXPECT_FALSE(chunks.front()["choices"][0].contains("stop_reason"));
    ASSERT_TRUE(chunks.back()["choices"][0].contains("stop_reason")) << one.fields;
    EXPECT_EQ(chunks.back()["choices"][0]["stop_reason"], one.reason) << one.fields;
  }
}

TEST_F(ServiceTest, IncludesTheStopTokenWhereItIsAskedFor) {
  Start();
  json request = {{"prompt", "one two"},
                  {"stop_token_ids", {'w'}},
                  {"return_token_ids", true},
                  {"include_stop_str_in_output", true}};
  const json named = json::parse(Post(kCompletions, request).body)["choices"][0];
  EXPECT_EQ(named["text"], "one tw");
  EXPECT_EQ(named["token_ids"].back(), 'w');
  std::string streamed;
  for (const json& event : Events(StreamText(kCompletions, request))) {
    streamed += event["choices"][0]["text"].get<std::string>();
  }
  EXPECT_EQ(streamed, "one tw");
  // The model's own end is a control token, which is not shown unless these are.
  request.erase("stop_token_ids");
  EXPECT_EQ(json::parse(Post(kCompletions, request).body)["choices"][0]["text"], "one two");
  request["skip_special_tokens"] = false;
  EXPECT_EQ(json::parse(Post(kCompletions, request).body)["choices"][0]["text"], "one two<eos>");
}

// As completions do, which list an end token also where the text does not show it.
TEST_F(ServiceTest, ChatsListTheEndTokenThatIsShown) {
  Start();
  struct Case {
    json fields;
    std::string text;
    size_t tokens;
  };
  const Case cases[] = {
      {{{"stop_token_ids", {'w'}}, {"include_stop_str_in_output", true}}, "one tw", 6},
      {{{"stop_token_ids", {'w'}}}, "one t", 5},
      {{{"stop_token_ids", {'o'}}, {"include_stop_str_in_output", true}}, "o", 1},
      {{{"include_stop_str_in_output", true}}, "one two", 7},
      {{{"include_stop_str_in_output", true}, {"skip_special_tokens", false}}, "one two<eos>", 8}};
  for (const Case& one : cases) {
    json request = {{"messages", {{{"role", "user"}, {"content", "one two"}}}},
                    {"logprobs", true},
                    {"top_logprobs", 1},
                    {"return_token_ids", true}};
    request.update(one.fields);
    const json choice = json::parse(Post(kChat, request).body)["choices"][0];
    EXPECT_EQ(choice["message"]["content"], one.text);
    json listed = choice["logprobs"]["content"];
    ASSERT_EQ(listed.size(), one.tokens) << one.fields;
    std::string streamed;
    json ids = json::array();
    for (const json& event : Events(StreamText(kChat, request))) {
      const json& part = event["choices"][0];
      for (const json& id : part["token_ids"]) ids.push_back(id);
      if (!part["logprobs"].is_object()) continue;
      for (const json& token : part["logprobs"]["content"]) {
        streamed += token["token"];
        ASSERT_FALSE(listed.empty());
        EXPECT_EQ(token, listed[0]);
        listed.erase(0);
      }
    }
    EXPECT_TRUE(listed.empty()) << one.fields;
    EXPECT_EQ(streamed, one.text);
    EXPECT_EQ(ids, choice["token_ids"]);
  }
}

// The fake says what the user says.
json ToolRequest(const std::string& output) {
  return {{"messages", {{{"role", "user"}, {"content", output}}}},
          {"tools", {{{"type", "function"}, {"function", {{"name", "f"}}}}}}};
}

constexpr char kTwoCalls[] =
    "Sure.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"x y\"}}\n</tool_call>\n"
    "<tool_call>\n{\"name\": \"g\"}\n</tool_call>";

// How a family of models makes the same two calls.
struct ToolForm {
  std::string family;
  std::string chat_template;
  std::string calls;
  json text;  // beside them; null: none
};

class ToolCallsTest : public ServiceTest, public ::testing::WithParamInterface<ToolForm> {};

INSTANTIATE_TEST_SUITE_P(
    Families, ToolCallsTest,
    ::testing::Values(
        ToolForm{"Hermes", "{% if tools %}{{ tools }}<tool_call>{% endif %}", kTwoCalls, "Sure."},
        ToolForm{"Llama3", "{% if tools %}{{ tools }}<|python_tag|>{% endif %}",
                 R"({"name": "f", "parameters": {"a": "x y"}}; {"name": "g", "parameters": {}})",
                 nullptr},
        ToolForm{"Llama3Tagged", "{% if tools %}{{ tools }}<|python_tag|>{% endif %}",
                 "<|python_tag|>"
                 R"({"name": "f", "parameters": {"a": "x y"}}; {"name": "g", "parameters": {}})",
                 nullptr}),
    [](const auto& info) { return info.param.family; });

TEST_P(ToolCallsTest, GivesToolCalls) {
  Start({.chat_template = GetParam().chat_template});
  const json body = json::parse(Post(kChat, ToolRequest(GetParam().calls)).body);
  const json& choice = body["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["content"], GetParam().text);
  const json& calls = choice["message"]["tool_calls"];
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0]["type"], "function");
  EXPECT_EQ(calls[0]["function"], json({{"name", "f"}, {"arguments", R"({"a": "x y"})"}}));
  EXPECT_EQ(calls[1]["function"], json({{"name", "g"}, {"arguments", "{}"}}));
  EXPECT_NE(calls[0]["id"], calls[1]["id"]);
}

// As OpenAI streams them: the name first, without arguments, then the arguments, token by token.
TEST_P(ToolCallsTest, StreamsToolCallsPieceByPiece) {
  Start({.chat_template = GetParam().chat_template});
  json text;
  std::vector<std::string> names, ids, arguments, pieces;
  json finish;
  for (const json& event : Events(StreamText(kChat, ToolRequest(GetParam().calls)))) {
    const json& delta = event["choices"][0]["delta"];
    if (const json more = delta.value("content", json()); !more.is_null()) {
      text = text.is_null() ? more : json(text.get<std::string>() + more.get<std::string>());
    }
    for (const json& call : delta.value("tool_calls", json::array())) {
      const json& function = call["function"];
      if (function.contains("name")) {
        EXPECT_EQ(call["index"], names.size());
        EXPECT_EQ(call["type"], "function");
        EXPECT_EQ(function["arguments"], "");
        names.push_back(function["name"]);
        ids.push_back(call["id"]);
        arguments.emplace_back();
        continue;
      }
      EXPECT_EQ(call["index"], names.size() - 1);
      EXPECT_FALSE(call.contains("id") || call.contains("type")) << call;
      arguments.back() += function["arguments"];
      if (names.size() == 1) pieces.push_back(function["arguments"]);
    }
    finish = event["choices"][0]["finish_reason"];
  }
  EXPECT_EQ(text, GetParam().text);
  ASSERT_EQ(names, (std::vector<std::string>{"f", "g"}));
  EXPECT_NE(ids[0], ids[1]);
  EXPECT_EQ(arguments, (std::vector<std::string>{R"({"a": "x y"})", "{}"}));
  EXPECT_EQ(pieces.size(), arguments[0].size());  // the fake's tokens are bytes
  EXPECT_EQ(finish, "tool_calls");
}

// What was told of a call stays told: a broken end is no text.
TEST_F(ServiceTest, EndsAStreamedCallWhereTheModelIsCutShort) {
  Start({.chat_template = "{% if tools %}{{ tools }}<tool_call>{% endif %}"});
  json request = ToolRequest("<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":12345}}");
  request["max_tokens"] = 42;
  std::string arguments;
  json finish;
  for (const json& event : Events(StreamText(kChat, request))) {
    const json& delta = event["choices"][0]["delta"];
    EXPECT_EQ(delta.value("content", json()), json());
    for (const json& call : delta.value("tool_calls", json::array())) {
      arguments += call["function"]["arguments"];
    }
    finish = event["choices"][0]["finish_reason"];
  }
  EXPECT_EQ(arguments, "{\"a\":12");
  EXPECT_EQ(finish, "length");
}

// A call is a reason to finish once its arguments are whole: a client would run it.
TEST_F(ServiceTest, ACallThatAStopStringCutsIsNoReasonToFinish) {
  Start({.chat_template = "{% if tools %}{{ tools }}<tool_call>{% endif %}"});
  const std::string first = "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>";
  const std::string second = "<tool_call>{\"name\":\"g\",\"arguments\":{\"a\":1},\"b\":2}";
  struct Cut {
    std::string stop;
    std::string streamed;
    std::string whole;
  };
  const Cut cuts[] = {
      {":1}", "stop", "tool_calls"},  // in the arguments: of a whole answer they are text
      {",\"b", "tool_calls", "tool_calls"}, {"tool_call>{\"name\":\"g", "tool_calls", "tool_calls"},
      {"arguments\":{}", "stop", "stop"},   {"nowhere", "tool_calls", "tool_calls"},
  };
  for (const Cut& cut : cuts) {
    json request = ToolRequest(first + second);
    request["stop"] = {cut.stop};
    const json whole = json::parse(Post(kChat, request).body)["choices"][0];
    EXPECT_EQ(whole["finish_reason"], cut.whole) << cut.stop;
    const json last = Events(StreamText(kChat, request)).back()["choices"][0];
    EXPECT_EQ(last["finish_reason"], cut.streamed) << cut.stop;
  }
  // Calls that are not shown are none.
  json request = ToolRequest(first + second);
  request["stop"] = {":1}"};
  request["parallel_tool_calls"] = false;
  const json last = Events(StreamText(kChat, request)).back()["choices"][0];
  EXPECT_EQ(last["finish_reason"], "tool_calls");
}

// Calls alone: the first event has the role, and no content.
TEST_F(ServiceTest, StreamsACallWithoutText) {
  Start({.chat_template = "{% if tools %}{{ tools }}<|python_tag|>{% endif %}"});
  const auto events =
      Events(StreamText(kChat, ToolRequest(R"({"name": "f", "parameters": {"a": 1}})")));
  ASSERT_EQ(events.size(), 10u);  // the name, {"a": 1} in eight pieces, the end
  const json& delta = events[0]["choices"][0]["delta"];
  EXPECT_EQ(delta["role"], "assistant");
  EXPECT_TRUE(delta["content"].is_null());
  EXPECT_EQ(delta["tool_calls"][0]["function"]["name"], "f");
  EXPECT_EQ(events.back()["choices"][0]["delta"], json::object());
  EXPECT_EQ(events.back()["choices"][0]["finish_reason"], "tool_calls");
}

TEST_F(ServiceTest, LeavesCallsInTheTextWhereNoToolsAreOffered) {
  Start({.chat_template = "{% if tools %}{{ tools }}<tool_call>{% endif %}"});
  json request = ToolRequest(kTwoCalls);
  request.erase("tools");
  const json body = json::parse(Post(kChat, request).body);
  EXPECT_EQ(body["choices"][0]["message"]["content"], kTwoCalls);
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
}

TEST_F(ServiceTest, ReportsCacheMissesOnRequest) {
  Start();
  const json request = {{"prompt", {"ab", "cd"}}, {"cache_report", true}};
  const json cold = json::parse(Post(kCompletions, request).body);
  EXPECT_EQ(cold["usage"]["prompt_tokens_details"],
            json::parse(R"({"cached_tokens":0,"cache_write_tokens":4,
      "cache_misses":[{"reason":"never_seen","at_token":0,"evicted_tokens":0},
                      {"reason":"never_seen","at_token":0,"evicted_tokens":0}]})"));
  const json warm = json::parse(Post(kCompletions, request).body);
  EXPECT_EQ(warm["usage"]["prompt_tokens_details"]["cache_misses"], json::parse("[null,null]"));
}

// Scenario: the second prompt waits while the first is answered. Then none waits.
TEST_F(ServiceTest, SaysNothingOfCacheMissesBeforeAllPromptsWereLookedFor) {
  Start();
  json request = {{"prompt", {"ab", "[[hold]]cd"}},
                  {"stream", true},
                  {"cache_report", true},
                  {"stream_options", {{"include_usage", true}, {"continuous_usage_stats", true}}}};
  RawClient client(server_->port());
  client.Send(PostRequest(kCompletions, request.dump()));
  ASSERT_TRUE(client.ReadUntil("\"finish_reason\":\"stop\"")) << client.pending();
  EXPECT_NE(client.pending().find("prompt_tokens_details"), std::string::npos) << client.pending();
  EXPECT_EQ(client.pending().find("cache_misses"), std::string::npos) << client.pending();
  request["prompt"] = {"ef", "gh"};
  const auto events = Events(StreamText(kCompletions, request));
  ASSERT_GE(events.size(), 3u);
  const json misses = events.back()["usage"]["prompt_tokens_details"]["cache_misses"];
  EXPECT_EQ(misses.size(), 2u) << events.back();
  EXPECT_EQ(misses[1]["reason"], "never_seen");
}

// Of all prompts of a request.
TEST(ServiceKeysTest, AKeysNameAndWeightGoToTheEngine) {
  testing::CountingGate gate;
  testing::ServedFake served({}, {}, {.version = "9.9.9", .gate = &gate});
  const std::pair<const char*, json> kRequests[] = {
      {kCompletions, {{"prompt", {"a", "b"}}}},
      {kChat, {{"messages", {{{"role", "user"}, {"content", "a"}}}}}}};
  int submitted = 0;
  for (const auto& [path, request] : kRequests) {
    RawClient client(served.port());
    client.Send(PostRequest(path, request.dump()));
    EXPECT_EQ(client.ReadResponse().status, 200);
    EXPECT_GT(served.engine().submitted(), submitted);
    submitted = served.engine().submitted();
    EXPECT_EQ(served.engine().last_request().tenant, "team-a");
    EXPECT_EQ(served.engine().last_request().tenant_weight, 2.5);
  }
}

// An echoed prompt is no answer; an end token is one, and what a stop string hides.
TEST(ServiceLogTest, HasAFirstTokenOnlyWhereOneWasGenerated) {
  std::mutex mutex;
  std::vector<std::string> details;
  http::ServerOptions options;
  options.on_exchange = [&](const http::Exchange& exchange) {
    const std::lock_guard lock(mutex);
    details.emplace_back(exchange.details);
  };
  testing::ServedFake served({}, std::move(options));
  const std::pair<json, bool> kCases[] = {{{{"max_tokens", 0}}, false},
                                          {{{"max_tokens", 1}}, true},
                                          {{{"stop_token_ids", {'a'}}}, true},
                                          {{{"stop", "ab"}}, true}};
  size_t answers = 0;
  for (const auto& [fields, generated] : kCases) {
    json request = {{"prompt", "abc"}, {"echo", true}};
    request.update(fields);
    RawClient client(served.port());
    client.Send(PostRequest(kCompletions, request.dump()));
    ASSERT_EQ(client.ReadResponse().status, 200);
    ++answers;
    ASSERT_TRUE(testing::Eventually([&] {
      const std::lock_guard lock(mutex);
      return details.size() == answers;
    }));
    const std::lock_guard lock(mutex);
    EXPECT_EQ(details.back().find("first_token_ms") != std::string::npos, generated)
        << fields << details.back();
  }
}

}  // namespace
}  // namespace refrain::server::openai
