// What goes over the wire: events, bodies, answers cut anywhere, addresses.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/loadgen/answer_reader.h"
#include "tools/loadgen/extra_body.h"
#include "tools/loadgen/http_backend.h"
#include "tools/loadgen/openai_wire.h"
#include "tools/loadgen/recorder.h"
#include "tools/loadgen/sse_parser.h"

namespace refrain::loadgen {
namespace {

using Json = nlohmann::json;

// --- events ---

std::vector<std::string> Events(std::string_view bytes, size_t piece) {
  SseParser parser;
  std::vector<std::string> events;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    EXPECT_TRUE(
        parser.Feed(bytes.substr(at, piece), [&](std::string_view type, std::string_view data) {
          events.push_back(type.empty() ? std::string(data)
                                        : std::string(type) + "|" + std::string(data));
          return true;
        }));
  }
  return events;
}

TEST(SseParser, GivesTheSameEventsHoweverTheBytesArrive) {
  const std::string stream =
      ": a comment\n\nevent: x\nid: 1\ndata: {\"a\":1}\n\ndata:no blank\r\n\r\n"
      "data: two\ndata: lines\n\ndatabase: not data\n\nevent: of no data\n\ndata\n\n"
      "data: [DONE]\n\ndata: unfinished\n";
  const std::vector<std::string> expected = {"x|{\"a\":1}", "no blank", "two\nlines", "", "[DONE]"};
  for (size_t piece = 1; piece <= stream.size(); ++piece) {
    EXPECT_EQ(Events(stream, piece), expected) << piece;
  }
}

TEST(SseParser, RefusesAnEventThatDoesNotEnd) {
  SseParser parser(100);
  const auto ignore = [](std::string_view, std::string_view) { return true; };
  EXPECT_TRUE(parser.Feed(std::string(100, 'a'), ignore));
  EXPECT_FALSE(parser.Feed("a", ignore));
}

// --- bodies and events of the API ---

TEST(OpenAiWire, BodiesAreWhatServersTake) {
  const WireOptions options = {.model = "a \"model\"", .extra_members = {{"user", "\"x\""}}};
  const Json ids = Json::parse(EncodeBody(
      options, {.form = PromptForm::kTokenIds, .token_ids = {1, 22, 333}, .output_tokens = 5}));
  EXPECT_EQ(ids["prompt"], Json({1, 22, 333}));
  EXPECT_EQ(ids["model"], "a \"model\"");
  EXPECT_EQ(ids["max_tokens"], 5);
  EXPECT_EQ(ids["stream"], true);
  EXPECT_EQ(ids["stream_options"]["include_usage"], true);
  EXPECT_EQ(ids["ignore_eos"], true);
  EXPECT_EQ(ids["user"], "x");
  EXPECT_FALSE(ids.contains("return_token_ids"));

  const GenerationRequest said = {.form = PromptForm::kText, .text = "a\n\xff"};
  EXPECT_EQ(Json::parse(EncodeBody({.ignore_eos = false}, said))["prompt"], "a\n\xef\xbf\xbd");
  const GenerationRequest chat = {.form = PromptForm::kChat,
                                  .messages = {{"system", "a\n\xff"}, {"user", "b"}}};
  const Json messages = Json::parse(EncodeBody({}, chat))["messages"];
  EXPECT_EQ(messages[1], Json({{"role", "user"}, {"content", "b"}}));
  EXPECT_EQ(CompletionPath(PromptForm::kChat), "/v1/chat/completions");
}

// Two members of one name would be two requests: which one is meant is the reader's choice.
TEST(OpenAiWire, ExtraMembersStandInPlaceOfOnesOwn) {
  const auto extra = ParseExtraBody(
      R"({"max_tokens": 5, "temperature": 0.5, "stream": true, "ignore_eos": false, "a\"b": [1],)"
      R"("stream_options": {"include_usage": true, "x": 1}, "return_token_ids": false, "n": 1})");
  ASSERT_TRUE(extra.ok()) << extra.status();
  const std::string body = EncodeBody({.model = "m", .extra_members = *extra},
                                      {.token_ids = {1}, .wants_token_ids = true});
  std::vector<std::string> keys;
  const Json object = Json::parse(body, [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::key && depth == 1) keys.push_back(parsed.get<std::string>());
    return true;
  });
  EXPECT_EQ(keys.size(), object.size()) << body;
  const Json expected = {{"model", "m"},
                         {"prompt", {1}},
                         {"max_tokens", 5},
                         {"temperature", 0.5},
                         {"stream", true},
                         {"stream_options", {{"include_usage", true}, {"x", 1}}},
                         {"ignore_eos", false},
                         {"return_token_ids", false},
                         {"n", 1},
                         {"a\"b", {1}}};
  EXPECT_EQ(object, expected);
}

TEST(ExtraBody, RefusesWhatIsNoObjectAndWhatWouldMakeTheReportUntrue) {
  const auto error = [](const char* text) {
    const auto members = ParseExtraBody(text);
    return members.ok() ? "" : std::string(members.status().message());
  };
  EXPECT_EQ(error("[]"), "[] is no JSON object");
  EXPECT_EQ(error("{"), "{ is no JSON object");
  EXPECT_EQ(error(R"({"a": 1, "a": 1})"), "the key \"a\" occurs twice in one object");
  EXPECT_EQ(error(R"({"a": [{"b": 1, "b": 2}]})"), "the key \"b\" occurs twice in one object");
  EXPECT_EQ(error(R"({"a": {"a": 1}, "b": [{"a": 1}, {"a": 2}]})"), "");
  const std::vector<std::pair<const char*, const char*>> cases = {
      {R"({"model": "m"})", "\"model\" is what the report names: use --model"},
      {R"({"prompt": "a"})", "\"prompt\" comes from the workload: use --workload=jsonl"},
      {R"({"messages": []})", "\"messages\" comes from the workload: use --workload=jsonl"},
      {R"({"stream": false})", "\"stream\" must stay true"},
      {R"({"stream": null})", "\"stream\" must stay true"},
      {R"({"stream_options": null})", "\"stream_options\" must hold \"include_usage\": true"},
      {R"({"stream_options": {"x": 1}})", "\"stream_options\" must hold"},
      {R"({"n": 2})", "\"n\" must be 1"}};
  for (const auto& [text, expected] : cases) EXPECT_TRUE(error(text).starts_with(expected)) << text;
  EXPECT_TRUE(ParseExtraBody("{}")->empty());
  EXPECT_EQ(error(R"({"n": null})"), "");
}

TEST(OpenAiWire, ReadsEventsOfCompletionsAndChats) {
  const auto text = DecodeEvent(R"({"choices":[{"text":" a","finish_reason":null}]})");
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(text->tokens, 1);
  EXPECT_EQ(text->text, " a");
  EXPECT_FALSE(text->finish_reason.has_value());
  const auto ids = DecodeEvent(R"({"choices":[{"text":"ab","token_ids":[4,5]}]})");
  EXPECT_EQ(ids->tokens, 2);
  EXPECT_EQ(ids->token_ids, (std::vector<int32_t>{4, 5}));
  const auto role = DecodeEvent(R"({"choices":[{"delta":{"role":"assistant","content":""}}]})");
  EXPECT_EQ(role->tokens, 0);
  EXPECT_EQ(DecodeEvent(R"({"choices":[{"text":"","finish_reason":null}]})")->tokens, 1);
  EXPECT_EQ(DecodeEvent(R"({"choices":[{"text":"","finish_reason":"stop"}]})")->tokens, 0);
  EXPECT_EQ(DecodeEvent(R"({"choices":[{"text":"","token_ids":[]}]})")->tokens, 0);
  const auto chat =
      DecodeEvent(R"({"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}],"usage":null})");
  EXPECT_EQ(chat->tokens, 1);
  EXPECT_EQ(chat->finish_reason, "stop");
  const auto call = DecodeEvent(
      R"({"choices":[{"delta":{"tool_calls":[{"function":{"name":"f","arguments":"{"}}]}}]})");
  EXPECT_EQ(call->text, "f{");
  const auto usage =
      DecodeEvent(R"({"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4,)"
                  R"("prompt_tokens_details":{"cached_tokens":8}}})");
  EXPECT_EQ(usage->prompt_tokens, 9);
  EXPECT_EQ(usage->output_tokens, 4);
  EXPECT_EQ(usage->cached_tokens, 8);
  EXPECT_EQ(*DecodeEvent(R"({"error":{"message":"broken"}})")->error, "broken");
  EXPECT_EQ(*DecodeEvent(R"({"error":"odd"})")->error, "odd");
  EXPECT_EQ(*DecodeEvent(R"({"object":"error","message":"broken","code":500})")->error, "broken");
  EXPECT_EQ(*DecodeEvent(R"({"object":"error"})")->error, R"({"object":"error"})");
  EXPECT_EQ(*DecodeEvent(R"({"detail":["a"]})")->error, R"(["a"])");
  for (const char* none : {R"({"choices":[],"message":"hi"})", R"({"usage":{}})", R"({"id":1})"}) {
    EXPECT_FALSE(DecodeEvent(none)->error.has_value()) << none;
  }
  EXPECT_FALSE(DecodeEvent("[1]").ok());
  EXPECT_FALSE(DecodeEvent("{").ok());
  // Members of unexpected kinds are passed over.
  EXPECT_TRUE(DecodeEvent(R"({"choices":[5,{"text":5,"delta":5,"token_ids":5}],"usage":5})").ok());
}

TEST(OpenAiWire, ReadsModelsAndErrors) {
  EXPECT_EQ(*FirstModel(R"({"data":[{"id":"m"}]})"), "m");
  EXPECT_FALSE(FirstModel(R"({"data":[]})").ok());
  EXPECT_FALSE(FirstModel("no").ok());
  EXPECT_EQ(ErrorMessage(R"({"error":{"message":"full"}})"), "full");
  EXPECT_EQ(ErrorMessage("<html>"), "<html>");
}

// --- whole answers ---

struct Received final : AnswerSink {
  void OnTokens(double at_s, int32_t tokens, std::string_view text,
                std::span<const int32_t>) override {
    count += tokens;
    said += text;
    if (first_s == 0) first_s = at_s;
  }
  void OnEnd(double, const AnswerEnd&) override {}
  int32_t count = 0;
  std::string said;
  double first_s = 0;
};

std::string Chunked(const std::vector<std::string>& parts) {
  std::string bytes = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const std::string& part : parts) {
    char size[24];
    std::snprintf(size, sizeof(size), "%zx\r\n", part.size());
    bytes += size + part + "\r\n";
  }
  return bytes + "0\r\n\r\n";
}

std::string Good() {
  return Chunked({"data: {\"choices\":[{\"text\":\"a\"}]}\n\n",
                  "data: {\"choices\":[{\"text\":\"b\",\"finish_reason\":\"length\"}]}\n\n",
                  "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2}}"
                  "\n\ndata: [DONE]\n\n"});
}

// Feeds the bytes in pieces; a reader that wants more gets the rest again.
struct Outcome {
  AnswerEnd end;
  bool done = false;
  bool keep_alive = false;
  Received received;
};
Outcome Read(std::string_view bytes, size_t piece, bool closed) {
  Outcome outcome;
  AnswerReader reader(&outcome.received);
  std::string pending;
  double now_s = 1;
  for (size_t at = 0; at < bytes.size() && !reader.done(); at += piece) {
    pending += bytes.substr(at, piece);
    pending.erase(0, reader.Feed(pending, now_s++));
  }
  if (closed && !reader.done()) reader.FeedEnd(now_s);
  outcome.done = reader.done();
  outcome.keep_alive = reader.keep_alive();
  outcome.end = reader.TakeEnd();
  return outcome;
}

TEST(AnswerReader, ReadsAnAnswerHoweverItsBytesArrive) {
  const std::string bytes = Good();
  for (size_t piece = 1; piece <= bytes.size(); ++piece) {
    const Outcome outcome = Read(bytes, piece, false);
    EXPECT_TRUE(outcome.done) << piece;
    EXPECT_TRUE(outcome.keep_alive) << piece;
    EXPECT_FALSE(outcome.end.failure.has_value()) << piece << outcome.end.failure->message;
    EXPECT_EQ(outcome.received.said, "ab") << piece;
    EXPECT_EQ(outcome.end.output_tokens, 2);
    EXPECT_EQ(outcome.end.prompt_tokens, 3);
  }
}

// A server or a proxy may send something ahead of its answer (RFC 9110, 15.2).
TEST(AnswerReader, WhatComesAheadOfAnAnswerIsNone) {
  const std::string hints = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nRetry-After: 9\r\n\r\n";
  const std::string go_on = "HTTP/1.1 100 Continue\r\n\r\n";
  for (const std::string& ahead : {hints, go_on, go_on + hints}) {
    const std::string bytes = ahead + Good();
    for (size_t piece = 1; piece <= bytes.size(); ++piece) {
      const Outcome outcome = Read(bytes, piece, false);
      ASSERT_TRUE(outcome.done) << piece;
      EXPECT_TRUE(outcome.keep_alive) << piece;
      ASSERT_FALSE(outcome.end.failure.has_value()) << piece << outcome.end.failure->kind;
      EXPECT_EQ(outcome.received.said, "ab") << piece;
      EXPECT_FALSE(outcome.end.retry_after_s.has_value()) << piece;
    }
    EXPECT_EQ(Read(ahead, 4096, true).end.failure->kind, "connection_lost");
  }
  EXPECT_EQ(Read("HTTP/1.1 101 X\r\nUpgrade: x\r\n\r\n", 7, true).end.failure->kind, "http_101");
  Received nothing;
  AnswerReader reader(&nothing);
  EXPECT_EQ(reader.Feed(go_on, 1), go_on.size());
  EXPECT_TRUE(reader.started()) << "the request has come, and is not sent again";
  EXPECT_FALSE(reader.done());
}

// Wherever an answer ends too early, it is a failure of the right kind.
TEST(AnswerReader, AnAnswerCutAnywhereIsBroken) {
  const std::string bytes = Good();
  const size_t head = bytes.find("\r\n\r\n");
  for (size_t length = 0; length < bytes.size(); ++length) {
    const Outcome outcome = Read(std::string_view(bytes).substr(0, length), 4096, true);
    ASSERT_TRUE(outcome.end.failure.has_value()) << length;
    EXPECT_FALSE(outcome.keep_alive);
    const std::string& kind = outcome.end.failure->kind;
    if (length > head + 4) {
      EXPECT_EQ(kind, "broken_stream") << length;
    } else if (length == 0) {
      EXPECT_EQ(kind, "connection_lost");
    }
  }
}

TEST(AnswerReader, TellsKindsOfFailures) {
  const auto kind = [](const std::string& bytes, bool closed = false) {
    const Outcome outcome = Read(bytes, 4096, closed);
    return outcome.end.failure.has_value() ? outcome.end.failure->kind : "none";
  };
  EXPECT_EQ(kind("HTTP/1.1 429 Too Many\r\nContent-Length: 2\r\n\r\n{}"), "http_429");
  EXPECT_EQ(kind("HTTP/1.1 503 No\r\nContent-Length: 9\r\n\r\nno", true), "http_503");
  EXPECT_EQ(kind("no HTTP at all\r\n\r\n"), "bad_answer");
  EXPECT_EQ(kind(Chunked({"data: not json\n\n"})), "bad_answer");
  EXPECT_EQ(kind(Chunked({"data: {\"error\":{\"message\":\"x\"}}\n\n"})), "error_event");
  EXPECT_EQ(kind(Chunked({"data: {\"choices\":[{\"text\":\"a\"}]}\n\n"})), "broken_stream");
  EXPECT_EQ(kind(Chunked({"data: [DONE]\n\n"})), "no_tokens");
  EXPECT_EQ(kind(Good()), "none");
  // Some servers end with [DONE] whatever happened.
  const auto after_a_token = [&](const char* event) {
    return kind(
        Chunked({"data: {\"choices\":[{\"text\":\"a\"}]}\n\n", event, "\n\ndata: [DONE]\n\n"}));
  };
  EXPECT_EQ(after_a_token(R"(data: {"choices":[{"text":"","finish_reason":"abort"}]})"), "aborted");
  EXPECT_EQ(after_a_token(R"(data: {"choices":[{"text":"","finish_reason":"error"}]})"), "aborted");
  EXPECT_EQ(after_a_token(R"(data: {"object":"error","message":"boom"})"), "error_event");
  EXPECT_EQ(after_a_token(R"(data: {"detail":"boom"})"), "error_event");
  EXPECT_EQ(after_a_token("event: error\ndata: {\"reason\":\"boom\"}"), "error_event");
  EXPECT_EQ(after_a_token("data: {\"choices\":[],\"usage\":{}}"), "broken_stream");
  EXPECT_EQ(after_a_token("event: token\n"
                          R"(data: {"choices":[{"text":"","finish_reason":"stop"}]})"),
            "none");
}

TEST(AnswerReader, TellsWhenTheFinishReasonCame) {
  const std::string bytes = Good();
  const size_t usage = bytes.find("usage");
  Received received;
  AnswerReader reader(&received);
  std::string rest = bytes.substr(0, usage);
  rest.erase(0, reader.Feed(rest, 5));
  EXPECT_EQ(reader.Feed(rest + bytes.substr(usage), 6), rest.size() + bytes.size() - usage);
  EXPECT_EQ(reader.TakeEnd().finished_s, 5);
}

TEST(AnswerReader, KeepsTheMessageOfAnError) {
  const std::string body = R"({"error":{"message":"the queue is full"}})";
  const Outcome outcome =
      Read("HTTP/1.1 429 X\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body,
           7, false);
  EXPECT_EQ(outcome.end.failure->message, "the queue is full");
  EXPECT_TRUE(outcome.keep_alive);
}

TEST(AnswerReader, TellsWhenARefusedRequestMayComeBack) {
  const auto told_s = [](const std::string& field) {
    return Read("HTTP/1.1 429 X\r\n" + field + "Content-Length: 2\r\n\r\n{}", 7, false)
        .end.retry_after_s;
  };
  EXPECT_EQ(told_s("Retry-After: 7\r\n"), 7);
  EXPECT_EQ(told_s("retry-after: 60 \r\n"), 60);
  EXPECT_EQ(told_s(""), std::nullopt);
  EXPECT_EQ(told_s("Retry-After: Fri, 31 Dec 1999 23:59:59 GMT\r\n"), std::nullopt);
}

TEST(AnswerReader, AnAnswerThatEndsWithTheConnectionIsWhole) {
  const Outcome outcome = Read(
      "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
      "data: {\"choices\":[{\"text\":\"a\",\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
      10, true);
  EXPECT_FALSE(outcome.end.failure.has_value());
  EXPECT_FALSE(outcome.keep_alive);
}

// Scenario: three tokens of a completion show nothing (parts of a character, say), then one does;
// an event each second.
TEST(AnswerReader, AnEventOfACompletionIsATokenThoughItShowsNoText) {
  const std::string silent = "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":null}]}\n\n";
  Received received;
  AnswerReader reader(&received);
  reader.Feed("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", 0.5);
  double now_s = 0;
  for (const std::string& event :
       {silent, silent, silent, std::string("data: {\"choices\":[{\"text\":\"a\"}]}\n\n"),
        std::string("data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"length\"}]}\n\n"
                    "data: {\"choices\":[],\"usage\":{\"completion_tokens\":5}}\n\n"
                    "data: [DONE]\n\n")}) {
    EXPECT_EQ(reader.Feed(event, ++now_s), event.size());
  }
  reader.FeedEnd(++now_s);
  const AnswerEnd end = reader.TakeEnd();
  EXPECT_FALSE(end.failure.has_value());
  EXPECT_EQ(received.count, 4);
  EXPECT_EQ(received.said, "a");
  const RequestValues values = ValuesOf({.first_token_s = received.first_s,
                                         .last_token_s = end.finished_s.value_or(0),
                                         .output_tokens = end.output_tokens.value_or(0)});
  EXPECT_EQ(values.ms[static_cast<size_t>(Metric::kTtft)], 1000);
  EXPECT_EQ(values.ms[static_cast<size_t>(Metric::kTpot)], 1000);
}

// Tokens without text are known at the end only: the first one is then the end's.
TEST(AnswerReader, AnAnswerWithoutTextStillHasAFirstToken) {
  const Outcome outcome =
      Read(Chunked({"data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"stop\"}]}\n\n",
                    "data: [DONE]\n\n"}),
           4096, false);
  EXPECT_FALSE(outcome.end.failure.has_value());
  EXPECT_EQ(outcome.received.count, 1);
}

// The end token of an answer that ends at once is one; where usage says 0, none was generated.
TEST(AnswerReader, UsageSaysWhetherAnEndAloneIsAToken) {
  const auto kind = [](const char* completion_tokens) {
    const Outcome outcome =
        Read(Chunked({R"(data: {"choices":[{"text":"","finish_reason":"stop"}]})", "\n\n",
                      R"(data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":)",
                      completion_tokens, "}}\n\ndata: [DONE]\n\n"}),
             4096, false);
    return outcome.end.failure.has_value() ? outcome.end.failure->kind : "none";
  };
  EXPECT_EQ(kind("0"), "no_tokens");
  EXPECT_EQ(kind("1"), "none");
}

// Chat templates drop it, and a server that has both names says it twice.
TEST(AnswerReader, ReasoningCountsAndIsNotWhatAChatGoesOnWith) {
  const Outcome outcome =
      Read(Chunked({R"(data: {"choices":[{"delta":{"reasoning_content":"hm","reasoning":"hm"}}]})",
                    "\n\n", R"(data: {"choices":[{"delta":{"reasoning":"so"}}]})", "\n\n",
                    R"(data: {"choices":[{"delta":{"content":"yes"},"finish_reason":"stop"}]})",
                    "\n\ndata: [DONE]\n\n"}),
           4096, false);
  EXPECT_FALSE(outcome.end.failure.has_value());
  EXPECT_EQ(outcome.received.count, 3);
  EXPECT_EQ(outcome.received.said, "yes");
  const auto both = DecodeEvent(
      R"({"choices":[{"delta":{"reasoning_content":"hm","reasoning":"hm","content":"a"}}]})");
  EXPECT_EQ(both->text, "hma");
}

// --- addresses ---

TEST(Target, TakesHostPortAndPath) {
  EXPECT_EQ(ParseTarget("http://a:80")->host, "a");
  EXPECT_EQ(ParseTarget("http://a")->port, "80");
  EXPECT_EQ(ParseTarget("http://a:8000/v1/")->path, "");
  EXPECT_EQ(ParseTarget("http://a:8000/base/v1")->path, "/base");
  EXPECT_EQ(ParseTarget("http://[::1]:8000")->host, "::1");
  EXPECT_EQ(HostField(*ParseTarget("http://[::1]:8000")), "[::1]:8000");
  EXPECT_EQ(HostField(*ParseTarget("http://a")), "a:80");
  EXPECT_FALSE(ParseTarget("http://a")->https);
  EXPECT_TRUE(ParseTarget("https://a")->https);
  EXPECT_EQ(ParseTarget("https://a")->port, "443");
  for (const char* bad :
       {"a:80", "ftp://a", "http://", "https://", "http://:80", "http://a:b", "http://a:"}) {
    const auto refused = ParseTarget(bad);
    ASSERT_FALSE(refused.ok()) << bad;
    EXPECT_NE(std::string(refused.status().message()).find("--url is"), std::string::npos);
  }
}

}  // namespace
}  // namespace refrain::loadgen
