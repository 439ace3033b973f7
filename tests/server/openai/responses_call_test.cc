// What the body of /v1/responses becomes: the request of the chat that it is.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

#include "engine/chat_prompt.h"
#include "engine/text/chat_template.h"
#include "server/concat.h"
#include "server/openai/protocol.h"
#include "server/status_mapping.h"

namespace refrain::server::openai {
namespace {

// Wrong requests are in tests/data/http-bad-requests (bad_requests_test.cc), those of one item in
// responses_input_test.cc.

ModelLimits Limits() {
  ModelLimits limits = {.served_name = "m",
                        .vocab_size = 258,
                        .max_context_tokens = 4096,
                        .max_choices = 8,
                        .tools = engine::ToolFormat::kHermes};
  limits.sampling.temperature = 0.5;
  limits.sampling.top_p = 0.75;
  return limits;
}

absl::StatusOr<GenerationCall> Parse(const std::string& members,
                                     const ModelLimits& limits = Limits()) {
  return ParseGenerationCall(Endpoint::kResponses, R"({"input":"hi")" + members + "}", limits);
}

GenerationCall Call(const std::string& members) {
  auto call = Parse(members);
  EXPECT_TRUE(call.ok()) << call.status() << members;
  if (!call.ok()) return {.requests = {{}}};
  EXPECT_EQ(call->requests.size(), 1u);
  EXPECT_EQ(call->endpoint, Endpoint::kResponses);
  return *std::move(call);
}

const engine::ChatTemplateInput& Input(const GenerationCall& call) {
  return std::get<engine::ChatPrompt>(call.first().prompt).input;
}

template <typename Items>
auto List(const Items& items) {
  EXPECT_GT(items.size(), 0u);
  return std::vector(items.begin(), items.end());
}

// All that a template sees.
std::string Prompt(const GenerationCall& call) {
  const auto chat_template = engine::ChatTemplate::Create(
      "{{ messages | tojson }}{% if tools %}{{ tools | tojson }}{% endif %}"
      "{{ documents | tojson if documents }}{{ x }}{{ reasoning_effort }}{{ enable_thinking }}",
      "", "");
  EXPECT_TRUE(chat_template.ok()) << chat_template.status();
  const auto rendered =
      engine::RenderChatPrompt(**chat_template, std::get<engine::ChatPrompt>(call.first().prompt));
  EXPECT_TRUE(rendered.ok()) << rendered.status();
  return rendered.ok() ? rendered->text : "";
}

nlohmann::ordered_json Echo(const std::string& members) {
  return nlohmann::ordered_json::parse("{" + Call(members).echo + "}");
}

// One value in the words of both.
TEST(ResponsesCall, IsTheRequestOfTheSameChat) {
  const std::string both =
      R"(,"temperature":0.25,"top_p":0.5,"top_k":7,"min_p":0.1,"repetition_penalty":1.5,
          "presence_penalty":1,"frequency_penalty":-1,"seed":5,"logit_bias":{"5":1},
          "allowed_token_ids":[1,2],"bad_words":["x"],"stop":["a"],"stop_token_ids":[9],
          "ignore_eos":true,"min_tokens":3,"include_stop_str_in_output":true,"priority":4,
          "cache_salt":"s","timeout":9,"stream":true,"skip_special_tokens":false,
          "truncate_prompt_tokens":50,"return_tokens_as_token_ids":true,"cache_report":true,
          "prompt_cache_key":"k","parallel_tool_calls":false,"chat_template_kwargs":{"x":1},
          "documents":[{"a":1}],"top_logprobs":2)";
  const std::string chat_body =
      R"({"messages":[{"role":"system","content":"i"},{"role":"user","content":"hi"}],
          "max_completion_tokens":20,"reasoning_effort":"low","logprobs":true,"tools":[
          {"type":"function","function":{"name":"f","description":"d","parameters":{"a":1},
           "strict":true}}])" +
      both + "}";
  const auto of_chat = ParseGenerationCall(Endpoint::kChatCompletions, chat_body, Limits());
  ASSERT_TRUE(of_chat.ok()) << of_chat.status();
  const GenerationCall call = Call(
      R"(,"instructions":"i","max_output_tokens":20,"reasoning":{"effort":"low"},
          "include":["message.output_text.logprobs"],"tools":[{"type":"function","name":"f",
          "description":"d","parameters":{"a":1},"strict":true}])" +
      both);
  const engine::Request& a = call.first();
  const engine::Request& b = of_chat->first();
  EXPECT_EQ(a.sampling.temperature, b.sampling.temperature);
  EXPECT_EQ(a.sampling.top_p, b.sampling.top_p);
  EXPECT_EQ(a.sampling.top_k, b.sampling.top_k);
  EXPECT_EQ(a.sampling.min_p, b.sampling.min_p);
  EXPECT_EQ(a.sampling.repetition_penalty, b.sampling.repetition_penalty);
  EXPECT_EQ(a.sampling.presence_penalty, b.sampling.presence_penalty);
  EXPECT_EQ(a.sampling.frequency_penalty, b.sampling.frequency_penalty);
  EXPECT_EQ(a.sampling.seed, b.sampling.seed);
  EXPECT_EQ(List(a.sampling.logit_bias), List(b.sampling.logit_bias));
  EXPECT_EQ(List(a.sampling.allowed_tokens), List(b.sampling.allowed_tokens));
  EXPECT_EQ(List(a.sampling.bad_words), List(b.sampling.bad_words));
  EXPECT_EQ(a.stop.max_tokens, 20);
  EXPECT_EQ(List(a.stop.stop), List(b.stop.stop));
  EXPECT_EQ(List(a.stop.stop_token_ids), List(b.stop.stop_token_ids));
  EXPECT_TRUE(a.stop.ignore_eos);
  EXPECT_EQ(a.stop.min_tokens, 3);
  EXPECT_TRUE(a.stop.include_stop_in_output);
  EXPECT_FALSE(a.stop.skip_special);
  EXPECT_EQ(a.priority, 4);
  EXPECT_EQ(a.cache_salt, "s");
  EXPECT_EQ(a.timeout_s, 9);
  EXPECT_EQ(a.keep_prompt_tokens, 50);
  EXPECT_TRUE(a.keep_cached);
  EXPECT_EQ(a.logprobs.top, 2);
  EXPECT_EQ(a.n, 1);
  EXPECT_TRUE(call.stream);
  EXPECT_EQ(call.output.logprobs, 2);
  EXPECT_TRUE(call.output.tokens_as_ids);
  EXPECT_TRUE(call.output.cache_report);
  EXPECT_FALSE(call.output.parallel_tool_calls);
  EXPECT_EQ(call.output.tools, engine::ToolFormat::kHermes);
  EXPECT_TRUE(call.ignored_fields.empty()) << call.ignored_fields.front();
  EXPECT_EQ(Prompt(call), Prompt(*of_chat));
  EXPECT_NE(Prompt(call).find("low"), std::string::npos) << Prompt(call);
}

TEST(ResponsesCall, GoesOnToTheEndOfTheContextUnlessTold) {
  EXPECT_EQ(Call("").first().stop.max_tokens, 4096);
  EXPECT_EQ(Call(R"(,"max_output_tokens":null)").first().stop.max_tokens, 4096);
  EXPECT_EQ(Call(R"(,"max_output_tokens":7)").first().stop.max_tokens, 7);
  // A warm request.
  EXPECT_TRUE(Call(R"(,"max_output_tokens":0)").first().keep_cached);
}

TEST(ResponsesCall, TellsLogprobsOnlyWhereTheyAreIncluded) {
  EXPECT_FALSE(Call(R"(,"top_logprobs":3)").output.logprobs.has_value());
  EXPECT_FALSE(Call(R"(,"include":["reasoning.encrypted_content"],"top_logprobs":3)")
                   .output.logprobs.has_value());
  EXPECT_EQ(Call(R"(,"include":["x","message.output_text.logprobs"])").output.logprobs, 0);
  EXPECT_EQ(
      Call(R"(,"include":["message.output_text.logprobs"],"top_logprobs":20)").output.logprobs, 20);
}

TEST(ResponsesCall, TruncatesOnlyOnRequest) {
  EXPECT_FALSE(Call("").first().keep_prompt_tokens.has_value());
  EXPECT_FALSE(Call(R"(,"truncation":"disabled")").first().keep_prompt_tokens.has_value());
  // As much as leaves room for the answer.
  EXPECT_EQ(Call(R"(,"truncation":"auto","max_output_tokens":96)").first().keep_prompt_tokens,
            4000);
  EXPECT_EQ(Call(R"(,"truncation":"auto")").first().keep_prompt_tokens, 4095);
  EXPECT_EQ(Call(R"(,"truncation":"auto","truncate_prompt_tokens":9)").first().keep_prompt_tokens,
            9);
}

TEST(ResponsesCall, LooksForCallsOnlyWhereToolsMayBeCalled) {
  const std::string tools = R"(,"tools":[{"type":"function","name":"f","strict":null}])";
  EXPECT_EQ(Call(tools).output.tools, engine::ToolFormat::kHermes);
  EXPECT_TRUE(Prompt(Call(tools)).ends_with(R"([{"type": "function", "function": {"name": "f"}}])"))
      << Prompt(Call(tools));
  EXPECT_EQ(Call(tools + R"(,"tool_choice":"none")").output.tools, engine::ToolFormat::kNone);
  EXPECT_FALSE(Input(Call(tools + R"(,"tool_choice":"none")")).tools.is_undefined());
  EXPECT_EQ(Call(R"(,"tools":[])").output.tools, engine::ToolFormat::kNone);
  // Without tools a call cannot be meant, as in chats.
  for (const char* const choice : {R"("required")", R"({"type":"function","name":"f"})"}) {
    EXPECT_EQ(Call(Concat(",\"tool_choice\":", choice)).output.tools, engine::ToolFormat::kNone);
  }
  ModelLimits limits = Limits();
  limits.tools = engine::ToolFormat::kNone;
  EXPECT_EQ(ApiErrorFromStatus(Parse(tools, limits).status()).param, "tools");
}

TEST(ResponsesCall, ABreakpointOfAnItemKeepsThePrompt) {
  const auto keeps = [](const std::string& item, const std::string& breakpoint) {
    const auto call = ParseGenerationCall(
        Endpoint::kResponses,
        R"({"input":[{)" + item + R"(:[{"type":"input_text","text":"a")" + breakpoint + "}]}]}",
        Limits());
    EXPECT_TRUE(call.ok()) << call.status();
    return call.ok() && call->first().keep_cached;
  };
  for (const char* const item :
       {R"("role":"user","content")", R"("type":"function_call_output","call_id":"1","output")"}) {
    EXPECT_FALSE(keeps(item, ""));
    EXPECT_TRUE(keeps(item, R"(,"prompt_cache_breakpoint":{"mode":"explicit"})"));
  }
}

TEST(ResponsesCall, TakesWhatHasNoEffect) {
  const GenerationCall call = Call(
      R"(,"store":true,"background":false,"previous_response_id":null,"conversation":null,
          "prompt":null,"service_tier":"auto","safety_identifier":"s","user":"u","metadata":{},
          "text":{"format":{"type":"text"},"verbosity":"low"},"truncation":"disabled",
          "reasoning":{"effort":null,"summary":"auto"},"stream":true,"n":1,"best_of":1,
          "use_beam_search":false,"max_tool_calls":3,"include":[],"tool_choice":"auto",
          "stream_options":{"include_obfuscation":false},"prompt_cache_retention":"in_memory")");
  EXPECT_TRUE(call.ignored_fields.empty()) << call.ignored_fields.front();
  EXPECT_TRUE(Input(call).extra.is_undefined());
  EXPECT_EQ(Call(R"(,"whatever":1)").ignored_fields, std::vector<std::string>{"whatever"});
}

TEST(ResponsesCall, AnswersRepeatTheRequest) {
  EXPECT_EQ(Echo("").dump(), nlohmann::ordered_json::parse(R"({
      "instructions":null,"user":null,"safety_identifier":null,"prompt_cache_key":null,
      "prompt_cache_retention":null,"max_output_tokens":null,"max_tool_calls":null,"metadata":{},
      "parallel_tool_calls":true,"tool_choice":"auto","tools":[],"truncation":"disabled",
      "top_logprobs":0,"temperature":0.5,"top_p":0.75,"text":{"format":{"type":"text"}},
      "reasoning":{"effort":null,"summary":null}})")
                                 .dump());
  const std::string sent = R"("instructions":"i","user":"u","safety_identifier":"s",
      "prompt_cache_key":"k","prompt_cache_retention":"24h","max_output_tokens":9,
      "max_tool_calls":2,"metadata":{"a":"b"},"parallel_tool_calls":false,"tool_choice":"none",
      "tools":[{"type":"function","name":"f","description":"d","parameters":{"z":1,"a":2},
      "strict":true}],"truncation":"auto","top_logprobs":3,"temperature":0.25,"top_p":0,
      "text":{"format":{"type":"text"},"verbosity":"high"},
      "reasoning":{"effort":"low","summary":"auto"})";
  EXPECT_EQ(Echo("," + sent).dump(), nlohmann::ordered_json::parse("{" + sent + "}").dump());
}

// Readers that take Unicode's line ends for their own would cut an event there.
TEST(ResponsesCall, WhatIsRepeatedHasNoLineEnds) {
  const std::string echo = Call(",\"instructions\":\"a\u2028b\u0085c\"").echo;
  EXPECT_NE(echo.find("a\\u2028b\\u0085c"), std::string::npos) << echo;
}

TEST(ResponsesCall, MetadataHasOpenAisLimits) {
  const auto pairs = [](size_t count, size_t name, size_t value) {
    std::string text;
    for (size_t i = 0; i < count; ++i) {
      std::string key = std::to_string(i);
      key.resize(name, 'k');
      text += Concat(i == 0 ? "" : ",", "\"", key, "\":\"", std::string(value, 'v'), "\"");
    }
    return ",\"metadata\":{" + text + "}";
  };
  EXPECT_TRUE(Parse(pairs(16, 64, 512)).ok());
  for (const auto& wrong : {pairs(17, 5, 1), pairs(1, 65, 1), pairs(1, 64, 513)}) {
    EXPECT_EQ(ApiErrorFromStatus(Parse(wrong).status()).param, "metadata");
  }
  std::string wide;
  for (int i = 0; i < 512; ++i) wide += "\u00e9";  // characters, not bytes
  EXPECT_TRUE(Parse(",\"metadata\":{\"a\":\"" + wide + "\"}").ok());
}

TEST(ResponsesCall, ErrorsNameItsOwnFields) {
  const auto call = Parse(R"(,"min_tokens":5,"max_output_tokens":4)");
  const ApiError error = ApiErrorFromStatus(call.status());
  EXPECT_EQ(error.param, "min_tokens");
  EXPECT_NE(error.message.find("is 5, more than max_output_tokens (4)"), std::string::npos)
      << error.message;
}

// Of several in one message, and in others, the one that is too much.
TEST(ResponsesCall, ArgumentsThatAreTooMuchAreNamed) {
  ModelLimits limits = Limits();
  limits.max_conversation_bytes = 100'000;
  const auto item = [](int values) {
    std::string list = "{}";
    for (int i = 1; i < values; ++i) list += ",{}";
    return R"({"type":"function_call","call_id":"c","name":"f","arguments":"{\"x\":[)" + list +
           "]}\"}";
  };
  const std::string said = R"({"role":"assistant","content":"x"},)";
  const std::string output = R"({"type":"function_call_output","call_id":"c","output":"y"},)";
  const auto param = [&](int values) {
    const auto call =
        ParseGenerationCall(Endpoint::kResponses,
                            Concat(R"({"instructions":"i","input":[)", item(1), ",", output, said,
                                   item(1), ",", item(1), ",", item(values), ",", item(1), "]}"),
                            limits);
    return call.ok() ? "" : ApiErrorFromStatus(call.status()).param.value_or("(none)");
  };
  EXPECT_EQ(param(1), "");
  EXPECT_EQ(param(1000), "input[5].arguments");
}

// What the template gets, and the calls' arguments that are JSON inside of texts.
TEST(ResponsesCall, ConversationsAreBoundedInMemory) {
  ModelLimits limits = Limits();
  limits.max_conversation_bytes = 20'000;
  std::string items = R"({"role":"user","content":"x"})";
  for (int i = 1; i < 100; ++i) items += R"(,{"role":"user","content":"x"})";
  const auto call =
      ParseGenerationCall(Endpoint::kResponses, R"({"input":[)" + items + "]}", limits);
  ASSERT_FALSE(call.ok());
  const ApiError error = ApiErrorFromStatus(call.status());
  EXPECT_EQ(error.param, "input");
  EXPECT_NE(error.message.find("over 20000 bytes of memory"), std::string::npos) << error.message;
  limits.max_conversation_bytes = 20'000'000;
  EXPECT_GT(ParseGenerationCall(Endpoint::kResponses, R"({"input":[)" + items + "]}", limits)
                ->conversation_bytes,
            20'000u);
}

}  // namespace
}  // namespace refrain::server::openai
