// POST /v1/responses over real sockets, with an engine that repeats the last message.

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/token_stream.h"
#include "server/byte_budget.h"
#include "server/openai/generation_reply.h"
#include "tests/server/openai/service_fixture.h"
#include "tests/support/fake_tokenizer.h"

namespace refrain::server::openai {
namespace {

constexpr char kResponses[] = "/v1/responses";
constexpr char kTemplate[] =
    "{% if tools %}{{ tools }}<tool_call>{% endif %}{{ messages[-1].content }}";

// The events of a stream, by their types.
std::vector<std::pair<std::string, json>> StreamEvents(const std::string& body) {
  std::vector<std::pair<std::string, json>> events;
  for (size_t at = 0; at < body.size();) {
    const size_t line = body.find("\ndata: ", at);
    const size_t end = body.find("\n\n", at);
    if (!body.substr(at).starts_with("event: ") || line > end) {
      ADD_FAILURE() << body.substr(at, 200);
      break;
    }
    events.emplace_back(body.substr(at + 7, line - at - 7),
                        json::parse(body.substr(line + 7, end - line - 7)));
    at = end + 2;
  }
  return events;
}

class ResponsesServiceTest : public ServiceTest {};

TEST_F(ResponsesServiceTest, AnswersAsAWhole) {
  Start();
  const RawResponse response =
      Post(kResponses, {{"input", "hi"}, {"metadata", {{"a", "b"}}}, {"top_k", 1}});
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.headers.at("content-type"), "application/json");
  const json body = json::parse(response.body);
  EXPECT_EQ(body["object"], "response");
  EXPECT_EQ(body["id"], "resp_" + response.headers.at("x-request-id"));
  EXPECT_EQ(body["model"], "fake-model");
  EXPECT_EQ(body["metadata"], json::parse(R"({"a":"b"})"));
  EXPECT_EQ(body["output"][0]["content"][0]["text"], "hi");
  EXPECT_EQ(body["usage"]["input_tokens"], 2);
  EXPECT_EQ(body["usage"]["output_tokens"], 2);
  // A second time it is found.
  const json again = json::parse(Post(kResponses, {{"input", "hi"}}).body);
  EXPECT_EQ(again["usage"]["input_tokens_details"]["cached_tokens"], 1);
}

TEST_F(ResponsesServiceTest, StreamsOneDeltaForEachToken) {
  Start();
  const RawResponse response = Post(kResponses, {{"input", "hello"}, {"stream", true}});
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.headers.at("content-type"), "text/event-stream; charset=utf-8");
  EXPECT_EQ(response.body.find("[DONE]"), std::string::npos);
  const auto events = StreamEvents(response.body);
  ASSERT_EQ(events.size(), 4u + 5 + 4);
  EXPECT_EQ(events.front().first, "response.created");
  EXPECT_EQ(events[4].second["delta"], "h");
  EXPECT_EQ(events.back().first, "response.completed");
  EXPECT_EQ(events.back().second["response"]["output"][0]["content"][0]["text"], "hello");
  EXPECT_EQ(events.back().second["response"]["usage"]["output_tokens"], 5);
}

TEST_F(ResponsesServiceTest, CallsComeAsItems) {
  Start({.chat_template = kTemplate});
  const json request = {
      {"input", "So: <tool_call>{\"name\":\"f\",\"arguments\":{\"x\":1}}</tool_call>"},
      {"tools", {{{"type", "function"}, {"name", "f"}}}}};
  json output = json::parse(Post(kResponses, request).body)["output"];
  ASSERT_EQ(output.size(), 2u);
  EXPECT_EQ(output[0]["content"][0]["text"], "So:");
  EXPECT_EQ(output[1]["name"], "f");
  EXPECT_EQ(output[1]["arguments"], R"({"x":1})");
  json stream = request;
  stream["stream"] = true;
  const auto events = StreamEvents(Post(kResponses, stream).body);
  json streamed = events.back().second["response"]["output"];
  for (json* items : {&output, &streamed}) {
    for (json& item : *items) {
      EXPECT_TRUE(item.erase("id") == 1);
      item.erase("call_id");
    }
  }
  EXPECT_EQ(streamed, output);
  // Passed back with its result, as it came.
  json input = json::parse(Post(kResponses, request).body)["output"];
  input.push_back(
      {{"type", "function_call_output"}, {"call_id", input[1]["call_id"]}, {"output", "sunny"}});
  const RawResponse next = Post(kResponses, {{"input", input}, {"tools", request["tools"]}});
  EXPECT_EQ(json::parse(next.body)["output"][0]["content"][0]["text"], "sunny") << next.body;
}

// Whole or streamed.
TEST_F(ResponsesServiceTest, ACallThatIsCutIsAnIncompleteItem) {
  Start({.chat_template = kTemplate});
  json request = {{"input", "<tool_call>{\"name\":\"f\",\"arguments\":{\"x\":12345}}</tool_call>"},
                  {"tools", {{{"type", "function"}, {"name", "f"}}}},
                  {"max_output_tokens", 45}};
  for (const bool stream : {false, true}) {
    request["stream"] = stream;
    const RawResponse response = Post(kResponses, request);
    const json body =
        stream ? StreamEvents(response.body).back().second["response"] : json::parse(response.body);
    ASSERT_EQ(body["output"].size(), 1u) << response.body;
    EXPECT_EQ(body["output"][0]["type"], "function_call");
    EXPECT_EQ(body["output"][0]["status"], "incomplete");
    EXPECT_EQ(body["output"][0]["arguments"], R"({"x":12345)");
    EXPECT_EQ(body["status"], "incomplete");
  }
}

TEST_F(ResponsesServiceTest, WhatFailsBeforeTheFirstByteHasItsOwnStatus) {
  Start();
  for (const bool stream : {false, true}) {
    const auto status = [&](const char* input) {
      const RawResponse response = Post(kResponses, {{"input", input}, {"stream", stream}});
      const json error = json::parse(response.body)["error"];
      return std::pair(response.status, error["param"]);
    };
    EXPECT_EQ(status("[[late=3]]x"), std::pair(400, json("input")));
    EXPECT_EQ(status("[[late=4]]x"), std::pair(408, json()));
    EXPECT_EQ(status("[[reject=8]]x"), std::pair(429, json()));
    EXPECT_EQ(status("[[fail_after=0]]x"), std::pair(500, json()));
  }
}

TEST_F(ResponsesServiceTest, WhatFailsLaterIsTwoEventsAndTheEndOfTheConnection) {
  Start();
  RawClient client(server_->port());
  client.Send(
      PostRequest(kResponses, R"({"input":"[[delay_ms=100]][[fail_after=2]]abc","stream":true})"));
  const RawResponse response = client.ReadResponse();
  EXPECT_EQ(response.status, 200);
  const auto events = StreamEvents(response.body);
  ASSERT_GE(events.size(), 4u);
  EXPECT_EQ(events[events.size() - 2].first, "error");
  EXPECT_EQ(events[events.size() - 2].second["error"]["type"], "server_error");
  EXPECT_EQ(events.back().first, "response.failed");
  EXPECT_EQ(events[events.size() - 3].second["delta"], "b");
  // The head said that the connection is kept: a client that pools it sends the next one there.
  client.Send(PostRequest(kResponses, R"({"input":"ab"})"));
  EXPECT_EQ(client.ReadResponse().status, 200);
}

TEST_F(ResponsesServiceTest, CancelsWhenTheClientGoesAway) {
  Start();
  for (const char* const body :
       {R"({"input":"[[hold]]a"})", R"({"input":"[[hold]]a","stream":true})"}) {
    const int before = engine_->cancelled();
    RawClient client(server_->port());
    client.Send(PostRequest(kResponses, body));
    ASSERT_TRUE(engine_->WaitForRunning(1));
    client.Close();
    EXPECT_TRUE(engine_->WaitForCancelled(before + 1));
  }
}

TEST_F(ResponsesServiceTest, NothingIsStored) {
  Start();
  const json body = json::parse(Post(kResponses, {{"input", "hi"}, {"store", true}}).body);
  EXPECT_EQ(body["store"], false);
  EXPECT_EQ(Get("/v1/responses/" + body["id"].get<std::string>()).status, 404);
  EXPECT_EQ(Get(kResponses).status, 405);
}

// One answer whose tokens the test writes.
class KeptResponsesTest : public ::testing::Test {
 protected:
  GenerationReply* Reply(size_t echo_bytes = 0, bool stream = true, int top = 0) {
    GenerationCall call;
    call.endpoint = Endpoint::kResponses;
    call.stream = stream;
    call.echo = "\"instructions\":\"" + std::string(echo_bytes, 'x') + "\"";
    if (top > 0) call.output.logprobs = top;
    if (thinks_) call.output.reasoning = engine::ReasoningFormat::kThink;
    call.requests.emplace_back();
    GenerationReply::Parts parts;
    parts.request_id = "0123456789abcdef";
    stream_ = std::make_shared<engine::TokenStream>();
    if (thinks_) stream_->SetReasoningStart(engine::ReasoningStart::kInside);
    parts.streams = {engine::ConsumerHandle(stream_)};
    parts.tokenizer = &tokenizer_;
    parts.log = &log_;
    parts.held = std::make_unique<HeldBytes>(budget_, "");
    held_ = parts.held.get();
    reply_ = std::make_unique<GenerationReply>(call, std::move(parts));
    reply_->Start([] {});
    return reply_.get();
  }

  void Push(int tokens, int top = 0, bool last = false) {
    engine::StreamBatch batch;
    for (int i = 0; i < tokens; ++i) {
      engine::TokenEvent event{.token = engine::TokenId{i % 16}};
      if (top > 0) event.logprob = engine::TokenLogprob{event.token, -0.5f, 1};
      for (int j = 0; j < top; ++j) event.top.push_back({engine::TokenId{j}, -1.25f, j + 1});
      batch.tokens.push_back(std::move(event));
    }
    if (last) batch.ends.push_back({.reason = engine::FinishReason::kStop});
    batch.finished = last;
    stream_->Push(std::move(batch));
  }

  // All parts that can be had now.
  std::string ReadAll(bool* by_worker = nullptr) {
    std::string all;
    for (;;) {
      http::ReplyPart part = reply_->Next();
      if (by_worker != nullptr) *by_worker = part.make != nullptr;
      if (part.make) part = std::exchange(part.make, nullptr)();
      all += part.body;
      if (part.last || part.body.empty()) return all;
    }
  }

  bool thinks_ = false;  // from the first token on
  // Letters, and in front of the end of generation the tag that closes a thought.
  static std::vector<std::string> Pieces() {
    std::vector<std::string> pieces = testing::LetterVocabulary();
    pieces.insert(pieces.end() - 1, "</think>");
    return pieces;
  }
  const std::vector<std::string> pieces_ = Pieces();
  testing::FakeTokenizer tokenizer_{pieces_};
  Log log_{LogFormat::kText, LogLevel::kError};
  std::shared_ptr<ByteBudget> budget_ = std::make_shared<ByteBudget>(8 << 20);
  std::shared_ptr<engine::TokenStream> stream_;
  HeldBytes* held_ = nullptr;
  std::unique_ptr<GenerationReply> reply_;
};

// The request comes back three times, however little is answered.
TEST_F(KeptResponsesTest, AStreamCountsWhatItRepeats) {
  Reply(/*echo_bytes=*/100'000);
  Push(1);
  const std::string begin = ReadAll();
  EXPECT_GE(held_->bytes(), 400'000u);
  EXPECT_LT(held_->bytes(), 500'000u);
  Push(1, 0, /*last=*/true);
  EXPECT_GE(held_->bytes(), begin.size() + ReadAll().size());
}

// A stream's last events tell all of it, so all of it is in memory.
TEST_F(KeptResponsesTest, AStreamCountsWhatItKeeps) {
  Reply();
  Push(500);
  ReadAll();
  EXPECT_EQ(held_->bytes(), 0u) << "little counts nowhere";
  Push(10'000);
  ReadAll();
  EXPECT_GE(held_->bytes(), 10'000u * 16);
  EXPECT_LT(held_->bytes(), 400'000u);
  Push(1, 0, /*last=*/true);
  const std::string end = ReadAll();
  EXPECT_GE(held_->bytes(), 5 * 10'501u * 16) << "the events of its end";
  EXPECT_GE(held_->bytes(), end.size());
  EXPECT_NE(end.find("response.completed"), std::string::npos);
}

// All that the model thinks is told three times at its end, where the text begins.
TEST_F(KeptResponsesTest, AThoughtCountsAsTextDoes) {
  for (const bool stream : {true, false}) {
    size_t held[2];
    for (const bool thinks : {false, true}) {
      thinks_ = thinks;
      Reply(0, stream);
      Push(20'000);
      ReadAll();
      held[thinks ? 1 : 0] = held_->bytes();
      if (!thinks) continue;
      EXPECT_GE(held_->bytes(), 20'000u * 16);
      engine::StreamBatch close;
      close.tokens = {{.token = engine::TokenId{static_cast<int32_t>(pieces_.size()) - 2}},
                      {.token = engine::TokenId{0}}};
      stream_->Push(std::move(close));
      const std::string closed = ReadAll();
      EXPECT_EQ(closed.find("response.reasoning_text.done") != std::string::npos, stream);
      EXPECT_GE(held_->bytes(), 20'000 + closed.size());
      Push(1, 0, /*last=*/true);
      const std::string end = ReadAll();
      EXPECT_GE(held_->bytes(), end.size());
      EXPECT_NE(end.find("\"type\":\"reasoning\""), std::string::npos);
    }
    EXPECT_EQ(held[0], held[1]);
  }
}

// However long it waits for its first token, of which nothing may be shown.
TEST_F(KeptResponsesTest, NothingIsMadeByAWorkerWhereNothingIsAtHand) {
  Reply(100'000);
  EXPECT_EQ(reply_->Next().make, nullptr);
  Push(1);
  EXPECT_NE(reply_->Next().make, nullptr);
}

// The next token may end a long item, which is then told three times more.
TEST_F(KeptResponsesTest, ALongItemIsGoneOnWithByAWorker) {
  Reply();
  Push(20'000);
  ReadAll();
  EXPECT_GE(held_->bytes(), 5 * 20'000u * 16);
  EXPECT_EQ(reply_->Next().make, nullptr);
  Push(1);
  EXPECT_NE(reply_->Next().make, nullptr);
}

// Of a thought there are no log-probabilities in the answer.
TEST_F(KeptResponsesTest, WhatAThoughtDoesNotKeepCountsNowhere) {
  thinks_ = true;
  Reply(0, /*stream=*/true, /*top=*/20);
  Push(2000, 20);
  EXPECT_EQ(ReadAll().find("event: error"), std::string::npos);
  EXPECT_LT(held_->bytes(), 200'000u);
}

TEST_F(KeptResponsesTest, OneThatWouldKeepTooMuchFails) {
  Reply(0, /*stream=*/true, /*top=*/20);
  Push(2000, 20);
  const std::string all = ReadAll();  // 1,900 bytes each, five times, of 8 MiB
  EXPECT_NE(all.find("event: error"), std::string::npos);
  EXPECT_NE(all.find("ask for fewer tokens or log-probabilities\""), std::string::npos)
      << all.substr(all.find("event: error"));
}

TEST_F(KeptResponsesTest, WhatIsLongWhateverTheTokensAreIsMadeByAWorker) {
  bool by_worker = false;
  Reply(100'000);
  Push(1);
  http::ReplyPart begin = reply_->Next();
  ASSERT_NE(begin.make, nullptr);
  EXPECT_GT(begin.make().body.size(), 200'000u);
  EXPECT_EQ(reply_->Next().make, nullptr);
  for (const bool large : {false, true}) {
    Reply();
    Push(1);
    EXPECT_EQ(reply_->Next().make, nullptr);
    Push(large ? 20'000 : 20);
    ReadAll();
    Push(1, 0, /*last=*/true);
    ReadAll(&by_worker);
    EXPECT_EQ(by_worker, large);
  }
}

// A model whose tokens the test writes, and a client that has tools.
class CallsInOrderTest : public ServiceTest {
 protected:
  // The answer to `tokens`, which come `in_one_batch` or each in its own.
  std::string AnswerOf(Endpoint endpoint, bool stream, engine::ToolFormat format,
                       const std::vector<std::string>& tokens, bool in_one_batch) {
    std::vector<std::string> pieces = tokens;
    pieces.emplace_back("</s>");
    const testing::FakeTokenizer tokenizer(std::move(pieces));
    GenerationCall call;
    call.endpoint = endpoint;
    call.stream = stream;
    call.output.tools = format;
    call.echo = R"("instructions":null)";
    call.requests.emplace_back();
    auto told = std::make_shared<engine::TokenStream>();
    GenerationReply::Parts parts;
    parts.request_id = "0123456789abcdef";
    parts.streams = {engine::ConsumerHandle(told)};
    parts.tokenizer = &tokenizer;
    parts.log = &log_;
    GenerationReply reply(call, std::move(parts));
    reply.Start([] {});
    std::string all;
    const auto push = [&](engine::StreamBatch batch) {
      told->Push(std::move(batch));
      for (;;) {
        http::ReplyPart part = reply.Next();
        if (part.make) part = std::exchange(part.make, nullptr)();
        all += part.body;
        if (part.last || part.body.empty()) return;
      }
    };
    engine::StreamBatch batch;
    for (size_t i = 0; i < tokens.size(); ++i) {
      batch.tokens.push_back({.token = engine::TokenId{static_cast<int32_t>(i)}});
      if (!in_one_batch && i + 1 < tokens.size()) push(std::exchange(batch, {}));
    }
    batch.ends.push_back({.reason = engine::FinishReason::kLength});
    batch.finished = true;
    push(std::move(batch));
    return all;
  }

  // What a streamed chat tells of the calls.
  static std::string ChatArguments(const std::string& answer) {
    std::string arguments;
    for (const json& event : Events(answer)) {
      const json& delta = event["choices"][0]["delta"];
      for (const json& call : delta.value("tool_calls", json::array())) {
        arguments += call["function"]["arguments"];
      }
    }
    return arguments;
  }

  // Items as "function_call completed {...}" and "message completed text".
  static std::vector<std::string> Items(const json& output) {
    std::vector<std::string> items;
    for (const json& item : output) {
      std::string& text = items.emplace_back(item["type"].get<std::string>() + " ");
      text += item["status"].get<std::string>() + " ";
      text += (item["type"] == "message" ? item["content"][0]["text"] : item["arguments"])
                  .get<std::string>();
    }
    return items;
  }

  // Also that the pieces of each item, joined, are the item.
  static json OutputOfStream(const std::string& answer) {
    std::map<std::string, std::string> pieces;
    json output;
    for (const auto& [type, event] : StreamEvents(answer)) {
      if (type.ends_with(".delta")) {
        pieces[event["item_id"]] += event["delta"].get<std::string>();
      } else if (type == "response.output_text.done") {
        EXPECT_EQ(event["text"], pieces[event["item_id"]]);
      } else if (type == "response.function_call_arguments.done") {
        EXPECT_EQ(event["arguments"], pieces[event["item_id"]]);
      } else if (event.contains("response")) {
        output = event["response"]["output"];
      }
    }
    return output;
  }

  void Check(engine::ToolFormat format, const std::vector<std::string>& tokens,
             const std::vector<std::string>& items) {
    for (const bool in_one_batch : {false, true}) {
      const auto answer = [&](Endpoint endpoint, bool stream) {
        return AnswerOf(endpoint, stream, format, tokens, in_one_batch);
      };
      SCOPED_TRACE(in_one_batch);
      EXPECT_EQ(Items(json::parse(answer(Endpoint::kResponses, false))["output"]), items);
      EXPECT_EQ(Items(OutputOfStream(answer(Endpoint::kResponses, true))), items);
      std::string arguments;
      for (const std::string& item : items) {
        if (item.starts_with("function_call")) arguments += item.substr(item.find('{'));
      }
      EXPECT_EQ(ChatArguments(answer(Endpoint::kChatCompletions, true)), arguments);
    }
  }
};

TEST_F(CallsInOrderTest, ATokenMayEndTheArgumentsAndGoOn) {
  Check(engine::ToolFormat::kHermes,
        {"<tool_call>\n", R"({"name": "f", "arguments": {"a": 1)", "})", "\n</tool_call>"},
        {R"(function_call completed {"a": 1})", "message incomplete )\n</tool_call>"});
  Check(engine::ToolFormat::kLlama3, {R"({"name": "f", "parameters": {"a": 1)", "}]", " x"},
        {R"(function_call completed {"a": 1})", "message incomplete ] x"});
  Check(engine::ToolFormat::kLlama3,
        {R"({"name": "f", "parameters": {"a": 1)", R"(}}{"name": "g", "parameters": {"b": 2)",
         "}}and"},
        {R"(function_call completed {"a": 1})", R"(function_call completed {"b": 2})",
         "message incomplete and"});
}

// What stop strings have held back comes with the end.
TEST_F(CallsInOrderTest, TheEndMayBringTheBeginningOfACall) {
  Check(engine::ToolFormat::kHermes,
        {R"(<tool_call>{"name": "f", "arguments": {"a": 1)", "}", "}", "\n</tool_call>", "\n<tool"},
        {R"(function_call completed {"a": 1})", "message incomplete \n<tool"});
  Check(engine::ToolFormat::kHermes,
        {R"(So: <tool_call>{"name": "f", "arguments": {"a": 1)", "}}\n</tool_call>\n<tool"},
        {"message completed So:", R"(function_call completed {"a": 1})",
         "message incomplete \n<tool"});
}

}  // namespace
}  // namespace refrain::server::openai
