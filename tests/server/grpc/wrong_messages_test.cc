// Requests of the gRPC API with something wrong in them, and how they say where.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "proto/inference.pb.h"
#include "server/grpc/request_reader.h"
#include "server/status_mapping.h"
#include "tests/server/grpc/text_request.h"

namespace refrain::server::rpc {
namespace {

using ::testing::StartsWith;

// A conversation whose second message has these calls.
v1::GenerateRequest ToolCalls(const char* json) {
  v1::GenerateRequest request;
  request.mutable_chat()->add_messages()->set_role("user");
  auto* const answer = request.mutable_chat()->add_messages();
  answer->set_role("assistant");
  answer->set_tool_calls_json(json);
  return request;
}

TEST(WrongMessage, IsRefusedNamingTheFieldByItsPath) {
  struct Case {
    const char* field;
    std::function<void(v1::GenerateRequest*)> spoil;
  };
  const auto sampling = [](auto set) {
    return [set](v1::GenerateRequest* r) { set(r->mutable_params()->mutable_sampling()); };
  };
  const auto stop = [](auto set) {
    return [set](v1::GenerateRequest* r) { set(r->mutable_params()->mutable_stop()); };
  };
  const auto params = [](auto set) {
    return [set](v1::GenerateRequest* r) { set(r->mutable_params()); };
  };
  // Of the tools f and g.
  const auto allowed = [](const char* mode, const std::vector<std::string>& names) {
    return [=](v1::GenerateRequest* r) {
      *r = ToolCalls("[]");
      v1::ChatPrompt& chat = *r->mutable_chat();
      chat.set_tools_json(R"([{"function":{"name":"f"}},{"function":{"name":"g"}}])");
      chat.set_tool_choice(mode);
      for (const std::string& name : names) chat.add_allowed_tools(name);
    };
  };
  const Case kCases[] = {
      {"model", [](auto* r) { r->set_model("other"); }},
      {"prompt", [](auto* r) { r->clear_text(); }},
      {"tokens.ids[0]", [](auto* r) { r->mutable_tokens()->add_ids(258); }},
      {"tokens.ids[0]", [](auto* r) { r->mutable_tokens()->add_ids(-1); }},
      {"chat.messages", [](auto* r) { r->mutable_chat(); }},
      {"chat.messages[0].role", [](auto* r) { r->mutable_chat()->add_messages(); }},
      {"chat.messages",
       [](auto* r) {
         for (int i = 0; i < 16385; ++i) r->mutable_chat()->add_messages()->set_role("user");
       }},
      {"chat.tools_json", [](auto* r) { r->mutable_chat()->set_tools_json("{"); }},
      {"chat.tools_json", 
       [](auto* r) {
         *r = ToolCalls("[]");
         r->mutable_chat()->set_tools_json("[1]");
       }},
      {"chat.messages[1].tool_calls_json", [](auto* r) { *r = ToolCalls("{"); }},
      {"chat.messages[1].tool_calls_json", [](auto* r) { *r = ToolCalls("1"); }},
      {"chat.messages[1].tool_calls_json", [](auto* r) { *r = ToolCalls("[1]"); }},
      {"chat.messages[1].tool_calls_json",
       [](auto* r) { *r = ToolCalls(R"([{"function":{"name":5}}])"); }},
      {"chat.tools_json",
       [](auto* r) {
         *r = ToolCalls("[]");
         r->mutable_chat()->set_tools_json(R"([{"function":{"name":"f","parameters":5}}])");
       }},
      {"chat.chat_template_kwargs_json",
       [](auto* r) {
         *r = ToolCalls("[]");
         r->mutable_chat()->set_chat_template_kwargs_json("[]");
       }},
      {"chat.documents_json", [](auto* r) { r->mutable_chat()->set_documents_json("{"); }},
      {"chat.documents_json",
       [](auto* r) {
         *r = ToolCalls("[]");
         r->mutable_chat()->set_documents_json(R"({"text":"one"})");
       }},
      {"chat.documents_json",
       [](auto* r) {
         *r = ToolCalls("[]");
         r->mutable_chat()->set_documents_json(R"(["one"])");
       }},
      {"chat.continue_final_message",
       [](auto* r) {
         r->mutable_chat()->set_continue_final_message(true);
         r->mutable_chat()->set_add_generation_prompt(true);
       }},
      {"params.sampling.temperature", sampling([](auto* s) { s->set_temperature(2.5); })},
      {"params.sampling.temperature", sampling([](auto* s) { s->set_temperature(std::nan("")); })},
      {"params.sampling.top_p", sampling([](auto* s) { s->set_top_p(1.5); })},
      {"params.sampling.min_p", sampling([](auto* s) { s->set_min_p(1.5); })},
      {"params.sampling.top_k", sampling([](auto* s) { s->set_top_k(-2); })},
      {"params.sampling.repetition_penalty", sampling([](auto* s) { s->set_repetition_penalty(0); })},
      {"params.sampling.presence_penalty", sampling([](auto* s) { s->set_presence_penalty(3); })},
      {"params.sampling.frequency_penalty", sampling([](auto* s) {
         s->set_frequency_penalty(std::numeric_limits<double>::infinity());
       })},
      {"params.sampling.logit_bias", sampling([](auto* s) { (*s->mutable_logit_bias())[1] = 101; })},
      {"params.sampling.logit_bias", sampling([](auto* s) { (*s->mutable_logit_bias())[258] = 1; })},
      {"params.sampling.allowed_token_ids[1]", sampling([](auto* s) {
         s->add_allowed_token_ids(1);
         s->add_allowed_token_ids(999);
       })},
      {"params.stop.max_tokens", stop([](auto* s) { s->set_max_tokens(-1); })},
      {"params.stop.max_tokens", stop([](auto* s) { s->set_max_tokens(4097); })},
      {"params.stop.min_tokens", stop([](auto* s) { s->set_min_tokens(17); })},
      {"params.stop.stop[1]", stop([](auto* s) {
         s->add_stop("x");
         s->add_stop("");
       })},
      {"params.stop.stop[0]", stop([](auto* s) { s->add_stop(std::string(1025, 'x')); })},
      {"params.stop.stop", stop([](auto* s) {
         for (int i = 0; i < 17; ++i) s->add_stop("x");
       })},
      {"params.stop.stop_token_ids[0]", stop([](auto* s) { s->add_stop_token_ids(258); })},
      {"params.logprobs.top", params([](auto* p) { p->mutable_logprobs()->set_top(21); })},
      {"params.logprobs.prompt_top", params([](auto* p) { p->mutable_logprobs()->set_prompt_top(21); })},
      {"params.sampling.allowed_token_ids", sampling([](auto* s) {
         for (int i = 0; i < 259; ++i) s->add_allowed_token_ids(1);
       })},
      {"params.sampling.bad_words[0]", sampling([](auto* s) { s->add_bad_words(""); })},
      {"params.sampling.bad_words[0]", sampling([](auto* s) { s->add_bad_words("  "); })},
      {"params.sampling.bad_words[0]", sampling([](auto* s) { s->add_bad_words(std::string(257, 'x')); })},
      {"params.sampling.bad_words", sampling([](auto* s) {
         for (int i = 0; i < 257; ++i) s->add_bad_words("x");
       })},
      {"params.sampling.thinking_token_budget",
       sampling([](auto* s) { s->set_thinking_token_budget(-2); })},
      {"params.prompt_cache_key",
       params([](auto* p) { p->set_prompt_cache_key(std::string(1025, 'k')); })},
      {"params.prompt_cache_retention", params([](auto* p) {
         p->set_prompt_cache_retention(static_cast<v1::PromptCacheRetention>(9));
       })},
      {"params.truncate_prompt_tokens", params([](auto* p) { p->set_truncate_prompt_tokens(0); })},
      {"params.truncate_prompt_tokens", params([](auto* p) { p->set_truncate_prompt_tokens(-2); })},
      {"params.truncate_prompt_tokens", params([](auto* p) { p->set_truncate_prompt_tokens(4097); })},
      {"params.sampling.top_k", params([](auto* p) {
         p->mutable_beam();
         p->mutable_sampling()->set_top_k(5);
       })},
      {"params.sampling.thinking_token_budget", params([](auto* p) {
         p->mutable_beam();
         p->mutable_sampling()->set_thinking_token_budget(5);
       })},
      {"params.stop.stop", params([](auto* p) {
         p->mutable_beam();
         p->mutable_stop()->add_stop("x");
       })},
      {"params.echo", params([](auto* p) {
         p->mutable_beam();
         p->set_echo(true);
       })},
      {"params.best_of", params([](auto* p) {
         p->mutable_beam();
         p->set_best_of(7);
       })},
      {"chat.tool_choice",
       [](auto* r) {
         *r = ToolCalls("[]");
         r->mutable_chat()->set_tool_choice("any");
       }},
      {"chat.tool_function",
       [](auto* r) {
         *r = ToolCalls("[]");
         r->mutable_chat()->set_tools_json(R"([{"function":{"name":"f"}}])");
         r->mutable_chat()->set_tool_choice("required");
         r->mutable_chat()->set_tool_function("f");
       }},
      {"chat.tool_function",
       [](auto* r) {
         *r = ToolCalls("[]");
         r->mutable_chat()->set_tools_json(R"([{"function":{"name":"f"}}])");
         r->mutable_chat()->set_tool_function("g");
       }},
      {"chat.tool_function",
       [](auto* r) {
         *r = ToolCalls("[]");
         r->mutable_chat()->set_tool_function("f");
       }},
      {"chat.allowed_tools", allowed("auto", {"f"})},
      {"chat.allowed_tools", allowed("auto", {"f", "other"})},
      {"chat.allowed_tools", allowed("required", {"F"})},
      {"chat.allowed_tools", allowed("none", {"f", "g"})},
      {"chat.allowed_tools", allowed("required", std::vector<std::string>(1025, "f"))},
      {"chat.allowed_tools",
       [](auto* r) {
         *r = ToolCalls("[]");
         r->mutable_chat()->set_tools_json(R"([{"function":{"name":"f"}}])");
         r->mutable_chat()->set_tool_function("f");
         r->mutable_chat()->add_allowed_tools("f");
       }},
      {"chat.allowed_tools",
       [](auto* r) {
         *r = ToolCalls("[]");
         r->mutable_chat()->set_tool_choice("required");
         r->mutable_chat()->add_allowed_tools("f");
       }},
      {"chat.tool_choice",
       [](auto* r) {
         *r = ToolCalls("[]");
         r->mutable_chat()->set_tools_json(R"([{"function":{"name":"f"}}])");
         r->mutable_chat()->set_tool_choice("required");
         r->mutable_params()->mutable_structured_output()->set_regex("a");
       }},
      {"params.structured_output.form",
       params([](auto* p) { p->mutable_structured_output(); })},
      {"params.structured_output.json_schema",
       params([](auto* p) { p->mutable_structured_output()->set_json_schema("{"); })},
      {"params.structured_output.json_schema",
       params([](auto* p) { p->mutable_structured_output()->set_json_schema("[]"); })},
      {"params.structured_output.json_schema", params([](auto* p) {
         p->mutable_structured_output()->set_json_schema(std::string(300'000, ' ') + "{}");
       })},
      {"params.structured_output.regex",
       params([](auto* p) { p->mutable_structured_output()->set_regex(""); })},
      {"params.structured_output.regex", params([](auto* p) {
         p->mutable_structured_output()->set_regex(std::string(300'000, 'x'));
       })},
      {"params.structured_output.grammar",
       params([](auto* p) { p->mutable_structured_output()->set_grammar(""); })},
      {"params.structured_output.grammar", params([](auto* p) {
         p->mutable_structured_output()->set_grammar(std::string(300'000, '#'));
       })},
      {"params.structured_output.choice.texts",
       params([](auto* p) { p->mutable_structured_output()->mutable_choice(); })},
      {"params.structured_output.choice.texts",
       params([](auto* p) { p->mutable_structured_output()->mutable_choice()->add_texts(""); })},
      {"params.structured_output.choice.texts", params([](auto* p) {
         for (int i = 0; i < 1025; ++i) {
           p->mutable_structured_output()->mutable_choice()->add_texts("x");
         }
       })},
      {"params.beam", params([](auto* p) {
         p->mutable_beam();
         p->mutable_structured_output()->set_json_object(true);
       })},
      {"params.sampling.allowed_token_ids", params([](auto* p) {
         p->mutable_sampling()->add_allowed_token_ids(1);
         p->mutable_structured_output()->set_json_object(true);
       })},
      {"params.beam.length_penalty", params([](auto* p) { p->mutable_beam()->set_length_penalty(11); })},
      {"params.n", params([](auto* p) { p->set_n(0); })},
      {"params.n", params([](auto* p) { p->set_n(9); })},
      {"params.best_of", params([](auto* p) {
         p->set_n(3);
         p->set_best_of(2);
       })},
      {"params.cache_salt", params([](auto* p) { p->set_cache_salt(""); })},
      {"params.cache_salt", params([](auto* p) { p->set_cache_salt(std::string(129, 's')); })},
      {"params.timeout_s", params([](auto* p) { p->set_timeout_s(0); })},
      {"params.timeout_s", params([](auto* p) { p->set_timeout_s(1e7); })},
  };
  for (const Case& one : kCases) {
    v1::GenerateRequest request = TextRequest();
    one.spoil(&request);
    const auto out = ReadGenerate(request, kLimits);
    ASSERT_FALSE(out.ok()) << one.field;
    EXPECT_EQ(ApiErrorFromStatus(out.status()).param, one.field) << out.status();
  }
}

// As of the one text of a body over HTTP: each field of JSON is a text of its own here.
TEST(WrongMessage, HasJsonWhoseValuesTakeTooMuchMemoryTogether) {
  std::string values = "[]";
  for (int i = 1; i < 10'000; ++i) values += ",[]";  // 720 KB
  const auto read = [&](int messages) {
    v1::ChatRequest request;
    for (int i = 0; i < messages; ++i) {
      auto* const message = request.mutable_chat()->add_messages();
      message->set_role("assistant");
      message->set_tool_calls_json(R"([{"name":"f","x":[)" + values + "]}]");
    }
    request.mutable_chat()->set_chat_template_kwargs_json("{\"x\":[" + values + "]}");
    return ReadChat(request, kLimits).status();
  };
  EXPECT_TRUE(read(30).ok());
  EXPECT_EQ(ApiErrorFromStatus(read(34)).param, "chat.chat_template_kwargs_json");
  const ApiError refused = ApiErrorFromStatus(read(60));
  EXPECT_EQ(refused.http_status, 400);
  EXPECT_EQ(refused.param, "chat.messages[34].tool_calls_json");
  EXPECT_NE(refused.message.find("bytes of memory"), std::string::npos) << refused.message;
}

TEST(WrongMessage, HasToolsThatTheModelHasNoPlaceFor) {
  ModelLimits limits = kLimits;
  limits.tools = engine::ToolFormat::kNone;
  v1::ChatRequest request;
  request.mutable_chat()->add_messages()->set_role("user");
  request.mutable_chat()->set_tools_json(R"([{"type":"function","function":{"name":"f"}}])");
  const auto out = ReadChat(request, limits);
  ASSERT_FALSE(out.ok());
  EXPECT_EQ(ApiErrorFromStatus(out.status()).param, "chat.tools_json");
}

// The text has the name that HTTP's has.
TEST(WrongMessage, HasTheFieldsNameInTheTextAsOverHttp) {
  v1::GenerateRequest request = TextRequest();
  request.mutable_params()->mutable_sampling()->set_temperature(3);
  EXPECT_THAT(std::string(ReadGenerate(request, kLimits).status().message()),
              StartsWith("'temperature' must be"));
}

TEST(WrongMessage, OfTheCacheNamesFieldsByTheirPathToo) {
  v1::CachedPrompt prompt;
  prompt.mutable_tokens()->add_ids(1);
  prompt.mutable_tokens()->add_ids(258);
  const auto param = [&] {
    return ApiErrorFromStatus(ReadCachedPrompt(prompt, kLimits).status()).param;
  };
  EXPECT_EQ(param(), "prompt.tokens.ids[1]");
  prompt.set_cache_salt("");
  EXPECT_EQ(param(), "prompt.cache_salt");
  prompt.mutable_chat()->add_messages()->set_role("");
  prompt.clear_cache_salt();
  EXPECT_EQ(param(), "prompt.chat.messages[0].role");
}

}  // namespace
}  // namespace refrain::server::rpc
