// What a model thinks, apart from its answers, over HTTP. The engine says what the user says, one
// token per byte, unless it is told what to say.

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/server/openai/service_fixture.h"

namespace refrain::server::openai {
namespace {

// As Qwen3's: the model opens its thought itself, unless it is not to think.
constexpr char kMayThink[] =
    "{% for m in messages %}{{ m.role }}:{{ m.content.split('</think>')[-1] }}\n{% endfor %}"
    "{% if tools %}<tool_call>{{ tools }}{% endif %}"
    "{% if add_generation_prompt %}assistant:"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
    "{% endif %}";
// As those of DeepSeek's distillates.
constexpr char kThinks[] =
    "{% for m in messages %}{{ m.role }}:{{ m.content.split('</think>')[-1] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:<think>\n{% endif %}";

constexpr char kSaid[] = "<think>\nLet me see.\n</think>\n\nParis.";
constexpr int kThoughtTokens = 28;  // up to the end of the closing tag

json Chat(std::string_view said, json members = json::object()) {
  json body = {{"messages", {{{"role", "user"}, {"content", said}}}}};
  body.update(members);
  return body;
}

class ReasoningAnswersTest : public ServiceTest {
 protected:
  // One token per byte of what the user says, or of `says`.
  void StartWith(std::string chat_template, std::string says = "") {
    FakeEngineOptions options;
    options.chat_template = std::move(chat_template);
    options.says = std::move(says);
    Start(std::move(options));
  }

  json Whole(const json& body) {
    const RawResponse response = Post(kChat, body);
    EXPECT_EQ(response.status, 200) << response.body;
    return json::parse(response.body);
  }
  json Message(const json& body) { return Whole(body)["choices"][0]["message"]; }

  // What the deltas say together, as clients join them, and how many of them say something.
  struct Streamed {
    std::string reasoning, content;
    int reasoning_events = 0, content_events = 0, empty_events = 0;
    json last_usage;
  };
  Streamed Stream(json body) {
    body["stream_options"] = {{"include_usage", true}};
    Streamed streamed;
    for (const json& event : Events(StreamText(kChat, body))) {
      if (event.contains("usage") && !event["usage"].is_null())
        streamed.last_usage = event["usage"];
      if (event["choices"].empty()) continue;
      const json& delta = event["choices"][0]["delta"];
      if (delta.contains("reasoning_content")) {
        EXPECT_EQ(streamed.content, "") << "a thought behind the answer";
        streamed.reasoning += delta["reasoning_content"].get<std::string>();
        ++streamed.reasoning_events;
      }
      if (delta.contains("content") && !delta["content"].is_null()) {
        streamed.content += delta["content"].get<std::string>();
        ++streamed.content_events;
      }
      if (!delta.contains("content") && !delta.contains("reasoning_content")) {
        ++streamed.empty_events;
      }
    }
    return streamed;
  }

  // Thought and answer, with a bar between, of a message that is continued; streamed as whole.
  std::string Continued(const char* begun, bool echo) {
    const json body = {{"messages", {{{"role", "assistant"}, {"content", begun}}}},
                       {"continue_final_message", true},
                       {"echo", echo}};
    const json message = Message(body);
    const Streamed streamed = Stream(body);
    EXPECT_EQ(streamed.content, message["content"]);
    EXPECT_EQ(streamed.reasoning, message.value("reasoning_content", ""));
    return streamed.reasoning + "|" + streamed.content;
  }
};

TEST_F(ReasoningAnswersTest, AThoughtIsApartFromTheAnswer) {
  StartWith(kMayThink);
  const json body = Whole(Chat(kSaid));
  EXPECT_EQ(body["choices"][0]["message"], json({{"role", "assistant"},
                                                 {"content", "Paris."},
                                                 {"refusal", nullptr},
                                                 {"reasoning_content", "Let me see."}}));
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(body["usage"]["completion_tokens_details"],
            json({{"reasoning_tokens", kThoughtTokens}}));
  EXPECT_EQ(body["usage"]["completion_tokens"], sizeof(kSaid) - 1);
}

TEST_F(ReasoningAnswersTest, AStreamTellsTheSame) {
  StartWith(kMayThink);
  const Streamed streamed = Stream(Chat(kSaid));
  EXPECT_EQ(streamed.reasoning, "Let me see.");
  EXPECT_EQ(streamed.content, "Paris.");
  EXPECT_GT(streamed.reasoning_events, 5);
  EXPECT_GT(streamed.content_events, 3);
  EXPECT_EQ(streamed.last_usage["completion_tokens_details"]["reasoning_tokens"], kThoughtTokens);

  const std::vector<json> events = Events(StreamText(kChat, Chat(kSaid)));
  EXPECT_EQ(events[0]["choices"][0]["delta"],
            json({{"role", "assistant"}, {"reasoning_content", "L"}}));
  EXPECT_EQ(events[1]["choices"][0]["delta"], json({{"reasoning_content", "e"}}));
}

TEST_F(ReasoningAnswersTest, APromptMayOpenTheThought) {
  StartWith(kThinks);
  const char* const said = "Let me see.\n</think>\n\nParis.";
  const json body = Whole(Chat(said));
  EXPECT_EQ(body["choices"][0]["message"]["reasoning_content"], "Let me see.");
  EXPECT_EQ(body["choices"][0]["message"]["content"], "Paris.");
  EXPECT_EQ(body["usage"]["completion_tokens_details"]["reasoning_tokens"], kThoughtTokens - 8);
  const Streamed streamed = Stream(Chat(said));
  EXPECT_EQ(streamed.reasoning, "Let me see.");
  EXPECT_EQ(streamed.content, "Paris.");
  // Models that repeat the tag.
  EXPECT_EQ(Message(Chat(kSaid))["reasoning_content"], "Let me see.");
}

// By each request's own variables.
TEST_F(ReasoningAnswersTest, APromptMayCloseTheThought) {
  StartWith(kMayThink);
  for (const json& off : {json({{"reasoning_effort", "none"}}),
                          json({{"chat_template_kwargs", {{"enable_thinking", false}}}})}) {
    const json body = Whole(Chat(kSaid, off));
    EXPECT_EQ(body["choices"][0]["message"]["content"], kSaid);
    EXPECT_FALSE(body["choices"][0]["message"].contains("reasoning_content"));
    EXPECT_EQ(body["usage"]["completion_tokens_details"]["reasoning_tokens"], 0);
    EXPECT_EQ(Stream(Chat(kSaid, off)).content, kSaid);
  }
}

TEST_F(ReasoningAnswersTest, AnAnswerWithoutAThoughtIsAsItWas) {
  StartWith(kMayThink);
  const char* const said = "\nParis, <think>so</think>";
  const json body = Whole(Chat(said));
  EXPECT_EQ(body["choices"][0]["message"]["content"], said);
  EXPECT_FALSE(body["choices"][0]["message"].contains("reasoning_content"));
  EXPECT_EQ(body["usage"]["completion_tokens_details"]["reasoning_tokens"], 0);
  EXPECT_EQ(Stream(Chat(said)).content, said);
}

TEST_F(ReasoningAnswersTest, ATemplateWithoutThoughtsTellsOfNone) {
  StartWith("{{ messages[-1].content }}");
  const json body = Whole(Chat(kSaid));
  EXPECT_EQ(body["choices"][0]["message"]["content"], kSaid);
  EXPECT_FALSE(body["usage"].contains("completion_tokens_details"));
}

TEST_F(ReasoningAnswersTest, CompletionsTellOfNone) {
  StartWith(kThinks);
  const json body = json::parse(Post(kCompletions, {{"prompt", kSaid}, {"max_tokens", 99}}).body);
  EXPECT_EQ(body["choices"][0]["text"], kSaid);
  EXPECT_FALSE(body["usage"].contains("completion_tokens_details"));
}

// The limit comes within the thought: there is no answer.
TEST_F(ReasoningAnswersTest, AThoughtThatIsCutIsAllThereIs) {
  StartWith(kMayThink);
  const json cut = Chat(kSaid, {{"max_tokens", 14}});
  const json choice = Whole(cut)["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(choice["message"]["reasoning_content"], "Let me");
  EXPECT_EQ(choice["message"]["content"], "");
  const Streamed streamed = Stream(cut);
  EXPECT_EQ(streamed.reasoning, "Let me");
  EXPECT_EQ(streamed.content_events, 0);
  EXPECT_EQ(streamed.last_usage["completion_tokens_details"]["reasoning_tokens"], 14);
  // Within the tag, which is no thought yet.
  EXPECT_EQ(Message(Chat(kSaid, {{"max_tokens", 4}}))["content"], "<thi");
}

// They work on all that is generated.
TEST_F(ReasoningAnswersTest, AStopStringEndsAThought) {
  StartWith(kMayThink);
  const json stopped = Chat(kSaid, {{"stop", " see"}, {"return_token_ids", true}});
  const json body = Whole(stopped);
  const json& choice = body["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["stop_reason"], " see");
  EXPECT_EQ(choice["message"]["reasoning_content"], "Let me");
  EXPECT_EQ(choice["message"]["content"], "");
  EXPECT_EQ(choice["token_ids"].size(), 18u);
  EXPECT_EQ(body["usage"]["completion_tokens_details"]["reasoning_tokens"], 18);
  EXPECT_EQ(Message(Chat(kSaid, {{"stop", "</think>"}}))["reasoning_content"], "Let me see.\n");
}

TEST_F(ReasoningAnswersTest, AThoughtMayBeLeftOut) {
  StartWith(kMayThink);
  const json without = Chat(kSaid, {{"include_reasoning", false}});
  const json body = Whole(without);
  EXPECT_EQ(body["choices"][0]["message"],
            json({{"role", "assistant"}, {"content", "Paris."}, {"refusal", nullptr}}));
  EXPECT_EQ(body["usage"]["completion_tokens_details"]["reasoning_tokens"], kThoughtTokens);
  const Streamed streamed = Stream(without);
  EXPECT_EQ(streamed.content, "Paris.");
  EXPECT_EQ(streamed.reasoning_events, 0);
  EXPECT_EQ(streamed.empty_events, 1);  // with the end
  EXPECT_EQ(streamed.last_usage["completion_tokens_details"]["reasoning_tokens"], kThoughtTokens);
  EXPECT_EQ(Events(StreamText(kChat, without))[0]["choices"][0]["delta"],
            json({{"role", "assistant"}, {"content", "P"}}));
  const RawResponse refused = Post(kChat, Chat(kSaid, {{"include_reasoning", "no"}}));
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(json::parse(refused.body)["error"]["param"], "include_reasoning");
}

// Of all that was generated, whether it is shown or not, whole and streamed.
TEST_F(ReasoningAnswersTest, TokenIdsAndLogprobsAreOfTheThoughtToo) {
  StartWith(kMayThink);
  for (const bool include : {true, false}) {
    json request = Chat(
        kSaid, {{"include_reasoning", include}, {"logprobs", true}, {"return_token_ids", true}});
    const size_t tokens = sizeof(kSaid) - 1;
    const json choice = Whole(request)["choices"][0];
    EXPECT_EQ(choice["token_ids"].size(), tokens + 1);  // the end token
    EXPECT_EQ(choice["logprobs"]["content"].size(), tokens);
    EXPECT_EQ(choice["logprobs"]["content"][0]["token"], "<");
    size_t ids = 0, logprobs = 0, most = 0;
    std::string reasoning;
    for (const json& event : Events(StreamText(kChat, request))) {
      const json& streamed = event["choices"][0];
      ids += streamed["token_ids"].size();
      most = std::max(most, streamed["token_ids"].size());
      if (streamed["logprobs"].is_object()) logprobs += streamed["logprobs"]["content"].size();
      if (streamed["delta"].contains("reasoning_content")) {
        reasoning += streamed["delta"]["reasoning_content"].get<std::string>();
      }
    }
    EXPECT_EQ(ids, tokens + 1);
    EXPECT_EQ(logprobs, tokens);
    EXPECT_LE(most, 12u) << "they wait for the end of the thought";
    EXPECT_EQ(reasoning, include ? "Let me see." : "");
  }
}

constexpr char kCall[] = R"(<tool_call>{"name":"f","arguments":{}}</tool_call>)";

// A call that the model thinks of is not made.
TEST_F(ReasoningAnswersTest, CallsAreLookedForBehindTheThoughtAlone) {
  StartWith(kMayThink);
  const json tools = {{{"type", "function"}, {"function", {{"name", "f"}}}}};
  const std::string thought = std::string("I say ") + kCall;
  const std::string said = "<think>" + thought + "</think>\n" + kCall;
  const json choice = Whole(Chat(said, {{"tools", tools}}))["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["reasoning_content"], thought);
  EXPECT_EQ(choice["message"]["content"], nullptr);
  EXPECT_EQ(choice["message"]["tool_calls"].size(), 1u);
  const json none = Whole(Chat("<think>" + thought, {{"tools", tools}}))["choices"][0];
  EXPECT_EQ(none["finish_reason"], "stop");
  EXPECT_EQ(none["message"]["reasoning_content"], thought);
  EXPECT_FALSE(none["message"].contains("tool_calls"));

  std::string reasoning;
  int calls = 0;
  for (const json& event : Events(StreamText(kChat, Chat(said, {{"tools", tools}})))) {
    const json& delta = event["choices"][0]["delta"];
    if (delta.contains("reasoning_content")) {
      reasoning += delta["reasoning_content"].get<std::string>();
    }
    if (delta.contains("tool_calls") && delta["tool_calls"][0].contains("id")) ++calls;
    EXPECT_FALSE(delta.contains("content")) << delta;
  }
  EXPECT_EQ(reasoning, thought);
  EXPECT_EQ(calls, 1);
}

TEST_F(ReasoningAnswersTest, EachOfSeveralChoicesHasItsOwn) {
  StartWith(kMayThink);
  const json body = Whole(Chat("<think>a</think>b", {{"n", 3}}));
  for (size_t i = 0; i < 3; ++i) {
    const json& message = body["choices"][i]["message"];
    EXPECT_EQ(message["reasoning_content"], "a");
    EXPECT_EQ(message["content"], i == 0 ? "b" : "b #" + std::to_string(i));
  }
  EXPECT_EQ(body["usage"]["completion_tokens_details"]["reasoning_tokens"], 3 * 16);
}

TEST_F(ReasoningAnswersTest, UsageInEachEventTellsOfThoughtsSoFar) {
  StartWith(kMayThink);
  const json request = Chat(
      kSaid, {{"stream_options", {{"include_usage", true}, {"continuous_usage_stats", true}}}});
  int last = 0;
  for (const json& event : Events(StreamText(kChat, request))) {
    const json& usage = event["usage"];
    const int tokens = usage["completion_tokens_details"]["reasoning_tokens"];
    EXPECT_GE(tokens, last);
    EXPECT_LE(tokens, usage["completion_tokens"].get<int>());
    last = tokens;
  }
  EXPECT_EQ(last, kThoughtTokens);
}

// A message that is continued: within its thought, or behind it; `echo` shows it as it is answered.
TEST_F(ReasoningAnswersTest, AMessageIsContinuedWhereItEnds) {
  StartWith("{% for m in messages %}{{ m.role }}:{{ m.content }}\n{% endfor %}{# </think> #}");
  const auto continued = [&](const char* begun) { return Continued(begun, /*echo=*/true); };
  // The engine repeats the message.
  EXPECT_EQ(continued("<think>a"), "a<think>a|");
  EXPECT_EQ(continued("<think>"), "|");
  EXPECT_EQ(continued("<think>a</think> b"), "a|b<think>a</think> b");
  EXPECT_EQ(continued("b"), "|bb");
  EXPECT_EQ(continued("b <think>"), "|b <think>b <think>");
}

constexpr char kShowsAll[] =
    "{% for m in messages %}{{ m.role }}:{{ m.content }}\n{% endfor %}{# </think> #}";

// Lines that follow are of the thought, and not of its tag.
TEST_F(ReasoningAnswersTest, AThoughtGoesOnInItsMiddle) {
  StartWith(kShowsAll, "\nStep 2.\n</think>\n\nParis.");
  EXPECT_EQ(Continued("<think>\nStep 1.", false), "\nStep 2.|Paris.");
  EXPECT_EQ(Continued("<think>\nStep 1.", true), "Step 1.\nStep 2.|Paris.");
  EXPECT_EQ(Continued("<think>\n", true), "Step 2.|Paris.");
}

TEST_F(ReasoningAnswersTest, AThoughtIsClosedByTheRestOfItsTag) {
  StartWith(kShowsAll, "k>\n\nParis.");
  EXPECT_EQ(Continued("<think>a</thin", false), "|Paris.");
  EXPECT_EQ(Continued("<think>a</thi", false), "k>\n\nParis.|");
}

// In front of the message's words, or of words of its own.
TEST_F(ReasoningAnswersTest, ATemplateMayPutWordsBehindItsTag) {
  StartWith(
      "{% if messages[-1].role == 'user' %}assistant:<think>\nOkay,"
      "{% else %}assistant:<think>\n{{ messages[-1].content }}{% endif %}{# </think> #}",
      " so.\n</think>\nParis.");
  EXPECT_EQ(Continued("Okay,", false), " so.|Paris.");
  EXPECT_EQ(Continued("Okay,", true), "Okay, so.|Paris.");
  const json message = Message(Chat("Hi"));
  EXPECT_EQ(message["reasoning_content"], " so.");
  EXPECT_EQ(message["content"], "Paris.");
}

}  // namespace
}  // namespace refrain::server::openai
