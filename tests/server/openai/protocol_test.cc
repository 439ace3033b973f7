#include "server/openai/protocol.h"

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <variant>

#include "server/status_mapping.h"

namespace refrain::server::openai {
namespace {

using engine::TokenId;

ModelLimits Limits() {
  return {.served_name = "m",
          .vocab_size = 258,
          .max_context_tokens = 4096,
          .max_choices = 8,
          .max_beams = 6};
}

absl::StatusOr<GenerationCall> Completion(const std::string& members) {
  return ParseGenerationCall(Endpoint::kCompletions, "{\"prompt\":\"hi\"" + members + "}",
                             Limits());
}

absl::StatusOr<GenerationCall> Chat(const std::string& members) {
  return ParseGenerationCall(Endpoint::kChatCompletions,
                             R"({"messages":[{"role":"user","content":"hi"}])" + members + "}",
                             Limits());
}

struct Refusal {
  const char* members;
  const char* param;    // what the error blames
  const char* mention;  // part of its message
  int status = 400;
};

std::ostream& operator<<(std::ostream& out, const Refusal& refusal) {
  return out << refusal.members;
}

void ExpectRefused(const absl::StatusOr<GenerationCall>& call, const Refusal& refusal) {
  ASSERT_FALSE(call.ok());
  const ApiError error = ApiErrorFromStatus(call.status());
  EXPECT_EQ(error.http_status, refusal.status);
  EXPECT_EQ(error.param.value_or("(none)"), refusal.param);
  EXPECT_NE(error.message.find(refusal.mention), std::string::npos) << error.message;
}

// Fields of both endpoints, each with a wrong type, value or combination.
constexpr Refusal kSharedRefusals[] = {
    {R"(,"model":5)", "model", "must be a string, not an integer"},
    {R"(,"model":"other")", "model", "'other' does not exist", 404},
    {R"(,"n":0)", "n", "at least 1 and at most 8, not 0"},
    {R"(,"n":9)", "n", "at most 8"},
    {R"(,"n":"2")", "n", "an integer, not a string"},
    {R"(,"n":1.5)", "n", "not 1.5"},
    {R"(,"n":99999999999999999999)", "n", "at most 8"},
    {R"(,"best_of":0)", "best_of", "at least 1 and at most 8"},
    {R"(,"best_of":9)", "best_of", "at most 8, not 9"},
    {R"(,"best_of":2,"n":3)", "best_of", "is 2, less than n, which is 3"},
    {R"(,"best_of":2,"stream":true)", "stream", "must be false with best_of over n"},
    {R"(,"use_beam_search":1)", "use_beam_search", "a boolean, not an integer"},
    {R"(,"length_penalty":11)", "length_penalty", "at most 10"},
    {R"(,"early_stopping":"never")", "early_stopping", "a boolean, not a string"},
    {R"(,"use_beam_search":true,"stream":true)", "stream", "must be false with use_beam_search"},
    {R"(,"use_beam_search":true,"n":7)", "n", "at most 6 with use_beam_search, not 7"},
    {R"(,"use_beam_search":true,"best_of":7)", "best_of", "at most 6 with use_beam_search"},
    {R"(,"use_beam_search":true,"temperature":0.7)", "temperature", "must be 0 or 1"},
    {R"(,"use_beam_search":true,"top_p":0.7)", "top_p", "must be 1 with"},
    {R"(,"use_beam_search":true,"min_p":0.1)", "min_p", "must be 0 with"},
    {R"(,"use_beam_search":true,"top_k":10)", "top_k", "must be -1 or 0 with"},
    {R"(,"use_beam_search":true,"repetition_penalty":2)", "repetition_penalty", "must be 1"},
    {R"(,"use_beam_search":true,"presence_penalty":1)", "presence_penalty", "must be 0"},
    {R"(,"use_beam_search":true,"frequency_penalty":1)", "frequency_penalty", "must be 0"},
    {R"(,"use_beam_search":true,"logit_bias":{"5":1})", "logit_bias", "absent"},
    {R"(,"use_beam_search":true,"allowed_token_ids":[5])", "allowed_token_ids", "absent"},
    {R"(,"use_beam_search":true,"stop":"x")", "stop", "absent"},
    {R"(,"temperature":-0.1)", "temperature", "at least 0"},
    {R"(,"temperature":2.1)", "temperature", "at most 2"},
    {R"(,"temperature":"hot")", "temperature", "a number, not a string"},
    {R"(,"temperature":true)", "temperature", "a number, not a boolean"},
    {R"(,"top_p":1.01)", "top_p", "at most 1"},
    {R"(,"top_p":-1)", "top_p", "at least 0"},
    {R"(,"min_p":1)", "min_p", "below 1"},
    {R"(,"min_p":-0.5)", "min_p", "at least 0"},
    {R"(,"top_k":-2)", "top_k", "at least -1"},
    {R"(,"top_k":0.5)", "top_k", "integer"},
    {R"(,"repetition_penalty":0)", "repetition_penalty", "above 0"},
    {R"(,"presence_penalty":2.5)", "presence_penalty", "at most 2"},
    {R"(,"frequency_penalty":-2.5)", "frequency_penalty", "at least -2"},
    {R"(,"seed":"x")", "seed", "integer"},
    {R"(,"logit_bias":[])", "logit_bias", "an object, not an array"},
    {R"(,"logit_bias":{"x":1})", "logit_bias", "\"x\""},
    {R"(,"logit_bias":{"258":1})", "logit_bias", "0 to 257"},
    {R"(,"logit_bias":{"-1":1})", "logit_bias", "0 to 257"},
    {R"(,"logit_bias":{"5":101})", "logit_bias", "token 5"},
    {R"(,"logit_bias":{"5":"a"})", "logit_bias", "token 5"},
    {R"(,"allowed_token_ids":[])", "allowed_token_ids", "empty"},
    {R"(,"allowed_token_ids":[300])", "allowed_token_ids", "300"},
    {R"(,"priority":"high")", "priority", "integer"},
    {R"(,"cache_salt":"")", "cache_salt", "1 to 128 characters, not 0"},
    {R"(,"cache_salt":7)", "cache_salt", "string"},
    {R"(,"max_tokens":-1)", "max_tokens", "at least 0"},
    {R"(,"max_tokens":4097)", "max_tokens", "at most 4096"},
    {R"(,"max_tokens":1e300)", "max_tokens", "at most 4096"},
    {R"(,"min_tokens":-1)", "min_tokens", "at least 0"},
    {R"(,"min_tokens":9,"max_tokens":8)", "min_tokens", "more than max_tokens (8)"},
    {R"(,"ignore_eos":1)", "ignore_eos", "boolean"},
    {R"(,"include_stop_str_in_output":"yes")", "include_stop_str_in_output", "boolean"},
    {R"(,"stop":"")", "stop", "1 to 1024 bytes"},
    {R"(,"stop":["a",5])", "stop", "array of such strings"},
    {R"(,"stop":{})", "stop", "string"},
    {R"(,"stop":["1","2","3","4","5","6","7","8","9","a","b","c","d","e","f","g","h"])", "stop",
     "at most 16"},
    {R"(,"stop_token_ids":[1,-1])", "stop_token_ids", "-1 at index 1"},
    {R"(,"stop_token_ids":5)", "stop_token_ids", "array"},
    {R"(,"stream":"true")", "stream", "boolean"},
    {R"(,"stream_options":{"include_usage":true})", "stream_options", "'stream' is true"},
    {R"(,"stream":true,"stream_options":5)", "stream_options", "object"},
    {R"(,"stream":true,"stream_options":{"include_usage":1})", "stream_options.include_usage",
     "boolean"},
    {R"(,"guided_json":{"a":1})", "guided_json", "not supported"},
    {R"(,"bad_words":"x")", "bad_words", "an array, not a string"},
    {R"(,"bad_words":[""])", "bad_words", "1 to 256 bytes"},
    {R"(,"bad_words":[5])", "bad_words", "array of strings"},
    {R"(,"use_beam_search":true,"bad_words":["x"])", "bad_words", "absent"},
    {R"(,"prompt_logprobs":true)", "prompt_logprobs", "an integer, not a boolean"},
    {R"(,"prompt_logprobs":21)", "prompt_logprobs", "at most 20"},
    {R"(,"prompt_logprobs":-1)", "prompt_logprobs", "at least 0"},
    {R"(,"prompt_logprobs":1,"stream":true)", "prompt_logprobs", "not available with 'stream'"},
    {R"(,"prompt_logprobs":1,"use_beam_search":true)", "prompt_logprobs", "absent"},
    {R"(,"return_token_ids":1)", "return_token_ids", "boolean"},
    {R"(,"return_tokens_as_token_ids":"no")", "return_tokens_as_token_ids", "boolean"},
    {R"(,"skip_special_tokens":0)", "skip_special_tokens", "boolean"},
    {R"(,"truncate_prompt_tokens":0)", "truncate_prompt_tokens", "-1 or at least 1, not 0"},
    {R"(,"truncate_prompt_tokens":-2)", "truncate_prompt_tokens", "at least -1"},
    {R"(,"truncate_prompt_tokens":4097)", "truncate_prompt_tokens", "at most 4096"},
};

class SharedRefusalTest : public ::testing::TestWithParam<Refusal> {};

TEST_P(SharedRefusalTest, CompletionsNameTheField) {
  ExpectRefused(Completion(GetParam().members), GetParam());
}
TEST_P(SharedRefusalTest, ChatNamesTheField) {
  ExpectRefused(Chat(GetParam().members), GetParam());
}
INSTANTIATE_TEST_SUITE_P(Fields, SharedRefusalTest, ::testing::ValuesIn(kSharedRefusals));

constexpr Refusal kCompletionBodies[] = {
    {"", "(none)", "not valid JSON"},
    {"{", "(none)", "not valid JSON"},
    {"[]", "(none)", "must be a JSON object, not an array"},
    {"5", "(none)", "must be a JSON object"},
    {"{\"prompt\":\"\xff\"}", "(none)", "not valid JSON"},
    {"{\"prompt\":\"\xed\xa0\x80\"}", "(none)", "not valid JSON"},
    {R"({"prompt":"\ud800"})", "(none)", "not valid JSON"},
    {R"({"prompt":"a","prompt":"b"})", "(none)", "occurs twice"},
    {R"({"prompt":"a"} x)", "(none)", "not valid JSON"},
    {R"({"prompt":"a","temperature":1e999})", "(none)", "not valid JSON"},
    {R"({"prompt":"a","temperature":NaN})", "(none)", "not valid JSON"},
    {"{}", "prompt", "required"},
    {R"({"prompt":null})", "prompt", "required"},
    {R"({"prompt":[]})", "prompt", "not empty"},
    {R"({"prompt":5})", "prompt", "must be a string"},
    {R"({"prompt":{}})", "prompt", "must be a string"},
    {R"({"prompt":["a",5]})", "prompt", "not mixed"},
    {R"({"prompt":[5,"a"]})", "prompt", "\"a\" at index 1"},
    {R"({"prompt":[[1],"a"]})", "prompt", "not mixed"},
    {R"({"prompt":[[1],[]]})", "prompt", "not empty"},
    {R"({"prompt":[258]})", "prompt", "258 at index 0"},
    {R"({"prompt":[-1]})", "prompt", "-1 at index 0"},
    {R"({"prompt":[1.5]})", "prompt", "1.5"},
    {R"({"prompt":[[1,2],[3,1000]]})", "prompt", "1000"},
    {R"({"prompt":"a","echo":1})", "echo", "boolean"},
    {R"({"prompt":"a","echo":true,"use_beam_search":true})", "echo", "must be false"},
    {R"({"prompt":"a","logprobs":true})", "logprobs", "an integer, not a boolean"},
    {R"({"prompt":"a","logprobs":21})", "logprobs", "at most 20"},
    {R"({"prompt":"a","suffix":"b"})", "suffix", "not supported"},
};

class CompletionRefusalTest : public ::testing::TestWithParam<Refusal> {};
TEST_P(CompletionRefusalTest, SaysWhatIsWrong) {
  ExpectRefused(ParseGenerationCall(Endpoint::kCompletions, GetParam().members, Limits()),
                GetParam());
}
INSTANTIATE_TEST_SUITE_P(Bodies, CompletionRefusalTest, ::testing::ValuesIn(kCompletionBodies));

constexpr Refusal kChatBodies[] = {
    {"{}", "messages", "required"},
    {R"({"messages":[]})", "messages", "required"},
    {R"({"messages":"hi"})", "messages", "an array, not a string"},
    {R"({"messages":["hi"]})", "messages[0]", "an object, not a string"},
    {R"({"messages":[{"content":"x"}]})", "messages[0].role", "required"},
    {R"({"messages":[{"role":7,"content":"x"}]})", "messages[0].role", "a string"},
    {R"({"messages":[{"role":"user"}]})", "messages[0].content", "required"},
    {R"({"messages":[{"role":"user","content":"a"},{"role":"user","content":5}]})",
     "messages[1].content", "not an integer"},
    {R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]})",
     "messages[0].content", "only"},
    {R"({"messages":[{"role":"user","content":"a"}],"top_logprobs":3})", "top_logprobs",
     "'logprobs' is true"},
    {R"({"messages":[{"role":"user","content":"a"}],"logprobs":3})", "logprobs", "boolean"},
    {R"({"messages":[{"role":"user","content":"a"}],"logprobs":true,"top_logprobs":21})",
     "top_logprobs", "at most 20"},
    {R"({"messages":[{"role":"user","content":"a"}],"response_format":{"type":"json_object"}})",
     "response_format", "json_object"},
    {R"({"messages":[{"role":"user","content":"a"}],"response_format":"json"})", "response_format",
     "object"},
    {R"({"messages":[{"role":"user","content":"a"}],"tool_choice":"required"})", "tool_choice",
     "none"},
    {R"({"messages":[{"role":"user","content":"a"}],"tools":[5]})", "tools", "function"},
    {R"({"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function"}]})", "tools",
     "function"},
    {R"({"messages":[{"role":"user","content":"a"}],"max_completion_tokens":-5})",
     "max_completion_tokens", "at least 0"},
    {R"({"messages":[{"role":"user","content":"a"}],"chat_template":"x"})", "chat_template",
     "not accepted"},
    {R"({"messages":[{"role":"user","content":"a"}],"chat_template_kwargs":[]})",
     "chat_template_kwargs", "object"},
    {R"({"messages":[{"role":"user","content":"a"}],"add_generation_prompt":true,)"
     R"("continue_final_message":true})",
     "continue_final_message", "excludes"},
};

class ChatRefusalTest : public ::testing::TestWithParam<Refusal> {};
TEST_P(ChatRefusalTest, SaysWhatIsWrong) {
  ExpectRefused(ParseGenerationCall(Endpoint::kChatCompletions, GetParam().members, Limits()),
                GetParam());
}
INSTANTIATE_TEST_SUITE_P(Bodies, ChatRefusalTest, ::testing::ValuesIn(kChatBodies));

TEST(Protocol, RefusesDeepNesting) {
  const std::string deep =
      "{\"prompt\":\"a\",\"x\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}";
  const auto call = ParseGenerationCall(Endpoint::kCompletions, deep, Limits());
  ASSERT_FALSE(call.ok());
  EXPECT_NE(call.status().message().find("nesting is deeper than 64"), std::string::npos);
}

// 200,000 keys took minutes where each insertion looked for its key.
TEST(Protocol, ReadsObjectsOfManyKeysInLinearTime) {
  std::string body = "{\"prompt\":\"a\"";
  for (int i = 0; i < 200'000; ++i) body += ",\"k" + std::to_string(i) + "\":0";
  const auto call = ParseGenerationCall(Endpoint::kCompletions, body + "}", Limits());
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_EQ(call->ignored_fields.size(), 200'000u);
}

TEST(Protocol, HasTheDocumentedDefaults) {
  const auto call = Completion("");
  ASSERT_TRUE(call.ok()) << call.status();
  const engine::Request& request = call->first();
  EXPECT_EQ(request.stop.max_tokens, 16);
  EXPECT_EQ(request.n, 1);
  EXPECT_EQ(request.sampling.temperature, 1);
  EXPECT_EQ(request.sampling.top_p, 1);
  EXPECT_EQ(request.sampling.top_k, 0);
  EXPECT_FALSE(request.sampling.seed.has_value());
  EXPECT_FALSE(request.logprobs.top.has_value());
  EXPECT_FALSE(call->stream);
  EXPECT_EQ(std::get<engine::TextPrompt>(request.prompt).text, "hi");
  // A conversation ends with the model or with its context.
  EXPECT_EQ(Chat("")->first().stop.max_tokens, 4096);
}

// What load generators send by default must not be an error.
TEST(Protocol, AcceptsTheDefaultsOfLoadGenerators) {
  const auto call = Completion(
      R"(,"model":"m","best_of":1,"n":1,"top_k":-1,"repetition_penalty":1.0,"stop":null,)"
      R"("logprobs":null,"user":"u","seed":null,"ignore_eos":true,"temperature":0.0,)"
      R"("max_tokens":64,"stream":true,)"
      R"("stream_options":{"include_usage":true,"continuous_usage_stats":true},"unheard_of":{})");
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_EQ(call->ignored_fields, std::vector<std::string>{"unheard_of"});
  EXPECT_TRUE(call->first().stop.ignore_eos);
  EXPECT_TRUE(call->include_usage);
  EXPECT_TRUE(call->continuous_usage);
  EXPECT_EQ(call->first().sampling.top_k, 0);
}

TEST(Protocol, ReadsEverySamplingField) {
  const auto call = Completion(
      R"(,"n":2,"temperature":0.5,"top_p":0.9,"min_p":0.1,"top_k":40,"repetition_penalty":1.1,)"
      R"("presence_penalty":0.2,"frequency_penalty":-0.3,"seed":-5,"logit_bias":{"7":-100,"9":2},)"
      R"("allowed_token_ids":[1,2],"min_tokens":3,"max_tokens":8.0,"stop":["a","b"],)"
      R"("stop_token_ids":[4],"include_stop_str_in_output":true,"priority":-1,"cache_salt":"s",)"
      R"("echo":true,"logprobs":2,"prompt_logprobs":5,"bad_words":["x y"],)"
      R"("return_token_ids":true,"truncate_prompt_tokens":7,"skip_special_tokens":false)");
  ASSERT_TRUE(call.ok()) << call.status();
  const engine::Request& request = call->first();
  EXPECT_EQ(request.n, 2);
  EXPECT_EQ(request.sampling.temperature, 0.5);
  EXPECT_EQ(request.sampling.top_p, 0.9);
  EXPECT_EQ(request.sampling.min_p, 0.1);
  EXPECT_EQ(request.sampling.top_k, 40);
  EXPECT_EQ(request.sampling.repetition_penalty, 1.1);
  EXPECT_EQ(request.sampling.presence_penalty, 0.2);
  EXPECT_EQ(request.sampling.frequency_penalty, -0.3);
  EXPECT_EQ(request.sampling.seed, static_cast<uint64_t>(-5));
  const std::vector<std::pair<TokenId, float>> biases = {{TokenId{7}, -100}, {TokenId{9}, 2}};
  EXPECT_EQ(request.sampling.logit_bias, biases);
  EXPECT_EQ(request.sampling.allowed_tokens, (std::vector{TokenId{1}, TokenId{2}}));
  EXPECT_EQ(request.stop.min_tokens, 3);
  EXPECT_EQ(request.stop.max_tokens, 8);
  EXPECT_EQ(request.stop.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(request.stop.stop_token_ids, std::vector{TokenId{4}});
  EXPECT_TRUE(request.stop.include_stop_in_output);
  EXPECT_EQ(request.priority, -1);
  EXPECT_EQ(request.cache_salt, "s");
  EXPECT_TRUE(request.echo);
  EXPECT_EQ(request.logprobs.top, 2);
  EXPECT_EQ(request.logprobs.prompt_top, 5);
  EXPECT_EQ(request.sampling.bad_words, std::vector<std::string>{"x y"});
  EXPECT_EQ(request.keep_prompt_tokens, 7);
  EXPECT_TRUE(request.tell_prompt);
  EXPECT_TRUE(call->output.token_ids);
  EXPECT_FALSE(call->output.skip_special);
  EXPECT_EQ(call->output.logprobs, 2);
  EXPECT_EQ(call->output.prompt_logprobs, 5);
  EXPECT_TRUE(call->ignored_fields.empty());
}

// -1: what leaves room for the answer.
TEST(Protocol, TruncatesToWhatLeavesRoomForTheAnswer) {
  EXPECT_EQ(Completion(R"(,"truncate_prompt_tokens":-1)")->first().keep_prompt_tokens, 4096 - 16);
  EXPECT_EQ(Chat(R"(,"truncate_prompt_tokens":-1)")->first().keep_prompt_tokens, 4095);
  EXPECT_FALSE(Completion("")->first().keep_prompt_tokens.has_value());
}

TEST(Protocol, ReadsBeamSearch) {
  const auto call = Completion(
      R"(,"use_beam_search":true,"n":2,"best_of":4,"length_penalty":0.5,"early_stopping":true,)"
      R"("temperature":0,"top_k":-1)");
  ASSERT_TRUE(call.ok()) << call.status();
  const engine::Request& request = call->first();
  EXPECT_EQ(request.n, 2);
  EXPECT_EQ(request.best_of, 4);
  ASSERT_TRUE(request.beam.has_value());
  EXPECT_EQ(request.beam->length_penalty, 0.5);
  EXPECT_TRUE(request.beam->early_stopping);
  EXPECT_TRUE(call->ignored_fields.empty());
  const auto chat = Chat(R"(,"use_beam_search":true,"n":3)");
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->first().sequences(), 3);
  EXPECT_EQ(chat->first().beam->length_penalty, 1);
  EXPECT_FALSE(chat->first().beam->early_stopping);
}

TEST(Protocol, ReadsBestOf) {
  const auto call = Completion(R"(,"n":2,"best_of":5,"echo":true)");
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_EQ(call->first().best_of, 5);
  EXPECT_FALSE(call->first().beam.has_value());
  // With n of n there is nothing to pick, so it can be streamed.
  EXPECT_TRUE(Completion(R"(,"n":2,"best_of":2,"stream":true)").ok());
}

TEST(Protocol, CountsTheCharactersOfASalt) {
  const auto with_salt = [](int characters) {
    std::string salt;
    for (int i = 0; i < characters; ++i) salt += "\xc3\xa9";
    return Completion(",\"cache_salt\":\"" + salt + "\"");
  };
  EXPECT_TRUE(with_salt(128).ok());
  ExpectRefused(with_salt(129), {"", "cache_salt", "1 to 128 characters, not 129"});
}

TEST(Protocol, TakesTopPZeroAsTheBestTokenAlone) {
  const auto call = Completion(R"(,"top_p":0)");
  ASSERT_TRUE(call.ok());
  EXPECT_GT(call->first().sampling.top_p, 0);
  EXPECT_LT(call->first().sampling.top_p, 1e-6);
}

TEST(Protocol, MakesOneRequestPerPrompt) {
  const auto texts =
      ParseGenerationCall(Endpoint::kCompletions, R"({"prompt":["a","b","c"],"n":2})", Limits());
  ASSERT_TRUE(texts.ok()) << texts.status();
  ASSERT_EQ(texts->requests.size(), 3u);
  EXPECT_EQ(std::get<engine::TextPrompt>(texts->requests[2].prompt).text, "c");
  EXPECT_EQ(texts->requests[2].n, 2);

  const auto one = ParseGenerationCall(Endpoint::kCompletions, R"({"prompt":[1,2,3]})", Limits());
  ASSERT_TRUE(one.ok());
  ASSERT_EQ(one->requests.size(), 1u);
  EXPECT_EQ(std::get<engine::TokenPrompt>(one->first().prompt).ids.size(), 3u);

  const auto several =
      ParseGenerationCall(Endpoint::kCompletions, R"({"prompt":[[1],[2,3]]})", Limits());
  ASSERT_TRUE(several.ok());
  ASSERT_EQ(several->requests.size(), 2u);
  EXPECT_EQ(std::get<engine::TokenPrompt>(several->requests[1].prompt).ids.size(), 2u);
}

TEST(Protocol, RefusesMoreChoicesThanOneCallMayHave) {
  std::string body = "{\"n\":8,\"prompt\":[\"a\"";
  for (int i = 0; i < 256; ++i) body += ",\"a\"";
  const auto call = ParseGenerationCall(Endpoint::kCompletions, body + "]}", Limits());
  ASSERT_FALSE(call.ok());
  EXPECT_NE(call.status().message().find("at most 2048"), std::string::npos);
  // Those that are computed count, not those that are returned.
  body.replace(1, 5, "\"n\":1,\"best_of\":8");
  EXPECT_FALSE(ParseGenerationCall(Endpoint::kCompletions, body + "]}", Limits()).ok());
}

const engine::jinja::Map& Message(const GenerationCall& call, size_t index) {
  const auto& chat = std::get<engine::ChatPrompt>(call.first().prompt);
  return chat.input.messages.AsList()[index].AsMap();
}

TEST(ChatMessages, GivesTemplatesStringsForEveryKindOfContent) {
  const auto call = ParseGenerationCall(Endpoint::kChatCompletions,
                                        R"({"messages":[{"role":"system","content":"s","name":"n"},
          {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
          {"role":"assistant","content":null},{"role":"assistant"}]})",
                                        Limits());
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_EQ(Message(*call, 0).FindOrNull("content")->AsString(), "s");
  EXPECT_EQ(Message(*call, 0).FindOrNull("name")->AsString(), "n");
  EXPECT_EQ(Message(*call, 1).FindOrNull("content")->AsString(), "a\nb");
  EXPECT_EQ(Message(*call, 2).FindOrNull("content")->AsString(), "");
  EXPECT_EQ(Message(*call, 3).FindOrNull("content")->AsString(), "");
}

TEST(ChatMessages, TurnsToolArgumentsIntoObjects) {
  const auto call = ParseGenerationCall(
      Endpoint::kChatCompletions,
      R"({"messages":[{"role":"assistant","tool_calls":[{"id":"1","type":"function",
          "function":{"name":"f","arguments":"{\"z\":1,\"a\":[true]}"}}]}]})",
      Limits());
  ASSERT_TRUE(call.ok()) << call.status();
  const auto& tool_call = Message(*call, 0).FindOrNull("tool_calls")->AsList()[0].AsMap();
  const auto& function = tool_call.FindOrNull("function")->AsMap();
  const auto* arguments = function.FindOrNull("arguments");
  ASSERT_TRUE(arguments->is_map());
  EXPECT_EQ(arguments->AsMap().entries()[0].key.AsString(), "z");
}

TEST(ChatMessages, ShowsToolsUnlessTheChoiceIsNone) {
  const std::string tools =
      R"(,"tools":[{"type":"function","function":{"name":"f","parameters":{}}}])";
  const auto input = [](const absl::StatusOr<GenerationCall>& call) {
    return std::get<engine::ChatPrompt>(call->first().prompt).input;
  };
  EXPECT_TRUE(input(Chat(tools)).tools.is_list());
  EXPECT_TRUE(input(Chat(tools + R"(,"tool_choice":"auto")")).tools.is_list());
  EXPECT_TRUE(input(Chat(tools + R"(,"tool_choice":"none")")).tools.is_undefined());
  EXPECT_TRUE(input(Chat("")).tools.is_undefined());
}

TEST(ChatMessages, PrefersTheNewNameOfTheTokenLimit) {
  EXPECT_EQ(Chat(R"(,"max_tokens":5)")->first().stop.max_tokens, 5);
  EXPECT_EQ(Chat(R"(,"max_tokens":5,"max_completion_tokens":7)")->first().stop.max_tokens, 7);
}

TEST(ChatMessages, ContinuesTheLastMessageOnRequest) {
  const auto call = Chat(R"(,"continue_final_message":true)");
  ASSERT_TRUE(call.ok()) << call.status();
  const auto& chat = std::get<engine::ChatPrompt>(call->first().prompt);
  EXPECT_TRUE(chat.continue_final_message);
  EXPECT_FALSE(chat.input.add_generation_prompt);
}

}  // namespace
}  // namespace refrain::server::openai
