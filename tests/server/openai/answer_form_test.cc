// Which form of the answer the fields of a request ask for.

#include "server/openai/answer_form.h"

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

#include "server/concat.h"
#include "server/openai/protocol.h"
#include "server/rule_bytes.h"
#include "server/status_mapping.h"
#include "tests/server/openai/shown_form.h"

namespace refrain::server::openai {
namespace {

using ::refrain::testing::ShownForm;

// Wrong values of single fields are in tests/data/http-bad-requests (bad_requests_test.cc).

constexpr Endpoint kAll[] = {Endpoint::kCompletions, Endpoint::kChatCompletions,
                             Endpoint::kResponses};

ModelLimits Limits() {
  return {.served_name = "m",
          .vocab_size = 258,
          .max_context_tokens = 4096,
          .max_choices = 8,
          .max_beams = 6,
          .tools = engine::ToolFormat::kHermes};
}

absl::StatusOr<GenerationCall> Parse(Endpoint endpoint, const std::string& members,
                                     const ModelLimits& limits = Limits()) {
  const std::string input = endpoint == Endpoint::kChatCompletions
                                ? R"("messages":[{"role":"user","content":"hi"}])"
                                : Concat("\"", InputField(endpoint), "\":\"hi\"");
  return ParseGenerationCall(endpoint, Concat("{", input, ",", members, "}"), limits);
}

std::string FormOf(Endpoint endpoint, const std::string& members,
                   const ModelLimits& limits = Limits()) {
  const auto call = Parse(endpoint, members, limits);
  if (!call.ok()) return Concat("error: ", call.status().message());
  return ShownForm(call->first());
}

struct Refusal {
  std::string param;
  std::string message;
};

Refusal RefusalOf(Endpoint endpoint, const std::string& members) {
  const auto call = Parse(endpoint, members);
  if (call.ok()) return {"accepted", "accepted"};
  const ApiError error = ApiErrorFromStatus(call.status());
  EXPECT_EQ(error.http_status, 400);
  return {error.param.value_or("(none)"), error.message};
}

void ExpectRefused(Endpoint endpoint, const std::string& members, const std::string& param,
                   const std::string& mention) {
  const Refusal refusal = RefusalOf(endpoint, members);
  EXPECT_EQ(refusal.param, param) << refusal.message;
  EXPECT_NE(refusal.message.find(mention), std::string::npos) << refusal.message;
}

// As OpenAI's clients send it, and llama-server's ("schema" beside the type).
TEST(AnswerForm, OfResponseFormat) {
  for (const Endpoint endpoint : {Endpoint::kCompletions, Endpoint::kChatCompletions}) {
    const auto form = [&](const std::string& format) {
      return FormOf(endpoint, R"("response_format":)" + format);
    };
    EXPECT_EQ(form("null"), "none");
    EXPECT_EQ(form(R"({"type":"text"})"), "none");
    EXPECT_EQ(form(R"({"type":"text","json_schema":5})"), "none");
    EXPECT_EQ(form(R"({"type":"json_object"})"), "object by response_format");
    EXPECT_EQ(form(R"({"type":"json_object","schema":null})"), "object by response_format");
    EXPECT_EQ(form(R"({"type":"json_object","schema":{"type":"array"}})"),
              R"(schema {"type":"array"} by response_format.schema)");
    EXPECT_EQ(form(R"({"type":"json_schema","json_schema":{"name":"x","strict":true,
                       "description":"d","schema":{ "type" : "object" }}})"),
              R"(schema {"type":"object"} by response_format.json_schema.schema)");
    EXPECT_EQ(form(R"({"type":"json_schema","json_schema":{"schema":{},"strict":false}})"),
              "schema {} by response_format.json_schema.schema");
    EXPECT_EQ(form(R"({"type":"json_schema","schema":{"type":"array"}})"),
              R"(schema {"type":"array"} by response_format.schema)");
  }
}

// The order of properties is that of the answer.
TEST(AnswerForm, KeepsTheOrderOfKeys) {
  const std::string schema =
      R"({"type":"object","properties":{"z":{"type":"null"},"a":{"enum":[1.5,"é"]}}})";
  EXPECT_EQ(
      FormOf(Endpoint::kChatCompletions,
             R"("response_format":{"type":"json_schema","json_schema":{"name":"x","schema":)" +
                 schema + "}}"),
      Concat("schema ", schema, " by response_format.json_schema.schema"));
}

TEST(AnswerForm, OfTextFormat) {
  const auto form = [](const std::string& format) {
    return FormOf(Endpoint::kResponses, R"("text":{"verbosity":"low","format":)" + format + "}");
  };
  EXPECT_EQ(form("null"), "none");
  EXPECT_EQ(form(R"({"type":"text"})"), "none");
  EXPECT_EQ(form(R"({"type":"json_object"})"), "object by text.format");
  EXPECT_EQ(form(R"({"type":"json_schema","name":"x","strict":true,"description":null,
                     "schema":{"type":"object"}})"),
            R"(schema {"type":"object"} by text.format.schema)");
  EXPECT_EQ(FormOf(Endpoint::kResponses, R"("text":null)"), "none");
  EXPECT_EQ(FormOf(Endpoint::kResponses, R"("text":{})"), "none");
}

TEST(AnswerForm, OfVllmsFields) {
  for (const Endpoint endpoint : kAll) {
    const auto form = [&](const std::string& members) { return FormOf(endpoint, members); };
    const auto structured = [&](const std::string& members) {
      return form(R"("structured_outputs":{)" + members + "}");
    };
    EXPECT_EQ(structured(R"("json":{"type":"object"})"),
              R"(schema {"type":"object"} by structured_outputs.json)");
    EXPECT_EQ(structured(R"("json":"{ \"z\": 1, \"a\": 2 }")"),
              R"(schema {"z":1,"a":2} by structured_outputs.json)");
    EXPECT_EQ(structured(R"("json":{})"), "schema {} by structured_outputs.json");
    EXPECT_EQ(structured(R"("regex":"a|b+")"), "regex a|b+ by structured_outputs.regex");
    EXPECT_EQ(structured(R"("choice":["yes","no"])"), "choice yes no by structured_outputs.choice");
    EXPECT_EQ(structured(R"("grammar":"root ::= [a]")"),
              "grammar root ::= [a] by structured_outputs.grammar");
    EXPECT_EQ(structured(R"("json_object":true)"), "object by structured_outputs.json_object");
    EXPECT_EQ(structured(R"("json_object":false)"), "none");
    // As a client sends it that writes all members out.
    EXPECT_EQ(structured(R"("json":null,"regex":"x","choice":null,"grammar":null,"x":null,
        "json_object":null,"disable_fallback":false,"disable_any_whitespace":true,
        "disable_additional_properties":true,"whitespace_pattern":null,"structural_tag":null)"),
              "regex x by structured_outputs.regex");
    EXPECT_EQ(form(R"("guided_json":{"type":"null"})"), R"(schema {"type":"null"} by guided_json)");
    EXPECT_EQ(form(R"("guided_json":"{}","guided_decoding_backend":"auto")"),
              "schema {} by guided_json");
    EXPECT_EQ(form(R"("guided_regex":"[0-9]","guided_whitespace_pattern":" ")"),
              "regex [0-9] by guided_regex");
    EXPECT_EQ(form(R"("guided_choice":["a"])"), "choice a by guided_choice");
    EXPECT_EQ(form(R"("guided_grammar":"root ::= [a]")"), "grammar root ::= [a] by guided_grammar");
  }
}

TEST(AnswerForm, OfLlamaServersFields) {
  for (const Endpoint endpoint : kAll) {
    EXPECT_EQ(FormOf(endpoint, R"("grammar":"root ::= [a]")"), "grammar root ::= [a] by grammar");
    EXPECT_EQ(FormOf(endpoint, R"("json_schema":{"type":"null"},"grammar":"")"),
              R"(schema {"type":"null"} by json_schema)");
  }
}

// What clients send whose setting for it was left blank.
TEST(AnswerForm, WhatIsEmptyAsksForNothing) {
  for (const char* empty : {"null", "\"\"", "[]", "{}"}) {
    for (const char* field : {"structured_outputs", "guided_json", "guided_regex", "guided_choice",
                              "guided_grammar", "json_schema", "grammar", "regex", "ebnf"}) {
      for (const Endpoint endpoint : kAll) {
        EXPECT_EQ(FormOf(endpoint, Concat("\"", field, "\":", empty)), "none") << field << empty;
      }
    }
  }
}

// An answer of any form would come, and who sent them would not know.
TEST(AnswerForm, NamesOfOtherServersAreRefused) {
  struct Name {
    const char* member;
    const char* param;
    const char* instead;
  };
  for (const Endpoint endpoint : kAll) {
    for (const Name& name : {
             Name{R"("regex":"a")", "regex", "use 'structured_outputs.regex'"},
             {R"("ebnf":"root ::= [a]")", "ebnf", "use 'structured_outputs.grammar'"},
         }) {
      ExpectRefused(endpoint, name.member, name.param, name.instead);
    }
  }
  ExpectRefused(Endpoint::kResponses, R"("response_format":{"type":"json_object"})",
                "response_format", "use 'text.format'");
}

// A scan of all members for each of them would take a minute.
TEST(AnswerForm, ManyMembersAreReadInLinearTime) {
  std::string members = R"("regex":"x")";
  for (int i = 0; i < 200'000; ++i) ConcatTo(&members, ",\"a", i, "\":null");
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(FormOf(Endpoint::kCompletions, R"("structured_outputs":{)" + members + "}"),
            "regex x by structured_outputs.regex");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  ExpectRefused(Endpoint::kCompletions, R"("structured_outputs":{"a":null,"b":1,"c":2})",
                "structured_outputs.b", "is not known");
}

TEST(AnswerForm, OnlyOneFieldMayAskForOne) {
  struct Asking {
    const char* field;
    const char* member;
  };
  const Asking kAsking[] = {
      {"structured_outputs.regex", R"("structured_outputs":{"regex":"a"})"},
      {"guided_json", R"("guided_json":{"type":"null"})"},
      {"guided_regex", R"("guided_regex":"a")"},
      {"guided_choice", R"("guided_choice":["a"])"},
      {"guided_grammar", R"("guided_grammar":"root ::= [a]")"},
      {"json_schema", R"("json_schema":{"type":"null"})"},
      {"grammar", R"("grammar":"root ::= [a]")"},
  };
  for (const Endpoint endpoint : kAll) {
    const bool is_response = endpoint == Endpoint::kResponses;
    std::vector<Asking> asking = {
        is_response ? Asking{"text.format", R"("text":{"format":{"type":"json_object"}})"}
                    : Asking{"response_format", R"("response_format":{"type":"json_object"})"}};
    asking.insert(asking.end(), std::begin(kAsking), std::end(kAsking));
    for (size_t i = 0; i < asking.size(); ++i) {
      for (size_t j = i + 1; j < asking.size(); ++j) {
        ExpectRefused(endpoint, Concat(asking[j].member, ",", asking[i].member), asking[j].field,
                      Concat("'", asking[j].field, "' excludes '", asking[i].field, "'"));
      }
    }
    ExpectRefused(endpoint, R"("structured_outputs":{"json":{},"choice":["a"]})",
                  "structured_outputs.choice",
                  "'structured_outputs.choice' excludes 'structured_outputs.json'");
    // Who asks for text asks for no form.
    EXPECT_EQ(
        FormOf(endpoint, is_response ? R"("text":{"format":{"type":"text"}},"guided_regex":"a")"
                                     : R"("response_format":{"type":"text"},"guided_regex":"a")"),
        "regex a by guided_regex");
  }
}

TEST(AnswerForm, PromptsOfACallShareIt) {
  const auto call = ParseGenerationCall(Endpoint::kCompletions,
                                        R"({"prompt":["a","b"],"guided_regex":"x"})", Limits());
  ASSERT_TRUE(call.ok()) << call.status();
  ASSERT_NE(call->requests[0].format, nullptr);
  EXPECT_EQ(call->requests[0].format, call->requests[1].format);
}

// What is stated stays in memory until the request ends.
TEST(AnswerForm, IsBoundedAndCounted) {
  constexpr size_t kMost = engine::OutputFormat::kMostBytes;
  const std::string fits(kMost - 100, 'x');
  const std::string too_long(kMost + 1, 'x');
  const auto call = Parse(Endpoint::kChatCompletions, R"("guided_regex":")" + fits + "\"");
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_GE(RuleBytes(call->first()), fits.size());
  ExpectRefused(Endpoint::kChatCompletions, R"("guided_regex":")" + too_long + "\"", "guided_regex",
                Concat(" bytes; at most ", kMost, " are accepted"));
  ExpectRefused(Endpoint::kChatCompletions,
                R"("response_format":{"type":"json_schema","json_schema":{"name":"x","schema":)"
                R"({"description":")" +
                    too_long + "\"}}}",
                "response_format.json_schema.schema",
                Concat(" bytes; at most ", kMost, " are accepted"));
  ExpectRefused(Endpoint::kResponses,
                R"("structured_outputs":{"json":"{\"description\":\")" + too_long + "\\\"}\"}",
                "structured_outputs.json", Concat(" bytes; at most ", kMost, " are accepted"));
  ExpectRefused(Endpoint::kCompletions, R"("grammar":")" + too_long + "\"", "grammar",
                Concat(" bytes; at most ", kMost, " are accepted"));
  ExpectRefused(Endpoint::kCompletions, R"("guided_choice":["a",")" + too_long + "\"]",
                "guided_choice", Concat(" bytes; at most ", kMost, " are accepted"));
}

TEST(AnswerForm, MayTakeSoManyBytesAndNoneMore) {
  engine::OutputFormat form{.form = engine::OutputFormat::Ebnf{"x"}, .field = "f"};
  auto& grammar = std::get<engine::OutputFormat::Ebnf>(form.form).grammar;
  grammar.append(engine::OutputFormat::kMostBytes - form.bytes(), 'x');
  ASSERT_EQ(form.bytes(), engine::OutputFormat::kMostBytes);
  EXPECT_EQ(FormProblem(form), "");
  grammar.push_back('x');
  EXPECT_NE(FormProblem(form), "");
}

TEST(AnswerForm, HasSoManyChoicesAtMost) {
  const auto choices = [](int count) {
    std::string list = "\"0\"";
    for (int i = 1; i < count; ++i) ConcatTo(&list, ",\"", i, "\"");
    return R"("structured_outputs":{"choice":[)" + list + "]}";
  };
  EXPECT_TRUE(Parse(Endpoint::kCompletions, choices(1024)).ok());
  ExpectRefused(Endpoint::kCompletions, choices(1025), "structured_outputs.choice",
                "has 1025 texts; at most 1024 are accepted");
}

// Tokens that are allowed may leave no way to it; what only makes some less likely does not.
TEST(AnswerForm, ExcludesWhatContradictsIt) {
  for (const Endpoint endpoint : kAll) {
    ExpectRefused(endpoint, R"("guided_regex":"a","allowed_token_ids":[1])", "allowed_token_ids",
                  "must be absent where 'guided_regex' asks for a form");
  }
  for (const Endpoint endpoint : {Endpoint::kCompletions, Endpoint::kChatCompletions}) {
    ExpectRefused(endpoint, R"("response_format":{"type":"json_object"},"use_beam_search":true)",
                  "use_beam_search", "must be false where 'response_format' asks for a form");
    EXPECT_EQ(FormOf(endpoint,
                     R"("response_format":{"type":"json_object"},"n":2,"best_of":3,"stop":["a"],
          "logit_bias":{"5":1},"bad_words":["x"],"ignore_eos":true,"min_tokens":2,"max_tokens":9,
          "stop_token_ids":[4],"prompt_logprobs":1,"seed":7,"temperature":1.5,"echo":true)"),
              "object by response_format");
    EXPECT_EQ(FormOf(endpoint, R"("response_format":{"type":"json_object"},"stream":true)"),
              "object by response_format");
    EXPECT_EQ(FormOf(endpoint, R"("response_format":{"type":"json_object"},"max_tokens":0)"),
              "object by response_format");
  }
}

// An agent's model may call a tool before it answers in the form.
TEST(AnswerForm, LeavesCallsOfToolsPossible) {
  const std::string members =
      R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}},
                  {"type":"function","function":{"name":"g"}}],
         "response_format":{"type":"json_object"})";
  const auto form = [&](const std::string& more, engine::ToolFormat tools) {
    ModelLimits limits = Limits();
    limits.tools = tools;
    return FormOf(Endpoint::kChatCompletions, members + more, limits);
  };
  for (const auto tools : {engine::ToolFormat::kHermes, engine::ToolFormat::kLlama3}) {
    // Not held to the schemas of their arguments, as where there is no form.
    EXPECT_EQ(form("", tools), "object or calls f() g() by response_format");
    EXPECT_EQ(form(R"(,"tool_choice":"auto","parallel_tool_calls":false)", tools),
              "object or call f() g() by response_format");
    EXPECT_EQ(form(R"(,"tool_choice":"none")", tools), "object by response_format");
  }
  EXPECT_EQ(form("", engine::ToolFormat::kUnknown), "object by response_format");
  EXPECT_EQ(FormOf(Endpoint::kResponses,
                   R"("tools":[{"type":"function","name":"f"}],"guided_regex":"a")"),
            "regex a or calls f() by guided_regex");
}

TEST(AnswerForm, PossibleCallsAreBoundedWithIt) {
  const auto with_names = [](size_t bytes_of_name, size_t bytes_of_form) {
    return Concat(R"("tools":[{"type":"function","function":{"name":")",
                  std::string(bytes_of_name, 'n'), R"("}}],"guided_regex":")",
                  std::string(bytes_of_form, 'x'), "\"");
  };
  constexpr size_t kMost = engine::OutputFormat::kMostBytes;
  EXPECT_TRUE(Parse(Endpoint::kChatCompletions, with_names(kMost / 4, kMost / 2)).ok());
  ExpectRefused(Endpoint::kChatCompletions, with_names(kMost / 2, kMost / 2), "tools",
                Concat(" bytes; at most ", kMost, " are accepted"));
}

// None can be called so, and nobody said that one has to be.
TEST(AnswerForm, ToolsWithoutANameAreNotAmongPossibleCalls) {
  const auto form = [](const char* tools) {
    return FormOf(Endpoint::kChatCompletions,
                  Concat(R"("guided_regex":"a","tools":[)", tools, "]"));
  };
  EXPECT_EQ(form(R"({"type":"function","function":{"name":""}},
                    {"type":"function","function":{"name":"f"}})"),
            "regex a or calls f() by guided_regex");
  EXPECT_EQ(form(R"({"type":"function","function":{"name":""}})"), "regex a by guided_regex");
}

TEST(AnswerForm, AnswersRepeatIt) {
  const std::string format =
      R"({"type":"json_schema","name":"x","schema":{"z":1,"a":2},"strict":true})";
  const auto call =
      Parse(Endpoint::kResponses, R"("text":{"verbosity":"high","format":)" + format + "}");
  ASSERT_TRUE(call.ok()) << call.status();
  const auto echo = nlohmann::ordered_json::parse("{" + call->echo + "}");
  EXPECT_EQ(echo["text"].dump(), Concat(R"({"format":)", format, R"(,"verbosity":"high"})"));
}

}  // namespace
}  // namespace refrain::server::openai
