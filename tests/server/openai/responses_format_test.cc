// The events and the whole answers of /v1/responses, from pieces as choices make them.

#include "server/openai/responses_format.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/fake_tokenizer.h"

namespace refrain::server::openai {
namespace {

using engine::FinishReason;
using engine::TokenId;
using nlohmann::json;

const engine::Usage kUsage = {
    .prompt_tokens = 7, .cached_tokens = 3, .written_tokens = 4, .completion_tokens = 5};

TextPiece Thought(std::string reasoning) { return {.reasoning = std::move(reasoning)}; }
TextPiece Text(std::string text) { return {.text = std::move(text)}; }
TextPiece Call(std::optional<std::string> name, std::string arguments, int32_t index = 0) {
  return {.call = ToolCallDelta{index, std::move(name), std::move(arguments)}};
}
TextPiece End(FinishReason reason, bool called = false) {
  return {.finish = reason, .called = called};
}

// Events by what can be told of them beforehand: ids are numbered in the order in which they come.
class ResponsesFormatTest : public ::testing::Test {
 protected:
  ResponsesFormat Format(bool has_logprobs = false) {
    return {{.id = "resp_1",
             .model = "m",
             .created_unix_s = 5,
             .echo = R"("instructions":"i","tools":[])",
             .has_logprobs = has_logprobs},
            &tokenizer_};
  }

  std::string Stream(std::vector<TextPiece> pieces, bool has_logprobs = false) {
    ResponsesFormat format = Format(has_logprobs);
    std::string text;
    for (TextPiece& piece : pieces) format.AppendEvents(0, piece, {}, std::nullopt, &text);
    format.AppendEnd(kUsage, &text);
    return text;
  }

  json Whole(std::vector<TextPiece> pieces, bool has_logprobs = false) {
    ResponsesFormat format = Format(has_logprobs);
    for (TextPiece& piece : pieces) format.Keep(0, std::move(piece));
    return json::parse(WithoutIds(format.TakeWhole({{}}, kUsage)));
  }

  // Random ids as "msg_1", "fc_2" and so on.
  static std::string WithoutIds(const std::string& text) {
    static const std::regex kId("\"(rs|msg|fc|call)_([0-9a-f]+)\"");
    std::string plain;
    std::map<std::string, size_t> numbers;
    auto at = text.begin();
    for (std::sregex_iterator id(text.begin(), text.end(), kId), end; id != end; ++id) {
      plain.append(at, (*id)[0].first);
      const size_t number = numbers.emplace(id->str(2), numbers.size() + 1).first->second;
      plain += "\"" + id->str(1) + "_" + std::to_string(number) + "\"";
      at = (*id)[0].second;
    }
    return plain.append(at, text.end());
  }

  // The events, whose numbers rise from 0 and whose names are their types.
  static std::vector<json> Events(const std::string& text) {
    std::vector<json> events;
    for (size_t at = 0; at < text.size();) {
      const size_t line = text.find("\ndata: ", at);
      const size_t end = text.find("\n\n", at);
      EXPECT_TRUE(line < end && end != std::string::npos) << text.substr(at);
      if (end == std::string::npos) break;
      events.push_back(json::parse(text.substr(line + 7, end - line - 7)));
      EXPECT_EQ("event: " + events.back()["type"].get<std::string>(), text.substr(at, line - at));
      EXPECT_EQ(events.back()["sequence_number"], events.size() - 1);
      at = end + 2;
    }
    return events;
  }

  static std::vector<std::string> Types(const std::vector<json>& events) {
    std::vector<std::string> types;
    for (const json& event : events) types.push_back(event["type"]);
    return types;
  }

  // What a client has that puts the events of items together, as OpenAI's do.
  static json Accumulated(const std::vector<json>& events) {
    json output = json::array();
    for (const json& event : events) {
      const std::string type = event["type"];
      if (type == "response.output_item.added") {
        EXPECT_EQ(event["output_index"], output.size());
        output.push_back(event["item"]);
        continue;
      }
      if (!event.contains("output_index")) continue;
      json& item = output[event["output_index"].get<size_t>()];
      if (event.contains("item_id")) {
        EXPECT_EQ(event["item_id"], item["id"]);
      }
      if (type == "response.content_part.added") {
        EXPECT_EQ(event["content_index"], item["content"].size());
        item["content"].push_back(event["part"]);
      } else if (type == "response.output_text.delta") {
        json& part = item["content"][0];
        part["text"] = part["text"].get<std::string>() + event["delta"].get<std::string>();
        for (const json& logprob : event["logprobs"]) part["logprobs"].push_back(logprob);
      } else if (type == "response.reasoning_text.delta") {
        EXPECT_FALSE(event.contains("logprobs"));
        json& part = item["content"][event["content_index"].get<size_t>()];
        part["text"] = part["text"].get<std::string>() + event["delta"].get<std::string>();
      } else if (type == "response.function_call_arguments.delta") {
        item["arguments"] =
            item["arguments"].get<std::string>() + event["delta"].get<std::string>();
      } else if (type == "response.output_text.done") {
        EXPECT_EQ(event["text"], item["content"][0]["text"]);
        EXPECT_EQ(event["logprobs"], item["content"][0]["logprobs"]);
      } else if (type == "response.reasoning_text.done") {
        EXPECT_EQ(event["text"], item["content"][0]["text"]);
      } else if (type == "response.content_part.done") {
        EXPECT_EQ(event["part"], item["content"][0]);
      } else if (type == "response.function_call_arguments.done") {
        EXPECT_EQ(event["arguments"], item["arguments"]);
        EXPECT_EQ(event["name"], item["name"]);
      } else if (type == "response.output_item.done") {
        item["status"] = event["item"]["status"];
        EXPECT_EQ(event["item"], item);
      } else {
        ADD_FAILURE() << type;
      }
    }
    return output;
  }

  // That the stream of `pieces` tells the same as the whole answer, of which it is `output`.
  void ExpectBoth(const std::vector<TextPiece>& pieces, const json& output,
                  const std::string& status = "completed") {
    const std::vector<json> events = Events(WithoutIds(Stream(pieces)));
    const json whole = Whole(pieces);
    EXPECT_EQ(whole["output"], output);
    EXPECT_EQ(whole["status"], status);
    EXPECT_EQ(Accumulated(events), events.back()["response"]["output"]);
    EXPECT_EQ(events.back()["response"], whole);
    EXPECT_EQ(events.back()["type"], "response." + status);
  }

  testing::FakeTokenizer tokenizer_{{"a", "b", "\xe2", "c", "</s>"}};
};

TEST_F(ResponsesFormatTest, TextIsOneMessage) {
  const std::vector<TextPiece> pieces = {Text("He"), Text("llo"), End(FinishReason::kStop)};
  const std::vector<json> events = Events(Stream(pieces));
  EXPECT_EQ(Types(events),
            (std::vector<std::string>{"response.created", "response.in_progress",
                                      "response.output_item.added", "response.content_part.added",
                                      "response.output_text.delta", "response.output_text.delta",
                                      "response.output_text.done", "response.content_part.done",
                                      "response.output_item.done", "response.completed"}));
  for (const int i : {0, 1}) {
    EXPECT_EQ(events[i]["response"]["status"], "in_progress");
    EXPECT_EQ(events[i]["response"]["output"], json::array());
    EXPECT_EQ(events[i]["response"]["usage"], json());
    EXPECT_EQ(events[i]["response"]["instructions"], "i");
  }
  EXPECT_EQ(events[2]["item"]["status"], "in_progress");
  EXPECT_EQ(events[4]["delta"], "He");
  ExpectBoth(pieces, json::parse(R"([{"id":"msg_1","type":"message","status":"completed",
      "role":"assistant","content":[{"type":"output_text","text":"Hello","annotations":[],
      "logprobs":[]}]}])"));
}

TEST_F(ResponsesFormatTest, WholeAnswersHaveAllMembers) {
  EXPECT_EQ(Whole({Text("a"), End(FinishReason::kStop)}), json::parse(R"({
      "id":"resp_1","object":"response","created_at":5,"status":"completed","error":null,
      "incomplete_details":null,"model":"m","background":false,"previous_response_id":null,
      "service_tier":"default","store":false,"instructions":"i","tools":[],
      "output":[{"id":"msg_1","type":"message","status":"completed","role":"assistant",
      "content":[{"type":"output_text","text":"a","annotations":[],"logprobs":[]}]}],
      "usage":{"input_tokens":7,"input_tokens_details":{"cached_tokens":3,"cache_write_tokens":4},
      "output_tokens":5,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":12}})"));
}

TEST_F(ResponsesFormatTest, UsageTellsWhyTheCacheMissed) {
  ResponsesFormat format = Format();
  format.SetMisses({engine::CacheMiss{.reason = engine::CacheMissReason::kEvicted}});
  format.Keep(0, End(FinishReason::kStop));
  json whole = json::parse(format.TakeWhole({{}}, kUsage));
  EXPECT_EQ(whole["usage"]["input_tokens_details"]["cache_misses"][0]["reason"], "evicted");
}

// In the order in which the model wrote them, each with ids of its own.
TEST_F(ResponsesFormatTest, CallsAreItemsBesideTheText) {
  ExpectBoth({Text("Let me"), Call("f", ""), Call({}, R"({"a")"), Call({}, R"(:"\n"})"),
              Call("g", "{}", 1), Text("so"), End(FinishReason::kStop, /*called=*/true)},
             json::parse(R"([{"id":"msg_1","type":"message","status":"completed",
      "role":"assistant","content":[{"type":"output_text","text":"Let me","annotations":[],
      "logprobs":[]}]},
      {"id":"fc_2","type":"function_call","status":"completed","call_id":"call_3","name":"f",
       "arguments":"{\"a\":\"\\n\"}"},
      {"id":"fc_4","type":"function_call","status":"completed","call_id":"call_5","name":"g",
       "arguments":"{}"},
      {"id":"msg_6","type":"message","status":"completed","role":"assistant",
       "content":[{"type":"output_text","text":"so","annotations":[],"logprobs":[]}]}])"));
}

TEST_F(ResponsesFormatTest, ACallAloneHasNoMessage) {
  const std::vector<TextPiece> pieces = {Call("f", "{}"), End(FinishReason::kStop, true)};
  EXPECT_EQ(Types(Events(Stream(pieces))),
            (std::vector<std::string>{
                "response.created", "response.in_progress", "response.output_item.added",
                "response.function_call_arguments.delta", "response.function_call_arguments.done",
                "response.output_item.done", "response.completed"}));
}

TEST_F(ResponsesFormatTest, TheLimitLeavesTheLastItemIncomplete) {
  const std::vector<TextPiece> text = {Text("a"), End(FinishReason::kLength)};
  EXPECT_EQ(Whole(text)["incomplete_details"], json::parse(R"({"reason":"max_output_tokens"})"));
  EXPECT_EQ(Whole(text)["output"][0]["status"], "incomplete");
  EXPECT_EQ(Types(Events(Stream(text))).back(), "response.incomplete");
  const json call = Whole({Text("a"), Call("f", "{"), End(FinishReason::kLength)});
  EXPECT_EQ(call["output"][0]["status"], "completed");
  EXPECT_EQ(call["output"][1]["status"], "incomplete");
  // Behind a call that is whole, it leaves it as it is.
  const json whole_call = Whole({Call("f", "{}"), End(FinishReason::kLength, /*called=*/true)});
  EXPECT_EQ(whole_call["status"], "incomplete");
  EXPECT_EQ(whole_call["output"][0]["status"], "completed");
  // One that the model broke is not to be run, wherever it stands.
  const json broken = Whole({Call("f", "{\"a\":1"), Text("b"), Call("g", "{a:1}", 1),
                             End(FinishReason::kStop, /*called=*/true)});
  EXPECT_EQ(broken["output"][0]["status"], "incomplete");
  EXPECT_EQ(broken["output"][1]["status"], "completed");
  EXPECT_EQ(broken["output"][2]["status"], "incomplete");
  EXPECT_EQ(broken["status"], "completed");
  // A stop string may end a call in its arguments.
  const json stopped = Whole({Call("f", "{"), End(FinishReason::kStop, /*called=*/false)});
  EXPECT_EQ(stopped["status"], "completed");
  EXPECT_EQ(stopped["output"][0]["status"], "incomplete");
}

TEST_F(ResponsesFormatTest, ArgumentsAreNeverPartOfAMessage) {
  const json whole = Whole({Call("f", "{"), Text("a"), Call(std::nullopt, "}"),
                            End(FinishReason::kStop, /*called=*/true)});
  EXPECT_EQ(whole["output"][0]["arguments"], "{");
  EXPECT_EQ(whole["output"][1]["content"][0]["text"], "a");
}

TEST_F(ResponsesFormatTest, AnAnswerOfNothingIsAnEmptyMessage) {
  for (const FinishReason reason : {FinishReason::kStop, FinishReason::kLength}) {
    const json whole = Whole({End(reason)});
    ASSERT_EQ(whole["output"].size(), 1u);
    EXPECT_EQ(whole["output"][0]["content"][0]["text"], "");
    const std::vector<json> events = Events(Stream({End(reason)}));
    EXPECT_EQ(events.size(), 8u);  // without a delta
    EXPECT_EQ(Accumulated(events), events.back()["response"]["output"]);
  }
}

// Many of them may show nothing for long, and wait in pieces of their own.
TEST_F(ResponsesFormatTest, WhatFollowsSaysWhoseLogprobsWaitingOnesAre) {
  const auto with = [](TextPiece piece, int token) {
    piece.tokens = {{.token = TokenId{token}, .logprob = -0.5f}};
    return piece;
  };
  const std::vector<TextPiece> text = {with({}, 0),
                                       with({}, 1),
                                       with(Text("a"), 2),
                                       with({}, 3),
                                       with(Call("f", "{}"), 0),
                                       with(Text("b"), 1),
                                       End(FinishReason::kStop)};
  const json whole = Whole(text, true);
  const json& first = whole["output"][0]["content"][0]["logprobs"];
  ASSERT_EQ(first.size(), 3u) << "those that waited for the text, and no call's";
  EXPECT_EQ(first[0]["bytes"], json::parse("[97]"));
  EXPECT_EQ(whole["output"][2]["content"][0]["logprobs"].size(), 1u);
  const std::vector<json> events = Events(Stream(text, true));
  EXPECT_EQ(Accumulated(events), events.back()["response"]["output"]);
  EXPECT_EQ(events.back()["response"]["output"][0]["content"], whole["output"][0]["content"]);
}

TEST_F(ResponsesFormatTest, TokensHaveTheirLogprobsWhereTheyAreShown) {
  TextPiece first = Text("a");
  first.tokens = {{.token = TokenId{0}, .logprob = -0.5f, .top = {{TokenId{1}, -1.5f, 2}}}};
  TextPiece end = End(FinishReason::kStop);
  end.tokens = {{.token = TokenId{2}, .logprob = -2.5f}};
  end.end_token = {.token = TokenId{4}, .logprob = -3.5f, .shown = false};
  TextPiece call = Call("f", "{}");
  call.tokens = {{.token = TokenId{3}, .logprob = -4.5f}};
  const std::vector<TextPiece> text = {first, end};
  const json expected = json::parse(R"([{"token":"a","logprob":-0.5,"bytes":[97],
      "top_logprobs":[{"token":"b","logprob":-1.5,"bytes":[98]}]},
      {"token":"bytes:\\xe2","logprob":-2.5,"bytes":[226],"top_logprobs":[]}])");
  EXPECT_EQ(Whole(text, true)["output"][0]["content"][0]["logprobs"], expected);
  const std::vector<json> events = Events(Stream(text, true));
  EXPECT_EQ(Accumulated(events), events.back()["response"]["output"]);
  EXPECT_EQ(events.back()["response"]["output"][0]["content"][0]["logprobs"], expected);
  // A call has no place for them, and nothing is told that was not asked for.
  const json with_call = Whole({first, call, end}, true);
  EXPECT_EQ(with_call["output"][0]["content"][0]["logprobs"].size(), 1u);
  EXPECT_EQ(with_call["output"].size(), 2u);
  EXPECT_EQ(Whole({first}, false)["output"][0]["content"][0]["logprobs"], json::array());
}

TEST_F(ResponsesFormatTest, AThoughtIsAnItemInFront) {
  const std::vector<TextPiece> pieces = {Thought("Let"), Thought(" me"), Text("Paris"),
                                         End(FinishReason::kStop)};
  EXPECT_EQ(
      Types(Events(Stream(pieces))),
      (std::vector<std::string>{
          "response.created", "response.in_progress", "response.output_item.added",
          "response.content_part.added", "response.reasoning_text.delta",
          "response.reasoning_text.delta", "response.reasoning_text.done",
          "response.content_part.done", "response.output_item.done", "response.output_item.added",
          "response.content_part.added", "response.output_text.delta", "response.output_text.done",
          "response.content_part.done", "response.output_item.done", "response.completed"}));
  const json items = json::parse(R"([{"id":"rs_1","type":"reasoning","status":"completed",
      "summary":[],"content":[{"type":"reasoning_text","text":"Let me"}]},
      {"id":"msg_2","type":"message","status":"completed","role":"assistant",
      "content":[{"type":"output_text","text":"Paris","annotations":[],"logprobs":[]}]}])");
  ExpectBoth(pieces, items);
  // One token may end the thought and begin the text.
  ExpectBoth(
      {Thought("Let"), {.reasoning = " me", .text = "Par"}, Text("is"), End(FinishReason::kStop)},
      items);
}

TEST_F(ResponsesFormatTest, CallsMayFollowAThoughtAtOnce) {
  ExpectBoth({Thought("a"), Call("f", "{}"), End(FinishReason::kStop, /*called=*/true)},
             json::parse(R"([{"id":"rs_1","type":"reasoning","status":"completed","summary":[],
      "content":[{"type":"reasoning_text","text":"a"}]},
      {"id":"fc_2","type":"function_call","status":"completed","call_id":"call_3","name":"f",
       "arguments":"{}"}])"));
}

// No message follows in which there would be nothing.
TEST_F(ResponsesFormatTest, AThoughtThatTheLimitCutIsIncompleteAndAllThereIs) {
  json item = json::parse(R"([{"id":"rs_1","type":"reasoning","status":"incomplete","summary":[],
      "content":[{"type":"reasoning_text","text":"a"}]}])");
  TextPiece end = End(FinishReason::kLength);
  end.thinks = true;
  ExpectBoth({Thought("a"), end}, item, "incomplete");
  // The limit may come behind it.
  item[0]["status"] = "completed";
  ExpectBoth({Thought("a"), End(FinishReason::kLength)}, item, "incomplete");
  // Nothing cut it.
  end.finish = FinishReason::kStop;
  ExpectBoth({Thought("a"), end}, item, "completed");
}

// An item of reasoning has no place for them.
TEST_F(ResponsesFormatTest, TokensOfAThoughtHaveNoLogprobs) {
  const auto token = [](int32_t id) {
    return TokenDetails{.token = TokenId{id}, .logprob = -1.0f};
  };
  TextPiece thought = Thought("a");
  thought.tokens = {token(0)};
  thought.thought_tokens = 1;
  TextPiece text = Text("bc");
  text.tokens = {token(0), token(1), token(3)};  // the first is its closing tag
  text.thought_tokens = 1;
  TextPiece end = End(FinishReason::kStop);
  end.tokens = {token(3)};
  const json output = Whole({thought, text, end}, true)["output"];
  std::string names;
  for (const json& told : output[1]["content"][0]["logprobs"]) {
    names += told["token"].get<std::string>();
  }
  EXPECT_EQ(names, "bcc");
  EXPECT_EQ(output[0]["content"], json::parse(R"([{"type":"reasoning_text","text":"a"}])"));
  const std::vector<json> events = Events(WithoutIds(Stream({thought, text, end}, true)));
  EXPECT_EQ(Accumulated(events), output);
  // Behind a thought that is left out they open no message.
  thought.reasoning.clear();
  thought.tokens.push_back(token(1));
  EXPECT_EQ(Events(Stream({thought}, true)).size(), 3u);
}

TEST_F(ResponsesFormatTest, UsageTellsTheTokensOfTheThought) {
  ResponsesFormat format = Format();
  format.SetReasoningTokens(3);
  format.Keep(0, End(FinishReason::kStop));
  json whole = json::parse(format.TakeWhole({{}}, kUsage));
  EXPECT_EQ(whole["usage"]["output_tokens_details"], json::parse(R"({"reasoning_tokens":3})"));
}

TEST_F(ResponsesFormatTest, AFailureIsAnErrorAndAFailedResponse) {
  ResponsesFormat format = Format();
  TextPiece piece = Text("He");
  std::string text;
  format.AppendEvents(0, piece, {}, std::nullopt, &text);
  format.AppendFailure({.http_status = 500,
                        .type = "server_error",
                        .message = "broken \xff",
                        .param = {},
                        .code = "internal_error"},
                       kUsage, &text);
  const std::vector<json> events = Events(text);
  ASSERT_EQ(events.size(), 7u);
  EXPECT_EQ(events[5], json::parse(R"({"type":"error","code":"internal_error",
      "message":"broken \ufffd","param":null,"sequence_number":5,"error":{
      "message":"broken \ufffd","type":"server_error","param":null,"code":"internal_error"}})"));
  const json& response = events[6]["response"];
  EXPECT_EQ(events[6]["type"], "response.failed");
  EXPECT_EQ(response["status"], "failed");
  EXPECT_EQ(response["error"], json::parse(R"({"code":"server_error","message":"broken \ufffd"})"));
  EXPECT_EQ(response["output"], json::array());  // of whatever length
}

// Behind a ping alone there is no response that could fail.
TEST_F(ResponsesFormatTest, AFailureBeforeTheFirstEventIsAnErrorAlone) {
  ResponsesFormat format = Format();
  std::string text;
  format.AppendFailure({.http_status = 400, .type = "t", .message = "m", .param = "input"}, {},
                       &text);
  EXPECT_EQ(Types(Events(text)), std::vector<std::string>{"error"});
  EXPECT_EQ(Events(text)[0]["param"], "input");
}

// Readers that split lines as Python's str.splitlines does would cut an event there.
TEST_F(ResponsesFormatTest, LineEndsAreEscaped) {
  const std::string text =
      Stream({Text("a\u2028b\n"), Call("f", "\u0085"), End(FinishReason::kStop)});
  EXPECT_EQ(text.find("\u2028"), std::string::npos);
  EXPECT_EQ(text.find("\u0085"), std::string::npos);
  EXPECT_EQ(Events(text).back()["response"]["output"][0]["content"][0]["text"], "a\u2028b\n");
}

}  // namespace
}  // namespace refrain::server::openai
