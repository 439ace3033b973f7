// What a model thinks, as an item of its own in answers of /v1/responses. The engine says what the
// user says, one token per byte.

#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "engine/chat_prompt.h"
#include "tests/server/openai/service_fixture.h"

namespace refrain::server::openai {
namespace {

constexpr char kResponses[] = "/v1/responses";

// The model opens its thought itself; templates show an assistant's thought again.
constexpr char kMayThink[] =
    "{% for m in messages %}{{ m.role }}:"
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
    "{{ m.content }}\n{% endfor %}"
    "{% if tools %}<tool_call>{{ tools }}{% endif %}";

constexpr char kSaid[] = "<think>\nLet me see.\n</think>\n\nParis.";
constexpr int kThoughtTokens = 28;  // up to the end of the closing tag

json Asked(std::string_view said, json members = json::object()) {
  json body = {{"input", said}};
  body.update(members);
  return body;
}

class ResponsesReasoningTest : public ServiceTest {
 protected:
  void StartWith(std::string chat_template) {
    FakeEngineOptions options;
    options.chat_template = std::move(chat_template);
    Start(std::move(options));
  }

  json Whole(const json& body) {
    const RawResponse response = Post(kResponses, body);
    EXPECT_EQ(response.status, 200) << response.body;
    return json::parse(response.body);
  }

  struct Streamed {
    std::string reasoning, text;
    int reasoning_deltas = 0;
    json response;  // of the last event
  };
  Streamed Stream(json body) {
    body["stream"] = true;
    const std::string text = Post(kResponses, body).body;
    Streamed streamed;
    for (size_t at = 0; (at = text.find("\ndata: ", at)) != std::string::npos;) {
      at += 7;
      const json event = json::parse(text.substr(at, text.find("\n\n", at) - at));
      if (event["type"] == "response.reasoning_text.delta") {
        EXPECT_EQ(event["output_index"], 0);
        streamed.reasoning += event["delta"].get<std::string>();
        ++streamed.reasoning_deltas;
      } else if (event["type"] == "response.output_text.delta") {
        streamed.text += event["delta"].get<std::string>();
      } else if (event.contains("response")) {
        streamed.response = event["response"];
      }
    }
    return streamed;
  }

  // The items of an answer without their ids.
  static json WithoutIds(json response) {
    for (json& item : response["output"]) EXPECT_EQ(item.erase("id"), 1u);
    return response["output"];
  }
};

TEST_F(ResponsesReasoningTest, AThoughtIsAnItemOfItsOwn) {
  StartWith(kMayThink);
  const json body = Whole(Asked(kSaid));
  const json output = WithoutIds(body);
  EXPECT_EQ(output, json::parse(R"([{"type":"reasoning","status":"completed","summary":[],
      "content":[{"type":"reasoning_text","text":"Let me see."}]},
      {"type":"message","status":"completed","role":"assistant","content":[
      {"type":"output_text","text":"Paris.","annotations":[],"logprobs":[]}]}])"));
  EXPECT_TRUE(body["output"][0]["id"].get<std::string>().starts_with("rs_"));
  EXPECT_EQ(body["usage"]["output_tokens_details"]["reasoning_tokens"], kThoughtTokens);
  EXPECT_EQ(body["usage"]["output_tokens"], sizeof(kSaid) - 1);

  const Streamed streamed = Stream(Asked(kSaid));
  EXPECT_EQ(streamed.reasoning, "Let me see.");
  EXPECT_GT(streamed.reasoning_deltas, 5);
  EXPECT_EQ(streamed.text, "Paris.");
  EXPECT_EQ(WithoutIds(streamed.response), output);
  EXPECT_EQ(streamed.response["usage"]["output_tokens_details"]["reasoning_tokens"],
            kThoughtTokens);
}

TEST_F(ResponsesReasoningTest, ATemplateWithoutThoughtsLeavesThemInTheText) {
  StartWith("{{ messages[-1].content }}");
  const json body = Whole(Asked(kSaid));
  ASSERT_EQ(body["output"].size(), 1u);
  EXPECT_EQ(body["output"][0]["content"][0]["text"], kSaid);
  EXPECT_EQ(body["usage"]["output_tokens_details"]["reasoning_tokens"], 0);
  EXPECT_EQ(Stream(Asked(kSaid)).text, kSaid);
}

TEST_F(ResponsesReasoningTest, AThoughtThatIsCutIsAllThereIs) {
  StartWith(kMayThink);
  const json expected = json::parse(R"([{"type":"reasoning","status":"incomplete","summary":[],
      "content":[{"type":"reasoning_text","text":"Let me"}]}])");
  const json cut = Asked(kSaid, {{"max_output_tokens", 14}});
  const json body = Whole(cut);
  EXPECT_EQ(body["status"], "incomplete");
  EXPECT_EQ(WithoutIds(body), expected);
  EXPECT_EQ(body["usage"]["output_tokens_details"]["reasoning_tokens"], 14);
  EXPECT_EQ(WithoutIds(Stream(cut).response), expected);
  // Right behind it, and within a tag that is not one yet.
  json ended = Whole(Asked(kSaid, {{"max_output_tokens", kThoughtTokens}}));
  ASSERT_EQ(ended["output"].size(), 1u);
  EXPECT_EQ(ended["output"][0]["status"], "completed");
  EXPECT_EQ(ended["status"], "incomplete");
  EXPECT_EQ(Whole(Asked(kSaid, {{"max_output_tokens", 4}}))["output"][0]["content"][0]["text"],
            "<thi");
  // By a stop string.
  const json stopped = Whole(Asked(kSaid, {{"stop", " see"}}));
  EXPECT_EQ(stopped["status"], "completed");
  EXPECT_EQ(stopped["output"][0]["status"], "completed");
  EXPECT_EQ(stopped["output"][0]["content"][0]["text"], "Let me");
}

TEST_F(ResponsesReasoningTest, AThoughtMayBeLeftOut) {
  StartWith(kMayThink);
  const json without = Asked(kSaid, {{"include_reasoning", false}});
  const json body = Whole(without);
  ASSERT_EQ(body["output"].size(), 1u);
  EXPECT_EQ(body["output"][0]["content"][0]["text"], "Paris.");
  EXPECT_EQ(body["usage"]["output_tokens_details"]["reasoning_tokens"], kThoughtTokens);
  EXPECT_EQ(Stream(without).response["output"].size(), 1u);
  EXPECT_EQ(Post(kResponses, Asked("hi", {{"include_reasoning", "no"}})).status, 400);
}

// Of the thought and its tags there are none, and of the white space behind it there are.
TEST_F(ResponsesReasoningTest, LogprobsAreOfTheMessageAlone) {
  StartWith(kMayThink);
  for (const bool include : {true, false}) {
    json request = Asked(
        kSaid, {{"include", {"message.output_text.logprobs"}}, {"include_reasoning", include}});
    for (const json& body : {Whole(request), Stream(request).response}) {
      ASSERT_EQ(body["output"].size(), include ? 2u : 1u);
      std::string names;
      for (const json& token : body["output"].back()["content"][0]["logprobs"]) {
        names += token["token"].get<std::string>();
      }
      EXPECT_EQ(names, "\n\nParis.");
    }
  }
  // A tag that was none is text.
  const json body = Whole(Asked("<thin", {{"include", {"message.output_text.logprobs"}}}));
  EXPECT_EQ(body["output"][0]["content"][0]["logprobs"].size(), 5u);
  // What a stop string hides is no token of any item.
  const json stopped =
      Whole(Asked(kSaid, {{"stop", "is."}, {"include", {"message.output_text.logprobs"}}}));
  EXPECT_EQ(stopped["output"][1]["content"][0]["logprobs"].size(), 5u);
}

TEST_F(ResponsesReasoningTest, CallsAreLookedForBehindTheThoughtAlone) {
  StartWith(kMayThink);
  const std::string call = R"(<tool_call>{"name":"f","arguments":{}}</tool_call>)";
  const json request = Asked("<think>I say " + call + "</think>\n" + call,
                             {{"tools", {{{"type", "function"}, {"name", "f"}}}}});
  for (const json& body : {Whole(request), Stream(request).response}) {
    ASSERT_EQ(body["output"].size(), 2u);
    EXPECT_EQ(body["output"][0]["type"], "reasoning");
    EXPECT_EQ(body["output"][0]["content"][0]["text"], "I say " + call);
    EXPECT_EQ(body["output"][1]["type"], "function_call");
  }
}

// As it came, with all of its members.
TEST_F(ResponsesReasoningTest, ItsItemsMakeARoundTrip) {
  StartWith(kMayThink);
  const json first = Whole(Asked(kSaid));
  json input = {{{"role", "user"}, {"content", kSaid}}};
  for (const json& item : first["output"]) input.push_back(item);
  input.push_back({{"role", "user"}, {"content", "Thanks."}});
  const json second = Whole({{"input", input}});
  EXPECT_EQ(second["output"].back()["content"][0]["text"], "Thanks.");
  const engine::Request sent = engine_->last_request();
  const auto shown = engine::RenderChatPrompt(*engine_->chat_template(),
                                              std::get<engine::ChatPrompt>(sent.prompt));
  ASSERT_TRUE(shown.ok()) << shown.status();
  EXPECT_EQ(shown->text, "user:" + std::string(kSaid) +
                             "\nassistant:<think>Let me see.</think>Paris.\nuser:Thanks.\n");
}

}  // namespace
}  // namespace refrain::server::openai
