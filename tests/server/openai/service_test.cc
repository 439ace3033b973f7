// The OpenAI API over real sockets, with an engine that repeats its prompt.

#include "tests/server/openai/service_fixture.h"

namespace refrain::server::openai {
namespace {

TEST_F(ServiceTest, CompletesText) {
  Start();
  const json body = json::parse(Post(kCompletions, {{"prompt", "Hi!"}}).body);
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(body["model"], "fake-model");
  EXPECT_TRUE(body["id"].get<std::string>().starts_with("cmpl-"));
  EXPECT_EQ(body["choices"], json::parse(R"([{"index":0,"text":"Hi!","logprobs":null,
                            "finish_reason":"stop","stop_reason":null}])"));
  EXPECT_EQ(body["usage"], json::parse(R"({"prompt_tokens":3,"completion_tokens":3,"total_tokens":6,
                            "prompt_tokens_details":{"cached_tokens":0,"cache_write_tokens":3}})"));
}

TEST_F(ServiceTest, AnswersAChat) {
  Start();
  const json messages = {{{"role", "system"}, {"content", "be brief"}},
                         {{"role", "user"}, {"content", "Hi \"you\""}}};
  const json body = json::parse(Post(kChat, {{"messages", messages}}).body);
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(body["choices"][0]["message"]["content"], "Hi \"you\"");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
}

TEST_F(ServiceTest, ReportsLengthAndCachedTokens) {
  Start();
  const json request = {{"prompt", "abcdefgh"}, {"max_tokens", 5}};
  Post(kCompletions, request);
  const json body = json::parse(Post(kCompletions, request).body);
  EXPECT_EQ(body["choices"][0]["text"], "abcde");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(body["usage"]["prompt_tokens_details"]["cached_tokens"], 7);
  EXPECT_EQ(body["usage"]["prompt_tokens_details"]["cache_write_tokens"], 1);
}

TEST_F(ServiceTest, StreamsAChatAsTheGoldenText) {
  Start();
  const json messages = {{{"role", "user"}, {"content", "h\xc3\xa9!"}}};
  EXPECT_EQ(
      StreamText(kChat, {{"messages", messages}}),
      R"(data: {"id":"ID","object":"chat.completion.chunk","created":0,"model":"fake-model","choices":[{"index":0,"delta":{"role":"assistant","content":"h"},"logprobs":null,"finish_reason":null}]}

data: {"id":"ID","object":"chat.completion.chunk","created":0,"model":"fake-model","choices":[{"index":0,"delta":{"content":"é"},"logprobs":null,"finish_reason":null}]}

data: {"id":"ID","object":"chat.completion.chunk","created":0,"model":"fake-model","choices":[{"index":0,"delta":{"content":"!"},"logprobs":null,"finish_reason":null}]}

data: {"id":"ID","object":"chat.completion.chunk","created":0,"model":"fake-model","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop","stop_reason":null}]}

data: [DONE]

)");
}

TEST_F(ServiceTest, StreamsCompletionsWithUsageAsTheGoldenText) {
  Start();
  EXPECT_EQ(
      StreamText(
          kCompletions,
          {{"prompt", "abc"}, {"max_tokens", 2}, {"stream_options", {{"include_usage", true}}}}),
      R"(data: {"id":"ID","object":"text_completion","created":0,"model":"fake-model","choices":[{"index":0,"text":"a","logprobs":null,"finish_reason":null,"stop_reason":null}],"usage":null}

data: {"id":"ID","object":"text_completion","created":0,"model":"fake-model","choices":[{"index":0,"text":"b","logprobs":null,"finish_reason":"length","stop_reason":null}],"usage":null}

data: {"id":"ID","object":"text_completion","created":0,"model":"fake-model","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,"prompt_tokens_details":{"cached_tokens":0,"cache_write_tokens":3}}}

data: [DONE]

)");
}

// Load generators measure the time between events: one per token, exactly as many as asked for.
// Else a proxy may keep a stream back until it has ended.
TEST_F(ServiceTest, StreamsAreNeitherStoredNorHeldBackByProxies) {
  Start();
  const json messages = {{{"role", "user"}, {"content", "hi"}}};
  for (const auto& [path, body] : {std::pair<const char*, json>{kCompletions, {{"prompt", "hi"}}},
                                   {kChat, {{"messages", messages}}},
                                   {"/v1/responses", {{"input", "hi"}}}}) {
    json streamed = body;
    streamed["stream"] = true;
    const RawResponse response = Post(path, streamed);
    EXPECT_EQ(response.headers.at("cache-control"), "no-cache") << path;
    EXPECT_EQ(response.headers.at("x-accel-buffering"), "no") << path;
  }
}

TEST_F(ServiceTest, SendsOneEventPerToken) {
  Start();
  const std::string text =
      StreamText(kCompletions, {{"prompt", "abc"}, {"max_tokens", 64}, {"ignore_eos", true}});
  const auto events = Events(text);
  ASSERT_EQ(events.size(), 64u);
  for (const json& event : events) {
    EXPECT_EQ(event["choices"][0]["text"].get<std::string>().size(), 1u);
    EXPECT_FALSE(event.contains("usage"));
  }
  EXPECT_EQ(events.back()["choices"][0]["finish_reason"], "length");
}

TEST_F(ServiceTest, CountsUsageInEveryEventWhenAsked) {
  Start();
  const auto events = Events(StreamText(
      kCompletions,
      {{"prompt", "abcd"},
       {"max_tokens", 3},
       {"stream_options", {{"include_usage", true}, {"continuous_usage_stats", true}}}}));
  ASSERT_EQ(events.size(), 4u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_GE(events[i]["usage"]["completion_tokens"], i + 1);
    EXPECT_EQ(events[i]["usage"]["prompt_tokens"], 4);
  }
  EXPECT_TRUE(events[3]["choices"].empty());
}

TEST_F(ServiceTest, NeverSendsHalfACharacterOrAnEmptyFirstEvent) {
  Start();
  const json messages = {{{"role", "user"}, {"content", "\xf0\x9f\x98\x80x"}}};
  const auto events = Events(StreamText(kChat, {{"messages", messages}}));
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0]["choices"][0]["delta"]["content"], "\xf0\x9f\x98\x80");
  // Cut inside the character: what is there of it becomes U+FFFD with the end.
  const auto cut = Events(StreamText(kChat, {{"messages", messages}, {"max_tokens", 2}}));
  ASSERT_EQ(cut.size(), 1u);
  EXPECT_EQ(cut[0]["choices"][0]["delta"]["content"], "\xef\xbf\xbd");
  EXPECT_EQ(cut[0]["choices"][0]["finish_reason"], "length");
}

TEST_F(ServiceTest, SaysSomethingEvenForAnEmptyAnswer) {
  Start();
  const json messages = {{{"role", "user"}, {"content", ""}}};
  const auto events = Events(StreamText(kChat, {{"messages", messages}}));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0]["choices"][0]["delta"], json::parse(R"({"role":"assistant","content":""})"));
  EXPECT_EQ(events[0]["choices"][0]["finish_reason"], "stop");
}

TEST_F(ServiceTest, IndexesTheChoicesOfSeveralPrompts) {
  Start();
  const json request = {{"prompt", {"ab", "cd"}}, {"n", 2}};
  const json body = json::parse(Post(kCompletions, request).body);
  ASSERT_EQ(body["choices"].size(), 4u);
  const char* const kTexts[] = {"ab", "ab #1", "cd", "cd #1"};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(body["choices"][i]["index"], i);
    EXPECT_EQ(body["choices"][i]["text"], kTexts[i]);
  }
  EXPECT_EQ(body["usage"]["prompt_tokens"], 4);
  EXPECT_EQ(body["usage"]["completion_tokens"], 14);

  std::vector<std::string> texts(4);
  for (const json& event : Events(StreamText(kCompletions, request))) {
    texts[event["choices"][0]["index"]] += event["choices"][0]["text"];
  }
  for (int i = 0; i < 4; ++i) EXPECT_EQ(texts[i], kTexts[i]);
}

TEST_F(ServiceTest, StopsAtStopStrings) {
  Start();
  json request = {{"prompt", "one two three"}, {"stop", {"three", " tw"}}};
  json body = json::parse(Post(kCompletions, request).body);
  EXPECT_EQ(body["choices"][0]["text"], "one");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  request["include_stop_str_in_output"] = true;
  body = json::parse(Post(kCompletions, request).body);
  EXPECT_EQ(body["choices"][0]["text"], "one tw");
}

TEST_F(ServiceTest, EchoesThePromptAlsoForScoring) {
  Start();
  const json body = json::parse(
      Post(kCompletions, {{"prompt", "ab"}, {"echo", true}, {"max_tokens", 0}, {"logprobs", 1}})
          .body);
  const json& choice = body["choices"][0];
  EXPECT_EQ(choice["text"], "ab");
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(choice["logprobs"], json::parse(R"({"tokens":["a","b"],"token_logprobs":[null,-0.5],
                            "top_logprobs":[null,{"b":-0.5}],"text_offset":[0,1]})"));
  EXPECT_EQ(body["usage"]["completion_tokens"], 0);
}

// As OpenAI: who asked for them gets lists, also where nothing is in them.
TEST_F(ServiceTest, GivesEmptyLogprobsOfAnEmptyAnswer) {
  Start();
  json body =
      json::parse(Post(kCompletions, {{"prompt", "ab"}, {"max_tokens", 0}, {"logprobs", 1}}).body);
  EXPECT_EQ(body["choices"][0]["logprobs"], json::parse(R"({"tokens":[],"token_logprobs":[],
                            "top_logprobs":[],"text_offset":[]})"));
  body = json::parse(Post(kChat, {{"messages", {{{"role", "user"}, {"content", "ab"}}}},
                                  {"max_tokens", 0},
                                  {"logprobs", true}})
                         .body);
  EXPECT_EQ(body["choices"][0]["logprobs"], json::parse(R"({"content":[],"refusal":null})"));
}

TEST_F(ServiceTest, GivesLogprobsOfCompletions) {
  Start();
  const json body = json::parse(
      Post(kCompletions, {{"prompt", "a\xc3\xa9z"}, {"max_tokens", 9}, {"logprobs", 2}}).body);
  const json& logprobs = body["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"], json({"a", "bytes:\\xc3", "bytes:\\xa9", "z", "<eos>"}));
  EXPECT_EQ(logprobs["token_logprobs"], json({-0.5, -0.5, -0.5, -0.5, -0.5}));
  EXPECT_EQ(logprobs["text_offset"], json({0, 1, 1, 2, 3}));
  EXPECT_EQ(logprobs["top_logprobs"][0], json({{"a", -0.5}, {"b", -1.5}}));
  EXPECT_EQ(logprobs["top_logprobs"].size(), 5u);
}

// Harnesses that score a continuation generate one token, and take the last entry for it, also
// where the model ends there.
TEST_F(ServiceTest, AScoredPromptHasAnEntryForTheEndTokenToo) {
  Start();
  const json request = {{"prompt", "abc"},         {"echo", true},  {"max_tokens", 1},
                        {"stop_token_ids", {'a'}}, {"logprobs", 1}, {"temperature", 0}};
  const json choice = json::parse(Post(kCompletions, request).body)["choices"][0];
  EXPECT_EQ(choice["text"], "abc");
  EXPECT_EQ(choice["logprobs"]["tokens"], json({"a", "b", "c", "a"}));
  EXPECT_EQ(choice["logprobs"]["token_logprobs"], json({nullptr, -0.5, -0.5, -0.5}));
  json streamed = json::array();
  for (const json& event : Events(StreamText(kCompletions, request))) {
    const json& logprobs = event["choices"][0]["logprobs"];
    if (logprobs.is_null()) continue;
    for (const json& token : logprobs["tokens"]) streamed.push_back(token);
  }
  EXPECT_EQ(streamed, json({"a", "b", "c", "a"}));
}

TEST_F(ServiceTest, GivesLogprobsOfChats) {
  Start();
  const json request = {{"messages", {{{"role", "user"}, {"content", "h\xc3\xa9"}}}},
                        {"logprobs", true},
                        {"top_logprobs", 1}};
  const json body = json::parse(Post(kChat, request).body);
  const json& content = body["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 3u);
  EXPECT_EQ(content[0], json::parse(R"({"token":"h","logprob":-0.5,"bytes":[104],
                          "top_logprobs":[{"token":"h","logprob":-0.5,"bytes":[104]}]})"));
  EXPECT_EQ(content[1]["bytes"], json({0xc3}));
  // Streamed, the tokens of one character come with it.
  const auto events = Events(StreamText(kChat, request));
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[1]["choices"][0]["logprobs"]["content"].size(), 2u);
}

TEST_F(ServiceTest, RefusesInOpenAiForm) {
  Start();
  const RawResponse response = Post(kCompletions, {{"prompt", "a"}, {"temperature", 7}});
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(json::parse(response.body), json::parse(R"({"error":{
    "message":"'temperature' must be at least 0 and at most 2, not 7",
    "type":"invalid_request_error","param":"temperature","code":null}})"));
  const RawResponse unknown = Post(kCompletions, {{"prompt", "a"}, {"model", "gpt-7"}});
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(json::parse(unknown.body)["error"]["code"], "model_not_found");
  const RawResponse path = Get("/v1/nothing");
  EXPECT_EQ(path.status, 404);
  EXPECT_EQ(json::parse(path.body)["error"]["code"], "unknown_url");
  const RawResponse method = Get(kCompletions);
  EXPECT_EQ(method.status, 405);
  EXPECT_EQ(engine_->submitted(), 0);
}

TEST_F(ServiceTest, TellsOverloadWithRetryAfter) {
  Start();
  const RawResponse response = Post(kCompletions, {{"prompt", "[[reject=8]]x"}});
  EXPECT_EQ(response.status, 429);
  EXPECT_EQ(response.headers.at("retry-after"), "1");
  const json error = json::parse(response.body)["error"];
  EXPECT_EQ(error["type"], "rate_limit_error");
  EXPECT_EQ(error["code"], "overloaded");  // and not the limit of a key
}

// As the engine has measured it, also where it turns out late: a form for which there is no room.
TEST_F(ServiceTest, TellsWhenToComeBackAsTheEngineSays) {
  Start();
  for (const std::string refused : {"[[reject=8]]x", "[[late=8]]x"}) {
    const RawResponse response = Post(kCompletions, {{"prompt", "[[come_back_s=23]]" + refused},
                                                     {"structured_outputs", {{"regex", "a"}}},
                                                     {"stream", true}});
    EXPECT_EQ(response.status, 429) << refused;
    EXPECT_EQ(response.headers.at("retry-after"), "23") << refused;
  }
}

// One of several prompts is refused: the others must not run on without a reader.
TEST_F(ServiceTest, CancelsThePromptsBeforeARefusedOne) {
  Start();
  const RawResponse response = Post(kCompletions, {{"prompt", {"[[hold]]a", "[[reject=8]]b"}}});
  EXPECT_EQ(response.status, 429);
  EXPECT_TRUE(engine_->WaitForCancelled(1));
}

TEST_F(ServiceTest, RefusesForGoodMorePromptsThanMayWait) {
  Start();
  const RawResponse response =
      Post(kCompletions, {{"prompt", std::vector<std::string>(1025, "a")}, {"max_tokens", 1}});
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(json::parse(response.body)["error"]["param"], "prompt");
}

// Before the first token a failure still has a status of its own, streamed or not.
TEST_F(ServiceTest, AnswersLateRefusalsWithTheirStatus) {
  Start();
  for (const bool stream : {false, true}) {
    const RawResponse response =
        Post(kCompletions, {{"prompt", std::string(5000, 'x')}, {"stream", stream}});
    EXPECT_EQ(response.status, 400);
    const json error = json::parse(response.body)["error"];
    EXPECT_EQ(error["message"],
              "This model's maximum context length is 4096 tokens. However, the prompt has 5000 "
              "tokens: the prompt is too long.");
    EXPECT_EQ(error["code"], "context_length_exceeded");
    EXPECT_EQ(error["param"], "prompt");
  }
  const json chat = {{"messages", {{{"role", "user"}, {"content", std::string(5000, 'x')}}}}};
  EXPECT_EQ(json::parse(Post(kChat, chat).body)["error"]["param"], "messages");
}

// What only the engine finds out about a prompt: that it has no tokens, say.
TEST_F(ServiceTest, NamesTheFieldOfALateRefusal) {
  Start();
  const RawResponse response = Post(kCompletions, {{"prompt", "[[late=3]]x"}});
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(json::parse(response.body)["error"]["param"], "prompt");
  const RawResponse second = Post(kCompletions, {{"prompt", {"[[hold]]x", "[[late=3]]x"}}});
  EXPECT_EQ(second.status, 400);
  const json error = json::parse(second.body)["error"];
  EXPECT_EQ(error["param"], "prompt");
  EXPECT_EQ(error["message"].get<std::string>().rfind("prompt[1]: ", 0), 0u) << error;
  const json chat = {{"messages", {{{"role", "user"}, {"content", "[[late=3]]x"}}}}};
  EXPECT_EQ(json::parse(Post(kChat, chat).body)["error"]["param"], "messages");
}

// A schema that the engine does not understand.
TEST_F(ServiceTest, NamesTheFormThatTheEngineRefuses) {
  Start();
  for (const char* directive : {"[[late=3]]x", "[[reject=3]]x"}) {
    const RawResponse response =
        Post(kCompletions, {{"prompt", {directive, "y"}}, {"guided_json", {{"type", "null"}}}});
    EXPECT_EQ(response.status, 400);
    const json error = json::parse(response.body)["error"];
    EXPECT_EQ(error["param"], "guided_json");
    EXPECT_EQ(error["message"], "guided_json: as the prompt asked");
  }
}

TEST_F(ServiceTest, HidesInternalMessages) {
  Start();
  const RawResponse response = Post(kCompletions, {{"prompt", "[[fail_after=0]]x"}});
  EXPECT_EQ(response.status, 500);
  EXPECT_EQ(response.body.find("secret"), std::string::npos) << response.body;
}

TEST_F(ServiceTest, EndsAFailedStreamWithAnErrorEventAndWithoutDone) {
  Start();
  RawClient client(server_->port());
  // So far apart that they are read one by one.
  client.Send(PostRequest(kCompletions,
                          R"({"prompt":"[[delay_ms=600]][[fail_after=2]]abc","stream":true})"));
  const RawResponse response = client.ReadResponse();
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body.find("[DONE]"), std::string::npos);
  const auto events = Events(response.body);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[1]["choices"][0]["text"], "b");
  EXPECT_EQ(events[2]["error"]["type"], "server_error");
  // The head said that the connection is kept: a client that pools it sends the next one there.
  client.Send(PostRequest(kCompletions, R"({"prompt":"ab"})"));
  EXPECT_EQ(client.ReadResponse().status, 200);
}

// "error" is no finish_reason that a client knows.
TEST_F(ServiceTest, AChoiceThatFailsHasNoReasonToFinish) {
  Start();
  for (const char* path : {kCompletions, kChat}) {
    json request = {{"stream", true}, {"n", 2}};
    const char* const prompt = "[[delay_ms=100]][[fail_after=2]]abc";
    if (path == kChat) {
      request["messages"] = {{{"role", "user"}, {"content", prompt}}};
    } else {
      request["prompt"] = prompt;
    }
    const auto events = Events(Post(path, request).body);
    ASSERT_GE(events.size(), 3u);
    EXPECT_TRUE(events.back().contains("error"));
    for (size_t i = 0; i + 1 < events.size(); ++i) {
      EXPECT_TRUE(events[i]["choices"][0]["finish_reason"].is_null()) << events[i];
    }
  }
}

TEST_F(ServiceTest, CancelsWhenTheClientGoesAwayBeforeAWholeAnswer) {
  Start();
  RawClient client(server_->port());
  client.Send(PostRequest(kCompletions, R"({"prompt":["[[hold]]a","[[hold]]b"]})"));
  ASSERT_TRUE(engine_->WaitForRunning(2));
  client.Close();
  EXPECT_TRUE(engine_->WaitForCancelled(2));
}

TEST_F(ServiceTest, CancelsWhenTheClientGoesAwayDuringAStream) {
  Start();
  RawClient client(server_->port());
  client.Send(PostRequest(
      kCompletions,
      R"({"prompt":"[[delay_ms=5]]ab","stream":true,"ignore_eos":true,"max_tokens":4000})"));
  ASSERT_TRUE(client.ReadUntil("\"text\":\"b\""));
  client.Reset();
  EXPECT_TRUE(engine_->WaitForCancelled(1));
}

TEST_F(ServiceTest, StreamsToManyClientsAtOnce) {
  Start({.token_delay = 1ms});
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int i = 0; i < 32; ++i) {
    threads.emplace_back([&, i] {
      RawClient client(server_->port());
      const std::string prompt = "client " + std::to_string(i);
      for (int round = 0; round < 3; ++round) {
        client.Send(PostRequest(kCompletions, json({{"prompt", prompt}, {"stream", true}}).dump()));
        std::string text;
        for (const json& event : Events(client.ReadResponse().body)) {
          text += event["choices"][0]["text"];
        }
        if (text == prompt) ++good;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(good, 96);
}

TEST_F(ServiceTest, SaysThatItLoadsUntilThereIsAnEngine) {
  StartWithoutEngine();
  for (const char* path : {"/health", "/ping", "/ready", "/v1/models"}) {
    const RawResponse response = Get(path);
    EXPECT_EQ(response.status, 503) << path;
    EXPECT_EQ(json::parse(response.body)["error"]["code"], "model_loading") << path;
  }
  EXPECT_EQ(Post(kCompletions, {{"prompt", "a"}}).status, 503);
  EXPECT_EQ(Get("/version").body, R"({"version":"9.9.9"})");
  EXPECT_EQ(Get("/live").status, 200);
  engine_ = std::make_unique<FakeEngine>();
  service_->SetEngine(engine_.get());
  EXPECT_EQ(Get("/health").status, 200);
  EXPECT_EQ(Get("/ready").status, 200);
  service_->SetDraining();
  EXPECT_EQ(Get("/health").status, 200);
  EXPECT_EQ(Get("/ready").status, 503);
}

// No key is asked for there: strangers must not fill the server with what nothing reads.
TEST_F(ServiceTest, PingReadsNoLargeBody) {
  Start();
  const auto ping = [&](const std::string& body) {
    RawClient client(server_->port());
    client.Send(PostRequest("/ping", body));
    return client.ReadResponse().status;
  };
  EXPECT_EQ(ping(""), 200);
  EXPECT_EQ(ping("{}"), 200);
  EXPECT_EQ(ping(std::string(1 << 20, 'x')), 413);
}

TEST_F(ServiceTest, HealthTellsThatTheEngineIsDead) {
  Start();
  engine_->Die(absl::InternalError("segment 7 in /internal/path"));
  const RawResponse response = Get("/health");
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(response.body.find("/internal"), std::string::npos);
}

// Who watches the process by HTTP would never know.
TEST_F(ServiceTest, HealthTellsThatGrpcDoesNotAnswer) {
  Start();
  for (const bool answers : {false, true}) {
    service_->SetGrpcAnswers(answers);
    for (const char* path : {"/health", "/ping", "/ready"}) {
      EXPECT_EQ(Get(path).status, answers ? 200 : 503) << path;
    }
    EXPECT_EQ(Get("/live").status, 200);
  }
}

TEST_F(ServiceTest, ListsTheModel) {
  Start({.served_name = "org/model-1"});
  const json list = json::parse(Get("/v1/models").body);
  EXPECT_EQ(list["object"], "list");
  EXPECT_EQ(list["data"][0]["id"], "org/model-1");
  EXPECT_EQ(list["data"][0]["max_model_len"], 4096);
  EXPECT_EQ(list["data"][0]["root"], "org/model-1");
  EXPECT_TRUE(list["data"][0].contains("parent"));
  EXPECT_EQ(list["data"][0]["permission"], json::array());
  EXPECT_EQ(json::parse(Get("/v1/models/org/model-1").body), list["data"][0]);
  const RawResponse unknown = Get("/v1/models/other");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(json::parse(unknown.body)["error"]["code"], "model_not_found");
}

TEST_F(ServiceTest, TokenizesAndBack) {
  Start();
  const json tokens = json::parse(Post("/tokenize", {{"prompt", "az"}}).body);
  EXPECT_EQ(tokens["tokens"], json({97, 122}));
  EXPECT_EQ(tokens["count"], 2);
  EXPECT_EQ(json::parse(Post("/detokenize", {{"tokens", {97, 122, 256}}}).body)["prompt"],
            "az<eos>");
  EXPECT_EQ(Post("/tokenize", json::array()).status, 400);
  EXPECT_EQ(Post("/detokenize", {{"tokens", {999}}}).status, 400);
}

// The document names every route, and nothing else.
TEST_F(ServiceTest, DescribesEveryRoute) {
  router_.Add({"GET", "/new", [](http::Request) { return http::MakeReply({}, "{}"); }});
  Start();
  const json document = json::parse(Get("/openapi.json").body);
  EXPECT_EQ(document["info"]["version"], "9.9.9");
  size_t listed = 0;
  for (const auto& [path, operations] : document["paths"].items()) listed += operations.size();
  EXPECT_EQ(listed, router_.routes().size());
  for (const http::Router::Route& route : router_.routes()) {
    const std::string path = std::regex_replace(route.path, std::regex("\\*$"), "{id}");
    const char* const method = route.method == "GET" ? "get" : "post";
    const json operations = document["paths"].value(path, json::object());
    ASSERT_TRUE(operations.contains(method)) << route.path;
    // One that the description does not know is there all the same, so that it is missed.
    EXPECT_EQ(operations[method].contains("summary"), path != "/new") << route.path;
    EXPECT_EQ(operations[method]["security"], json::array()) << route.path << ": no key is asked";
  }
}

// The parser itself says what it takes.
TEST_F(ServiceTest, DescribesFieldsAsTheParserReadsThem) {
  Start();
  const json schemas = json::parse(Get("/openapi.json").body)["components"]["schemas"];
  const json& fields = schemas["CompletionRequest"]["properties"];
  EXPECT_EQ(fields["temperature"],
            json::parse(R"({"type":["number","null"],"minimum":0,"maximum":2})"));
  EXPECT_EQ(fields["min_p"], json::parse(R"({"type":["number","null"],"minimum":0,"maximum":1})"));
  EXPECT_EQ(fields["max_tokens"]["maximum"], 4096);
  EXPECT_EQ(fields["model"]["enum"], json({"fake-model", "", nullptr}));
  EXPECT_EQ(schemas["ChatCompletionRequest"]["properties"]["top_logprobs"]["maximum"], 20);
  EXPECT_GT(fields.size(), 50u);
}

// A body of a megabyte is parsed beside the streams, not in between.
TEST_F(ServiceTest, TakesBodiesOfAMegabyte) {
  Start({.max_context_tokens = 4 << 20});
  const RawResponse response =
      Post(kCompletions, {{"prompt", std::string(1 << 20, 'x')}, {"max_tokens", 1}});
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(json::parse(response.body)["usage"]["prompt_tokens"], 1 << 20);
}

}  // namespace
}  // namespace refrain::server::openai
