#include "server/openai/protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <variant>

#include "server/concat.h"
#include "server/status_mapping.h"

namespace refrain::server::openai {
namespace {

using engine::TokenId;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::UnorderedElementsAre;

ModelLimits Limits() {
  return {.served_name = "m",
          .vocab_size = 258,
          .max_context_tokens = 4096,
          .max_choices = 8,
          .max_beams = 6,
          .tools = engine::ToolFormat::kHermes};
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
  const char* param;    // what the error blames
  const char* mention;  // part of its message
  int status = 400;
};

void ExpectRefused(const absl::StatusOr<GenerationCall>& call, const Refusal& refusal) {
  ASSERT_FALSE(call.ok());
  const ApiError error = ApiErrorFromStatus(call.status());
  EXPECT_EQ(error.http_status, refusal.status);
  EXPECT_EQ(error.param.value_or("(none)"), refusal.param);
  EXPECT_NE(error.message.find(refusal.mention), std::string::npos) << error.message;
}

// Wrong requests are in tests/data/http-bad-requests (bad_requests_test.cc).

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

// What is left out is the model's, but where beams are searched: those know no sampling.
TEST(Protocol, WhatIsLeftOutIsTheModels) {
  ModelLimits limits = Limits();
  limits.sampling = {.temperature = 0.6,
                     .top_p = 0.9,
                     .min_p = 0.1,
                     .top_k = 20,
                     .repetition_penalty = 1.05,
                     .presence_penalty = 1.5,
                     .frequency_penalty = 0.5};
  const auto read = [&](const std::string& members) {
    const auto call =
        ParseGenerationCall(Endpoint::kCompletions, "{\"prompt\":\"hi\"" + members + "}", limits);
    EXPECT_TRUE(call.ok()) << call.status();
    return call.ok() ? call->first().sampling : engine::SamplingParams();
  };
  const engine::SamplingParams nothing = read("");
  EXPECT_EQ(nothing.temperature, 0.6);
  EXPECT_EQ(nothing.top_p, 0.9);
  EXPECT_EQ(nothing.min_p, 0.1);
  EXPECT_EQ(nothing.top_k, 20);
  EXPECT_EQ(nothing.repetition_penalty, 1.05);
  EXPECT_EQ(nothing.presence_penalty, 1.5);
  EXPECT_EQ(nothing.frequency_penalty, 0.5);
  const engine::SamplingParams all =
      read(R"(,"temperature":1,"top_p":1,"min_p":0,"top_k":-1,"repetition_penalty":1,)"
           R"("presence_penalty":0,"frequency_penalty":0)");
  EXPECT_EQ(all.temperature, 1);
  EXPECT_EQ(all.top_p, 1);
  EXPECT_EQ(all.min_p, 0);
  EXPECT_EQ(all.top_k, 0);
  EXPECT_EQ(all.repetition_penalty, 1);
  EXPECT_EQ(all.presence_penalty, 0);
  EXPECT_EQ(all.frequency_penalty, 0);
  EXPECT_EQ(read(R"(,"temperature":0)").top_k, 20);
  const engine::SamplingParams beams = read(R"(,"use_beam_search":true,"n":2)");
  EXPECT_EQ(beams.temperature, 1);
  EXPECT_EQ(beams.top_k, 0);
  EXPECT_EQ(beams.presence_penalty, 0);
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

TEST(Protocol, TakesWhatIsNotSupportedWhenItIsEmpty) {
  for (const char* name :
       {"functions", "logprob_token_ids", "repetition_detection", "logits_processors"}) {
    for (const char* empty : {"null", "\"\"", "[]", "{}"}) {
      const auto call = Chat(Concat(",\"", name, "\":", empty));
      EXPECT_TRUE(call.ok()) << call.status();
    }
  }
  EXPECT_TRUE(Completion(R"(,"prompt_embeds":null,"watermark":false)").ok());
  for (const char* modalities : {"null", "[]", R"(["text"])"}) {
    const auto call = Chat(Concat(",\"modalities\":", modalities));
    EXPECT_TRUE(call.ok()) << call.status();
  }
}

// What changes when the answer comes, not the answer.
TEST(Protocol, LeavesOutWhatOtherServersDoBesideTheAnswer) {
  const auto call = Completion(
      R"(,"stream_interval":4,"return_prompt_text":true,"vllm_xargs":{"a":1},"request_id":"r")");
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_THAT(call->ignored_fields, UnorderedElementsAre("stream_interval", "return_prompt_text",
                                                         "vllm_xargs", "request_id"));
}

// Clients that order by time send milliseconds.
TEST(Protocol, APriorityHas64Bits) {
  for (const int64_t priority : {INT64_MIN, -1'764'500'000'000, 1'764'500'000'000, INT64_MAX}) {
    const auto call = Completion(Concat(",\"priority\":", priority));
    ASSERT_TRUE(call.ok()) << call.status();
    EXPECT_EQ(call->first().priority, priority);
  }
}

TEST(Protocol, ReadsEverySamplingField) {
  const auto call = Completion(
      R"(,"n":2,"temperature":0.5,"top_p":0.9,"min_p":0.1,"top_k":40,"repetition_penalty":1.1,)"
      R"("presence_penalty":0.2,"frequency_penalty":-0.3,"seed":-5,"logit_bias":{"7":-100,"9":2},)"
      R"("allowed_token_ids":[1,2],"min_tokens":3,"max_tokens":8.0,"stop":["a","b"],)"
      R"("stop_token_ids":[4],"include_stop_str_in_output":true,"priority":-1,"cache_salt":"s",)"
      R"("echo":true,"logprobs":2,"prompt_logprobs":5,"bad_words":["x y"],)"
      R"("thinking_token_budget":12,)"
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
  EXPECT_THAT(request.sampling.logit_bias, ElementsAreArray(biases));
  EXPECT_THAT(request.sampling.allowed_tokens, ElementsAre(TokenId{1}, TokenId{2}));
  EXPECT_EQ(request.stop.min_tokens, 3);
  EXPECT_EQ(request.stop.max_tokens, 8);
  EXPECT_THAT(request.stop.stop, ElementsAre("a", "b"));
  EXPECT_THAT(request.stop.stop_token_ids, ElementsAre(TokenId{4}));
  EXPECT_TRUE(request.stop.include_stop_in_output);
  EXPECT_EQ(request.priority, -1);
  EXPECT_EQ(request.cache_salt, "s");
  EXPECT_TRUE(request.echo);
  EXPECT_EQ(request.logprobs.top, 2);
  EXPECT_EQ(request.logprobs.prompt_top, 5);
  EXPECT_THAT(request.sampling.bad_words, ElementsAre("x y"));
  EXPECT_EQ(request.sampling.thinking_budget_tokens, 12);
  EXPECT_EQ(request.keep_prompt_tokens, 7);
  EXPECT_TRUE(request.tell_prompt);
  EXPECT_TRUE(call->output.token_ids);
  EXPECT_FALSE(call->output.skip_special);
  EXPECT_FALSE(request.stop.skip_special);
  EXPECT_EQ(call->output.logprobs, 2);
  EXPECT_EQ(call->output.prompt_logprobs, 5);
  EXPECT_TRUE(call->ignored_fields.empty());
}

// As vLLM's clients send it where there is to be none.
TEST(Protocol, SeedMinusOneIsNone) {
  EXPECT_FALSE(Completion(R"(,"seed":-1)")->first().sampling.seed.has_value());
  EXPECT_EQ(Completion(R"(,"seed":0)")->first().sampling.seed, 0u);
  EXPECT_EQ(Completion(R"(,"seed":9223372036854775807)")->first().sampling.seed,
            static_cast<uint64_t>(INT64_MAX));
}

TEST(Protocol, AThinkingBudgetOfMinusOneIsNone) {
  for (const char* none : {R"(,"thinking_token_budget":-1)", R"(,"thinking_token_budget":null)"}) {
    EXPECT_FALSE(Chat(none)->first().sampling.thinking_budget_tokens.has_value());
    EXPECT_TRUE(Chat(Concat(none, R"(,"use_beam_search":true)")).ok());
  }
  EXPECT_EQ(Chat(R"(,"thinking_token_budget":0)")->first().sampling.thinking_budget_tokens, 0);
  EXPECT_EQ(Chat(R"(,"thinking_token_budget":2147483647)")->first().sampling.thinking_budget_tokens,
            INT32_MAX);
}

// All that are as good as the best token; the engine's own range is open at 1.
TEST(Protocol, TakesMinPOne) {
  const auto call = Completion(R"(,"min_p":1)");
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_LT(call->first().sampling.min_p, 1);
  EXPECT_GT(call->first().sampling.min_p, 0.999999);
}

TEST(Protocol, TakesEmptyStreamOptionsWithoutAStream) {
  EXPECT_TRUE(Completion(R"(,"stream_options":{})").ok());
  EXPECT_TRUE(Chat(R"(,"stream":false,"stream_options":{})").ok());
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
  ExpectRefused(with_salt(129), {"cache_salt", "1 to 128 characters, not 129"});
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

// There may be a thousand prompts and as many ids as tokens.
TEST(Protocol, PromptsShareWhatTheyHaveInCommon) {
  const auto texts = ParseGenerationCall(
      Endpoint::kCompletions,
      R"({"prompt":["a","b"],"allowed_token_ids":[1,2],"logit_bias":{"7":1},"bad_words":["w"]})",
      Limits());
  ASSERT_TRUE(texts.ok()) << texts.status();
  const engine::SamplingParams& first = texts->requests[0].sampling;
  const engine::SamplingParams& second = texts->requests[1].sampling;
  EXPECT_EQ(first.allowed_tokens.begin(), second.allowed_tokens.begin());
  EXPECT_EQ(first.logit_bias.begin(), second.logit_bias.begin());
  EXPECT_EQ(first.bad_words.begin(), second.bad_words.begin());
}

TEST(Protocol, AllowsNoMoreTokensThanThereAre) {
  std::string ids = "0";
  for (int i = 1; i < 258; ++i) ids += "," + std::to_string(i);
  EXPECT_TRUE(Completion(R"(,"allowed_token_ids":[)" + ids + "]").ok());
  ExpectRefused(Completion(R"(,"allowed_token_ids":[)" + ids + ",7]"),
                {"allowed_token_ids", "has 259 ids; at most 258"});
}

// 429 would have clients send it again and again.
// `count` times `item`, which is told its number.
template <typename Item>
std::string Many(int count, const Item& item) {
  std::string all;
  for (int i = 0; i < count; ++i) all += (i > 0 ? "," : "") + item(i);
  return all;
}

TEST(Protocol, RefusesObjectsAndArraysThatAreTooLong) {
  const auto biases = [](int count) {
    return Completion(R"(,"logit_bias":{)" +
                      Many(count, [](int i) { return "\"" + std::to_string(i) + "\":1"; }) + "}");
  };
  ExpectRefused(biases(4096), {"logit_bias", "names the token \"258\""});  // each is looked at
  ExpectRefused(biases(4097), {"logit_bias", "has 4097 entries; at most 4096"});

  const auto messages = [](int count) {
    const auto item = [](int) { return std::string(R"({"role":"user","content":"a"})"); };
    return ParseGenerationCall(Endpoint::kChatCompletions,
                               R"({"messages":[)" + Many(count, item) + "]}", Limits());
  };
  EXPECT_TRUE(messages(16384).ok()) << messages(16384).status();
  ExpectRefused(messages(16385), {"messages", "an array of 1 to 16384 messages"});

  const auto tools = [](int count) {
    const auto item = [](int) {
      return std::string(R"({"type":"function","function":{"name":"f"}})");
    };
    return Chat(R"(,"tool_choice":"none","tools":[)" + Many(count, item) + "]");
  };
  EXPECT_TRUE(tools(1024).ok()) << tools(1024).status();
  ExpectRefused(tools(1025), {"tools", "has 1025 tools; at most 1024"});
}

TEST(Protocol, RefusesMorePromptsThanMayWait) {
  ModelLimits limits = Limits();
  limits.max_prompts = 3;
  const auto parse = [&](const char* body) {
    return ParseGenerationCall(Endpoint::kCompletions, body, limits).status();
  };
  EXPECT_TRUE(parse(R"({"prompt":["a","b","c"]})").ok());
  EXPECT_TRUE(parse(R"({"prompt":[1,2,3,4]})").ok());
  for (const char* body : {R"({"prompt":["a","b","c","d"]})", R"({"prompt":[[1],[2],[3],[4]]})"}) {
    const absl::Status status = parse(body);
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    EXPECT_NE(std::string(status.message()).find("limits.queued_requests"), std::string::npos);
  }
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

}  // namespace
}  // namespace refrain::server::openai
