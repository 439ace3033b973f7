// Requests that say the same in the messages of the gRPC API and in a body over HTTP are the same.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "engine/chat_prompt.h"
#include "engine/text/chat_template.h"
#include "server/concat.h"
#include "server/grpc/request_reader.h"
#include "server/openai/protocol.h"
#include "server/status_mapping.h"
#include "tests/server/grpc/text_request.h"

namespace refrain::server::rpc {
namespace {

// Everything that a template can be told beside the messages.
constexpr char kTemplate[] =
    "{{ messages[0].content }} documents={{ documents | tojson }} "
    "effort={{ reasoning_effort | default('-') }} thinks={{ enable_thinking | default('-') }}";

std::string PromptOf(const absl::StatusOr<engine::Request>& request) {
  if (!request.ok()) {
    const ApiError error = ApiErrorFromStatus(request.status());
    return Concat("'", error.param.value_or("(none)"), "': ", error.message);
  }
  const auto chat_template = engine::ChatTemplate::Create(kTemplate, "", "");
  EXPECT_TRUE(chat_template.ok()) << chat_template.status();
  const auto rendered =
      engine::RenderChatPrompt(**chat_template, std::get<engine::ChatPrompt>(request->prompt));
  EXPECT_TRUE(rendered.ok()) << rendered.status();
  return rendered.ok() ? rendered->text : "";
}

// Of a conversation of "hi" with these members.
std::string PromptOverHttp(const std::string& members) {
  auto call = openai::ParseGenerationCall(
      openai::Endpoint::kChatCompletions,
      R"({"messages":[{"role":"user","content":"hi"}])" + members + "}", kLimits);
  return PromptOf(call.ok() ? absl::StatusOr<engine::Request>(call->first()) : call.status());
}

std::string Prompt(v1::ChatPrompt chat) {
  v1::ChatRequest request;
  *request.mutable_chat() = std::move(chat);
  auto* const message = request.mutable_chat()->add_messages();
  message->set_role("user");
  message->set_content("hi");
  const auto read = ReadChat(request, kLimits);
  return PromptOf(read.ok() ? absl::StatusOr<engine::Request>(read->request) : read.status());
}

TEST(AsOverHttp, TheTemplateIsToldOfDocumentsAndEffort) {
  v1::ChatPrompt chat;
  EXPECT_EQ(Prompt(chat), "hi documents=null effort=- thinks=-");
  chat.set_documents_json(R"([{"title":"Bees","text":"They dance."},{}])");
  const std::string documents = R"(,"documents":[{"title":"Bees","text":"They dance."},{}])";
  EXPECT_EQ(Prompt(chat),
            R"(hi documents=[{"title": "Bees", "text": "They dance."}, {}] effort=- thinks=-)");
  EXPECT_EQ(Prompt(chat), PromptOverHttp(documents));
  for (const std::string effort : {"high", "none", ""}) {
    chat.set_reasoning_effort(effort);
    EXPECT_EQ(Prompt(chat), PromptOverHttp(documents + R"(,"reasoning_effort":")" + effort + "\""));
  }
}

TEST(AsOverHttp, OtherVariablesOfTheTemplateStandAboveThem) {
  v1::ChatPrompt chat;
  chat.set_documents_json("[{}]");
  chat.set_reasoning_effort("none");
  chat.set_chat_template_kwargs_json(R"({"documents":[],"enable_thinking":true})");
  EXPECT_EQ(Prompt(chat), "hi documents=[] effort=none thinks=True");
  EXPECT_EQ(Prompt(chat), PromptOverHttp(R"(,"documents":[{}],"reasoning_effort":"none",)"
                                         R"("chat_template_kwargs":)"
                                         R"({"documents":[],"enable_thinking":true})"));
}

// Who warms a prompt says of it what its requests will say.
TEST(AsOverHttp, APromptToBeWarmedIsTheOneOfItsRequests) {
  v1::ChatPrompt chat;
  chat.set_documents_json(R"([{"text":"long"}])");
  chat.set_reasoning_effort("low");
  v1::CachedPrompt cached;
  *cached.mutable_chat() = chat;
  auto* const message = cached.mutable_chat()->add_messages();
  message->set_role("user");
  message->set_content("hi");
  EXPECT_EQ(PromptOf(ReadCachedPrompt(cached, kLimits)), Prompt(chat));
  EXPECT_EQ(Prompt(chat), R"(hi documents=[{"text": "long"}] effort=low thinks=True)");
}

TEST(AsOverHttp, DocumentsAreRefusedInTheSameWords) {
  for (const std::string wrong : {"{}", "[1]", "[{},null]", "5"}) {
    v1::ChatPrompt chat;
    chat.set_documents_json(wrong);
    std::string expected = PromptOverHttp(R"(,"documents":)" + wrong);
    ASSERT_EQ(expected.find("'documents': "), 0u) << expected;
    expected.replace(0, sizeof("'documents'") - 1, "'chat.documents_json'");
    EXPECT_EQ(Prompt(chat), expected);
  }
}

// What is wrong with a field: the refusal behind the field's name, with HTTP's name of the tools.
std::string ProblemOf(std::string refusal) {
  const size_t name_end = refusal.find("' ", refusal.find(": '"));
  EXPECT_NE(name_end, std::string::npos) << refusal;
  refusal.erase(0, name_end + 2);
  constexpr std::string_view kTools = "'chat.tools_json'";
  if (const size_t at = refusal.find(kTools); at != std::string::npos) {
    refusal.replace(at, kTools.size(), "'tools'");
  }
  return refusal;
}

TEST(AsOverHttp, AllowedToolsAreRefusedInTheSameWords) {
  const std::string tools = R"([{"function":{"name":"f"}},{"function":{"name":"g"}}])";
  const std::pair<const char*, std::vector<std::string>> kWrong[] = {
      {"auto", {"g"}},
      {"auto", {"g", "h"}},
      {"required", {"h"}},
      {"required", std::vector<std::string>(1025, "f")}};
  for (const auto& [mode, names] : kWrong) {
    v1::ChatPrompt chat;
    chat.set_tools_json(tools);
    chat.set_tool_choice(mode);
    std::string listed;
    for (const std::string& name : names) {
      chat.add_allowed_tools(name);
      ConcatTo(&listed, listed.empty() ? "" : ",", R"({"type":"function","function":{"name":")",
               name, R"("}})");
    }
    const std::string refusal = Prompt(chat);
    EXPECT_EQ(refusal.rfind("'chat.allowed_tools': 'allowed_tools' ", 0), 0u) << refusal;
    EXPECT_EQ(ProblemOf(refusal),
              ProblemOf(PromptOverHttp(
                  Concat(R"(,"tools":)", tools,
                         R"(,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":")",
                         mode, R"(","tools":[)", listed, "]}}"))));
  }
}

// OpenAI's options have three words for the two that there are.
TEST(AsOverHttp, RetentionSaysAllThatTheCacheOptionsSay) {
  constexpr char kBreakpoint[] = R"("prompt_cache_breakpoint":{"mode":"explicit"})";
  const struct {
    const char* part;     // member of the message's text
    const char* members;  // of the body
    v1::PromptCacheRetention retention;
  } kHints[] = {
      {"", "", v1::PROMPT_CACHE_RETENTION_UNSPECIFIED},
      {"", R"("prompt_cache_options":{"mode":"implicit"})", v1::PROMPT_CACHE_RETENTION_UNSPECIFIED},
      {"", R"("prompt_cache_options":{"ttl":"30m"})", v1::PROMPT_CACHE_RETENTION_24H},
      {"", R"("prompt_cache_options":{"mode":"implicit","ttl":"1d"})",
       v1::PROMPT_CACHE_RETENTION_24H},
      {kBreakpoint, "", v1::PROMPT_CACHE_RETENTION_24H},
      {kBreakpoint, R"("prompt_cache_options":{"mode":"explicit"})",
       v1::PROMPT_CACHE_RETENTION_24H},
      {"", R"("prompt_cache_options":{"mode":"explicit","ttl":"30m"})",
       v1::PROMPT_CACHE_RETENTION_IN_MEMORY},
      {"", R"("prompt_cache_retention":"in_memory")", v1::PROMPT_CACHE_RETENTION_IN_MEMORY},
      {"", R"("prompt_cache_retention":"24h")", v1::PROMPT_CACHE_RETENTION_24H},
  };
  for (const auto& [part, members, retention] : kHints) {
    for (const bool has_key : {false, true}) {
      for (const int max_tokens : {0, 1}) {
        const auto also = [](std::string_view member) {
          return member.empty() ? "" : Concat(",", member);
        };
        const auto call = openai::ParseGenerationCall(
            openai::Endpoint::kChatCompletions,
            Concat(R"({"messages":[{"role":"user","content":[{"type":"text","text":"hi")",
                   also(part), R"(}]}],"max_tokens":)", max_tokens, also(members),
                   also(has_key ? R"("prompt_cache_key":"k")" : ""), "}"),
            kLimits);
        ASSERT_TRUE(call.ok()) << call.status();
        v1::GenerateRequest request = TextRequest();
        request.mutable_params()->mutable_stop()->set_max_tokens(max_tokens);
        request.mutable_params()->set_prompt_cache_retention(retention);
        if (has_key) request.mutable_params()->set_prompt_cache_key("k");
        const auto read = ReadGenerate(request, kLimits);
        ASSERT_TRUE(read.ok()) << read.status();
        EXPECT_EQ(read->request.keep_cached, call->first().keep_cached)
            << part << members << " key " << has_key << " max_tokens " << max_tokens;
      }
    }
  }
}

}  // namespace
}  // namespace refrain::server::rpc
