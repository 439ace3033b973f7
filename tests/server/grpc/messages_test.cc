#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "proto/error_details.pb.h"
#include "server/grpc/answer_writer.h"
#include "server/grpc/request_reader.h"
#include "server/grpc/status_mapping.h"
#include "server/status_mapping.h"
#include "tests/server/grpc/text_request.h"
#include "tests/support/fake_engine.h"

namespace refrain::server::rpc {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

// --- requests ---

TEST(RequestReader, DefaultsAreThoseOfTheHttpApi) {
  const auto read = ReadGenerate(TextRequest(), kLimits);
  ASSERT_TRUE(read.ok()) << read.status();
  const engine::Request* const request = &read->request;
  EXPECT_EQ(request->stop.max_tokens, 16);
  EXPECT_EQ(request->sampling.temperature, 1);
  EXPECT_EQ(request->sampling.top_p, 1);
  EXPECT_EQ(request->sampling.top_k, 0);
  EXPECT_FALSE(request->sampling.seed.has_value());
  EXPECT_EQ(request->n, 1);
  EXPECT_FALSE(request->best_of.has_value());
  EXPECT_TRUE(std::get<engine::TextPrompt>(request->prompt).add_special_tokens);
  EXPECT_FALSE(request->keep_cached);
  EXPECT_FALSE(request->keep_prompt_tokens.has_value());
  EXPECT_TRUE(read->answer.shown.skip_special);
  EXPECT_FALSE(read->answer.logprobs || read->answer.prompt_token_ids);
  v1::ChatRequest chat;
  auto* const message = chat.mutable_chat()->add_messages();
  message->set_role("user");
  message->set_content("hi");
  const auto read_chat = ReadChat(chat, kLimits);
  EXPECT_EQ(read_chat->request.stop.max_tokens, kLimits.max_context_tokens);
  EXPECT_EQ(read_chat->answer.shown.tools, engine::ToolFormat::kNone);
}

TEST(RequestReader, WhatIsLeftOutIsTheModels) {
  ModelLimits limits = kLimits;
  limits.sampling = {.temperature = 0.6, .top_p = 0.9, .top_k = 20, .presence_penalty = 1.5};
  v1::GenerateRequest request = TextRequest();
  const auto read = [&] {
    const auto call = ReadGenerate(request, limits);
    EXPECT_TRUE(call.ok()) << call.status();
    return call->request.sampling;
  };
  EXPECT_EQ(read().temperature, 0.6);
  EXPECT_EQ(read().top_p, 0.9);
  EXPECT_EQ(read().top_k, 20);
  EXPECT_EQ(read().presence_penalty, 1.5);
  request.mutable_params()->mutable_beam();
  EXPECT_EQ(read().temperature, 1);
  EXPECT_EQ(read().top_k, 0);
  request.mutable_params()->clear_beam();
  v1::Sampling& sampling = *request.mutable_params()->mutable_sampling();
  sampling.set_temperature(1);
  sampling.set_top_k(0);
  EXPECT_EQ(read().temperature, 1);
  EXPECT_EQ(read().top_p, 0.9);
  EXPECT_EQ(read().top_k, 0);
}

v1::ChatRequest ToolRequest() {
  v1::ChatRequest request;
  auto* const message = request.mutable_chat()->add_messages();
  message->set_role("user");
  message->set_content("hi");
  request.mutable_chat()->set_tools_json(R"([{"type":"function","function":{"name":"f"}}])");
  return request;
}

TEST(RequestReader, ShowsToolsAndLooksForCallsUnlessNoneAreChosen) {
  v1::ChatRequest request = ToolRequest();
  for (const char* choice : {"", "auto", "none"}) {
    request.mutable_chat()->set_tool_choice(choice);
    request.mutable_chat()->set_parallel_tool_calls(false);
    const auto read = ReadChat(request, kLimits);
    ASSERT_TRUE(read.ok()) << read.status();
    const bool may_call = std::string(choice) != "none";
    const auto& prompt = std::get<engine::ChatPrompt>(read->request.prompt);
    EXPECT_TRUE(prompt.input.tools.is_list());
    EXPECT_EQ(prompt.may_call_tools, may_call);
    EXPECT_EQ(read->answer.shown.tools,
              may_call ? engine::ToolFormat::kHermes : engine::ToolFormat::kNone);
    EXPECT_EQ(read->answer.shown.parallel_tool_calls, !may_call);
  }
  // The prompt itself shows what calls look like.
  request.mutable_chat()->clear_tool_choice();
  request.mutable_params()->set_echo(true);
  EXPECT_EQ(ReadChat(request, kLimits)->answer.shown.tools, engine::ToolFormat::kNone);
}

TEST(RequestReader, FindsThoughtsWhereTheTemplateHasThem) {
  ModelLimits limits = kLimits;
  limits.reasoning = engine::ReasoningFormat::kThink;
  v1::ChatRequest request = ToolRequest();
  const auto shown = [&](const ModelLimits& of) { return ReadChat(request, of)->answer.shown; };
  EXPECT_EQ(shown(kLimits).reasoning, engine::ReasoningFormat::kNone);
  EXPECT_EQ(shown(limits).reasoning, engine::ReasoningFormat::kThink);
  EXPECT_TRUE(shown(limits).include_reasoning);
  request.mutable_chat()->set_include_reasoning(false);
  EXPECT_FALSE(shown(limits).include_reasoning);
  request.mutable_params()->set_echo(true);
  EXPECT_EQ(shown(limits).reasoning, engine::ReasoningFormat::kNone);
}

TEST(RequestReader, ShowsWhatAnAssistantThought) {
  v1::ChatRequest request = ToolRequest();
  auto* const message = request.mutable_chat()->add_messages();
  message->set_role("assistant");
  message->set_reasoning("Hm.");
  const auto read = ReadChat(request, kLimits);
  ASSERT_TRUE(read.ok()) << read.status();
  const auto& messages = std::get<engine::ChatPrompt>(read->request.prompt).input.messages;
  EXPECT_EQ(messages.AsList()[0].AsMap().FindOrNull("reasoning_content"), nullptr);
  const auto* const shown = messages.AsList()[1].AsMap().FindOrNull("reasoning_content");
  ASSERT_NE(shown, nullptr);
  EXPECT_EQ(shown->AsString(), "Hm.");
}

TEST(RequestReader, KeepsAPromptThatIsExpectedAgain) {
  const auto keeps = [](auto set) {
    v1::GenerateRequest request = TextRequest();
    set(request.mutable_params());
    return ReadGenerate(request, kLimits)->request.keep_cached;
  };
  EXPECT_TRUE(keeps([](auto* p) { p->set_prompt_cache_key(""); }));
  EXPECT_TRUE(keeps([](auto* p) { p->mutable_stop()->set_max_tokens(0); }));
  EXPECT_TRUE(
      keeps([](auto* p) { p->set_prompt_cache_retention(v1::PROMPT_CACHE_RETENTION_24H); }));
  EXPECT_FALSE(keeps([](auto* p) {
    p->set_prompt_cache_key("k");
    p->set_prompt_cache_retention(v1::PROMPT_CACHE_RETENTION_IN_MEMORY);
  }));
}

TEST(RequestReader, MinPMayBeOne) {
  v1::GenerateRequest in;
  in.mutable_tokens()->add_ids(7);
  in.mutable_params()->mutable_sampling()->set_min_p(1);
  const auto out = ReadGenerate(in, kLimits);
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_LT(out->request.sampling.min_p, 1);  // the engine's own range is open
  EXPECT_GT(out->request.sampling.min_p, 0.999999);
}

TEST(RequestReader, ReadsEveryField) {
  v1::GenerateRequest in;
  in.set_model("m");
  in.mutable_tokens()->add_ids(7);
  v1::GenerationParams& params = *in.mutable_params();
  v1::Sampling& sampling = *params.mutable_sampling();
  sampling.set_temperature(0.5);
  sampling.set_top_p(0);
  sampling.set_min_p(0.25);
  sampling.set_top_k(-1);
  sampling.set_repetition_penalty(1.5);
  sampling.set_presence_penalty(-1);
  sampling.set_frequency_penalty(2);
  (*sampling.mutable_logit_bias())[9] = -100;
  (*sampling.mutable_logit_bias())[3] = 5;
  sampling.add_allowed_token_ids(1);
  sampling.add_bad_words("no");
  sampling.set_seed(-1);
  sampling.set_thinking_token_budget(9);
  v1::Stop& stop = *params.mutable_stop();
  stop.set_max_tokens(20);
  stop.set_min_tokens(2);
  stop.set_ignore_eos(true);
  stop.add_stop("end");
  stop.add_stop_token_ids(257);
  stop.set_include_stop_in_output(true);
  params.mutable_logprobs()->set_top(20);
  params.mutable_logprobs()->set_prompt_top(3);
  params.set_n(2);
  params.set_best_of(3);
  params.set_echo(true);
  params.set_priority(-1'764'500'000'000);
  params.set_cache_salt("s");
  params.set_timeout_s(2.5);
  params.set_cache_report(true);
  params.set_truncate_prompt_tokens(-1);
  params.set_return_prompt_token_ids(true);
  params.set_skip_special_tokens(false);
  params.set_continuous_usage(true);
  const auto read = ReadGenerate(in, kLimits);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(read->answer.cache_report);
  EXPECT_TRUE(read->answer.prompt_token_ids);
  EXPECT_TRUE(read->answer.continuous_usage);
  EXPECT_TRUE(read->answer.logprobs);
  EXPECT_FALSE(read->answer.prompt_logprobs);  // they are the choices', with echo
  EXPECT_FALSE(read->answer.shown.skip_special);
  EXPECT_EQ(read->answer.num_choices, 2);
  const engine::Request* const out = &read->request;
  EXPECT_EQ(out->keep_prompt_tokens, 4096 - 20);
  EXPECT_TRUE(out->tell_prompt);
  EXPECT_THAT(out->sampling.bad_words, ElementsAre("no"));
  EXPECT_EQ(out->sampling.thinking_budget_tokens, 9);
  EXPECT_THAT(std::get<engine::TokenPrompt>(out->prompt).ids, ElementsAre(engine::TokenId{7}));
  EXPECT_EQ(out->sampling.temperature, 0.5);
  EXPECT_EQ(out->sampling.top_p, kLeastTopP);
  EXPECT_EQ(out->sampling.min_p, 0.25);
  EXPECT_EQ(out->sampling.top_k, 0);
  EXPECT_EQ(out->sampling.repetition_penalty, 1.5);
  EXPECT_EQ(out->sampling.presence_penalty, -1);
  EXPECT_EQ(out->sampling.frequency_penalty, 2);
  EXPECT_THAT(out->sampling.logit_bias, ElementsAre(std::pair(engine::TokenId{3}, 5.f),
                                                    std::pair(engine::TokenId{9}, -100.f)));
  EXPECT_THAT(out->sampling.allowed_tokens, ElementsAre(engine::TokenId{1}));
  EXPECT_EQ(out->sampling.seed, ~uint64_t{0});
  EXPECT_EQ(out->stop.max_tokens, 20);
  EXPECT_EQ(out->stop.min_tokens, 2);
  EXPECT_TRUE(out->stop.ignore_eos);
  EXPECT_THAT(out->stop.stop, ElementsAre("end"));
  EXPECT_THAT(out->stop.stop_token_ids, ElementsAre(engine::TokenId{257}));
  EXPECT_TRUE(out->stop.include_stop_in_output);
  EXPECT_FALSE(out->stop.skip_special);
  EXPECT_EQ(out->logprobs.top, 20);
  EXPECT_EQ(out->logprobs.prompt_top, 3);
  EXPECT_EQ(out->n, 2);
  EXPECT_EQ(out->best_of, 3);
  EXPECT_TRUE(out->echo);
  EXPECT_EQ(out->priority, -1'764'500'000'000);
  EXPECT_EQ(out->cache_salt, "s");
  EXPECT_EQ(out->timeout_s, 2.5);
}

// --- answers ---

engine::TokenEvent Token(int32_t choice, unsigned char byte) {
  engine::TokenEvent event;
  event.choice = choice;
  event.token = engine::TokenId{byte};
  return event;
}

TEST(AnswerWriter, HoldsBackHalfACharacterButNotItsToken) {
  testing::ByteTokenizer tokenizer;
  AnswerWriter writer(&tokenizer, {});
  v1::GenerateResponse message;
  writer.Take({.tokens = {Token(0, 'a'), Token(0, 0xc3)}});
  writer.Fill(&message);
  ASSERT_EQ(message.choices_size(), 1);
  EXPECT_EQ(message.choices(0).text(), "a");
  EXPECT_THAT(message.choices(0).token_ids(), ElementsAre('a', 0xc3));
  writer.Take({.tokens = {Token(0, 0xa9)}});
  writer.Fill(&message);
  EXPECT_EQ(message.choices(0).text(), "\xc3\xa9");
}

TEST(AnswerWriter, PutsChoicesApartAndTellsHowTheyEnded) {
  testing::ByteTokenizer tokenizer;
  AnswerWriter writer(&tokenizer, {.num_choices = 2});
  v1::GenerateResponse message;
  engine::ChoiceEnd end{.choice = 1, .reason = engine::FinishReason::kStop, .matched_stop = "x"};
  writer.Take({.tokens = {Token(1, 'b'), Token(0, 'a'), Token(1, 'c')}, .ends = {end}});
  writer.Fill(&message);
  EXPECT_TRUE(writer.drained());
  ASSERT_EQ(message.choices_size(), 2);
  EXPECT_EQ(message.choices(0).index(), 1);
  EXPECT_EQ(message.choices(0).text(), "bc");
  EXPECT_EQ(message.choices(0).finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(message.choices(0).matched_stop(), "x");
  EXPECT_EQ(message.choices(1).text(), "a");
  EXPECT_EQ(message.choices(1).finish_reason(), v1::FINISH_REASON_UNSPECIFIED);
}

// As over HTTP, with include_stop_in_output; a control token only where those are shown.
TEST(AnswerWriter, ShowsTheTokenThatEndedAChoiceOnRequest) {
  testing::ByteTokenizer tokenizer;
  const auto text_of = [&](const AnswerOptions& options, engine::TokenId stop) {
    AnswerWriter writer(&tokenizer, options);
    v1::GenerateResponse message;
    writer.Take({.tokens = {Token(0, 'a')}, .ends = {{.stop_token = stop}}});
    writer.Fill(&message);
    EXPECT_THAT(message.choices(0).token_ids(), ElementsAre('a'));
    EXPECT_EQ(message.choices(0).stop_token_id(), static_cast<int32_t>(stop));
    return message.choices(0).text();
  };
  const engine::TokenId z{'z'};
  const engine::TokenId eos = testing::ByteTokenizer::kEos;
  EXPECT_EQ(text_of({}, z), "a");
  EXPECT_EQ(text_of({.shows_end_token = true}, z), "az");
  EXPECT_EQ(text_of({.shows_end_token = true}, eos), "a");
  EXPECT_EQ(text_of({.shown = {.skip_special = false}, .shows_end_token = true}, eos), "a<eos>");
  EXPECT_EQ(text_of({.shown = {.skip_special = false}}, eos), "a");
}

// It has no place among `logprobs`, which go with the token ids.
TEST(AnswerWriter, TellsTheLogprobOfTheTokenThatEndedAChoice) {
  testing::ByteTokenizer tokenizer;
  const engine::TokenId z{'z'};
  const auto delta_of = [&](bool logprobs) {
    AnswerWriter writer(&tokenizer, {.logprobs = logprobs});
    v1::GenerateResponse message;
    const engine::TokenLogprob best{.token = engine::TokenId{'y'}, .logprob = -0.5f, .rank = 1};
    writer.Take({.tokens = {Token(0, 'a')},
                 .ends = {{.stop_token = z,
                           .stop_logprob = engine::TokenLogprob{z, -1.5f, 2},
                           .stop_top = {best}}}});
    writer.Fill(&message);
    return message.choices(0);
  };
  const v1::ChoiceDelta delta = delta_of(true);
  EXPECT_EQ(delta.logprobs_size(), 1);
  EXPECT_EQ(delta.stop_logprob().token_id(), 'z');
  EXPECT_EQ(delta.stop_logprob().token(), "z");
  EXPECT_EQ(delta.stop_logprob().logprob(), -1.5f);
  EXPECT_EQ(delta.stop_logprob().rank(), 2);
  ASSERT_EQ(delta.stop_logprob().top_size(), 1);
  EXPECT_EQ(delta.stop_logprob().top(0).token_id(), 'y');
  EXPECT_FALSE(delta_of(false).has_stop_logprob());
}

TEST(AnswerWriter, CutsWhatPiledUpIntoMessagesOfBoundedSize) {
  testing::ByteTokenizer tokenizer;
  for (const bool logprobs : {false, true}) {
    AnswerWriter writer(&tokenizer, {.logprobs = logprobs});
    const int most = logprobs ? 128 : 1024;
    engine::StreamBatch batch;
    for (int i = 0; i < 2 * most + 5; ++i) batch.tokens.push_back(Token(0, 'a' + i % 26));
    batch.ends.push_back({});
    writer.Take(std::move(batch));
    v1::GenerateResponse message;
    std::vector<int> sizes;
    size_t characters = 0;
    while (!writer.drained()) {
      writer.Fill(&message);
      sizes.push_back(message.choices(0).token_ids_size());
      EXPECT_EQ(message.choices(0).logprobs_size(), logprobs ? sizes.back() : 0);
      characters += message.choices(0).text().size();
    }
    EXPECT_THAT(sizes, ElementsAre(most, most, 5));
    EXPECT_EQ(characters, 2u * most + 5);
    EXPECT_EQ(message.choices(0).finish_reason(), v1::FINISH_REASON_STOP);
  }
}

std::vector<engine::TokenEvent> Tokens(const std::string& text) {
  std::vector<engine::TokenEvent> tokens;
  for (const char c : text) tokens.push_back(Token(0, static_cast<unsigned char>(c)));
  return tokens;
}

TEST(AnswerWriter, TellsToolCallsApartFromTheText) {
  testing::ByteTokenizer tokenizer;
  const AnswerOptions options{
      .shown = {.tools = engine::ToolFormat::kHermes, .stream_tool_calls = true}};
  AnswerWriter writer(&tokenizer, options);
  v1::GenerateResponse message;
  writer.Take({.tokens = Tokens(R"(Hm <tool_call>{"name":"f","arguments":{"a")")});
  EXPECT_TRUE(writer.Fill(&message));
  ASSERT_EQ(message.choices(0).tool_calls_size(), 1);
  EXPECT_EQ(message.choices(0).text(), "Hm");
  EXPECT_THAT(message.choices(0).tool_calls(0).id(), StartsWith("call_"));
  EXPECT_EQ(message.choices(0).tool_calls(0).name(), "f");
  EXPECT_EQ(message.choices(0).tool_calls(0).arguments(), R"({"a")");
  writer.Take(
      {.tokens = Tokens(R"(:1}}</tool_call><tool_call>{"name":"g"}</tool_call>)"), .ends = {{}}});
  EXPECT_TRUE(writer.Fill(&message));
  const v1::ChoiceDelta& delta = message.choices(0);
  ASSERT_EQ(delta.tool_calls_size(), 2);
  EXPECT_FALSE(delta.tool_calls(0).has_name() || delta.tool_calls(0).has_id());
  EXPECT_EQ(delta.tool_calls(0).arguments(), ":1}");
  EXPECT_EQ(delta.tool_calls(1).index(), 1);
  EXPECT_EQ(delta.tool_calls(1).name(), "g");
  EXPECT_EQ(delta.tool_calls(1).arguments(), "{}");
  EXPECT_EQ(delta.finish_reason(), v1::FINISH_REASON_TOOL_CALLS);
}

TEST(AnswerWriter, TellsThoughtsApartFromTheText) {
  testing::ByteTokenizer tokenizer;
  for (const bool include : {true, false}) {
    AnswerWriter writer(&tokenizer, {.shown = {.reasoning = engine::ReasoningFormat::kThink,
                                               .include_reasoning = include}});
    v1::GenerateResponse message;
    v1::Usage usage;
    writer.Take({});  // the prompt is not known yet
    writer.Take({.tokens = Tokens("Hm"), .reasoning = engine::ReasoningStart::kInside});
    EXPECT_TRUE(writer.Fill(&message));
    EXPECT_EQ(message.choices(0).reasoning(), include ? "Hm" : "");
    EXPECT_EQ(message.choices(0).text(), "");
    EXPECT_EQ(message.choices(0).token_ids_size(), 2);
    writer.Take({.tokens = Tokens(".\n</think>\n\nYes"),
                 .ends = {{}},
                 .reasoning = engine::ReasoningStart::kInside});
    EXPECT_TRUE(writer.Fill(&message));
    EXPECT_EQ(message.choices(0).reasoning(), include ? "." : "");
    EXPECT_EQ(message.choices(0).text(), "Yes");
    writer.FillUsage({}, &usage);
    EXPECT_EQ(usage.reasoning_tokens(), 12);
  }
  v1::Usage usage;
  AnswerWriter(&tokenizer, {}).FillUsage({}, &usage);
  EXPECT_FALSE(usage.has_reasoning_tokens());
}

TEST(AnswerWriter, ACallThatAStopStringCutsIsNoReasonToFinish) {
  testing::ByteTokenizer tokenizer;
  const AnswerOptions options{
      .shown = {.tools = engine::ToolFormat::kHermes, .stream_tool_calls = true}};
  const std::string call = R"(<tool_call>{"name":"f","arguments":{}}</tool_call>)";
  const auto finish = [&](const std::string& text) {
    AnswerWriter writer(&tokenizer, options);
    writer.Take({.tokens = Tokens(text), .ends = {{.matched_stop = "x"}}});
    v1::GenerateResponse message;
    EXPECT_TRUE(writer.Fill(&message));
    EXPECT_GT(message.choices(0).tool_calls_size(), 0);
    return message.choices(0).finish_reason();
  };
  EXPECT_EQ(finish(call), v1::FINISH_REASON_TOOL_CALLS);
  EXPECT_EQ(finish(R"(<tool_call>{"name":"f","arguments":{})"), v1::FINISH_REASON_TOOL_CALLS);
  EXPECT_EQ(finish(R"(<tool_call>{"name":"f","arguments":{"a":)"), v1::FINISH_REASON_STOP);
  EXPECT_EQ(finish(call + R"(<tool_call>{"name":"f","arguments":{"a":)"), v1::FINISH_REASON_STOP);
  EXPECT_EQ(finish(R"(<tool_call>{"name":"f","arguments":{</tool_call>)" + call),
            v1::FINISH_REASON_TOOL_CALLS);
}

TEST(AnswerWriter, TellsThePromptBesideTheChoicesOrInThem) {
  testing::ByteTokenizer tokenizer;
  for (const bool echo : {false, true}) {
    const AnswerOptions options{.echo = echo, .prompt_token_ids = true, .prompt_logprobs = !echo};
    AnswerWriter writer(&tokenizer, options);
    engine::TokenEvent prompt = Token(0, 'p');
    prompt.from_prompt = true;
    prompt.logprob = engine::TokenLogprob{prompt.token, -1.5f, 2};
    v1::GenerateResponse message;
    writer.Take({.tokens = {prompt}});
    EXPECT_TRUE(writer.Fill(&message));
    EXPECT_THAT(message.prompt_token_ids(), ElementsAre('p'));
    ASSERT_EQ(message.prompt_logprobs_size(), echo ? 0 : 1);
    EXPECT_EQ(message.choices_size(), echo ? 1 : 0);
    for (const auto& told : message.prompt_logprobs()) EXPECT_EQ(told.logprob(), -1.5f);
    writer.Take({.tokens = {Token(0, 'a')}});
    EXPECT_TRUE(writer.Fill(&message));
    EXPECT_EQ(message.prompt_token_ids_size() + message.prompt_logprobs_size(), 0);
    EXPECT_EQ(message.choices(0).text(), "a");
  }
}

// Not the difference of the other two: without a prefix cache nothing is written.
TEST(AnswerWriter, TellsWhatARequestAddsToTheCache) {
  testing::ByteTokenizer tokenizer;
  for (const int32_t written : {0, 2}) {
    v1::Usage out;
    AnswerWriter(&tokenizer, {})
        .FillUsage({.prompt_tokens = 5, .cached_tokens = 3, .written_tokens = written}, &out);
    EXPECT_EQ(out.cache_write_tokens(), written);
  }
}

TEST(AnswerWriter, ReportsACacheMissWhereItWasAskedFor) {
  testing::ByteTokenizer tokenizer;
  const engine::Usage usage{
      .prompt_tokens = 5, .cached_tokens = 3, .miss = {{engine::CacheMissReason::kEvicted, 3, 64}}};
  for (const bool report : {false, true}) {
    v1::Usage out;
    AnswerWriter(&tokenizer, {.cache_report = report}).FillUsage(usage, &out);
    EXPECT_EQ(out.cached_tokens(), 3);
    ASSERT_EQ(out.has_cache_miss(), report);
    if (!report) continue;
    EXPECT_EQ(out.cache_miss().reason(), v1::CACHE_MISS_REASON_EVICTED);
    EXPECT_EQ(out.cache_miss().at_token(), 3);
    EXPECT_EQ(out.cache_miss().evicted_tokens(), 64);
  }
}

// --- errors ---

google::rpc::Status Details(const ::grpc::Status& status) {
  google::rpc::Status details;
  EXPECT_TRUE(details.ParseFromString(status.error_details()));
  return details;
}

TEST(GrpcStatus, EveryCodeHasItsOwnAnswer) {
  using Code = absl::StatusCode;
  const std::pair<Code, ::grpc::StatusCode> kCodes[] = {
      {Code::kInvalidArgument, ::grpc::INVALID_ARGUMENT},
      {Code::kNotFound, ::grpc::NOT_FOUND},
      {Code::kDeadlineExceeded, ::grpc::DEADLINE_EXCEEDED},
      {Code::kUnauthenticated, ::grpc::UNAUTHENTICATED},
      {Code::kPermissionDenied, ::grpc::PERMISSION_DENIED},
      {Code::kResourceExhausted, ::grpc::RESOURCE_EXHAUSTED},
      {Code::kFailedPrecondition, ::grpc::FAILED_PRECONDITION},
      {Code::kOutOfRange, ::grpc::OUT_OF_RANGE},
      {Code::kAlreadyExists, ::grpc::ALREADY_EXISTS},
      {Code::kAborted, ::grpc::ABORTED},
      {Code::kUnimplemented, ::grpc::UNIMPLEMENTED},
      {Code::kUnavailable, ::grpc::UNAVAILABLE},
      {Code::kCancelled, ::grpc::UNAVAILABLE},
      {Code::kInternal, ::grpc::INTERNAL},
      {Code::kDataLoss, ::grpc::INTERNAL},
      {Code::kUnknown, ::grpc::INTERNAL},
  };
  for (const auto& [code, expected] : kCodes) {
    const ::grpc::Status status = GrpcStatusOf(absl::Status(code, "why"));
    EXPECT_EQ(status.error_code(), expected);
    EXPECT_EQ(Details(status).code(), expected);
    const bool hidden = expected == ::grpc::INTERNAL;
    EXPECT_EQ(status.error_message().find("why") == std::string::npos, hidden);
  }
  EXPECT_TRUE(GrpcStatusOf(absl::OkStatus()).ok());
}

TEST(GrpcStatus, DetailsNameFieldReasonAndWaitingTime) {
  google::rpc::BadRequest bad;
  google::rpc::ErrorInfo info;
  google::rpc::RetryInfo retry;
  const auto invalid = Details(GrpcStatusOf(InvalidField("n", "'n' is wrong")));
  ASSERT_EQ(invalid.details_size(), 2);
  ASSERT_TRUE(invalid.details(1).UnpackTo(&bad));
  EXPECT_EQ(bad.field_violations(0).field(), "n");
  EXPECT_EQ(bad.field_violations(0).description(), "'n' is wrong");
  const auto busy = Details(GrpcStatusOf(absl::ResourceExhaustedError("full")));
  ASSERT_EQ(busy.details_size(), 2);
  ASSERT_TRUE(busy.details(0).UnpackTo(&info));
  EXPECT_EQ(info.reason(), "OVERLOADED");
  EXPECT_EQ(info.domain(), "refrain");
  ASSERT_TRUE(busy.details(1).UnpackTo(&retry));
  EXPECT_GT(retry.retry_delay().seconds(), 0);
}

TEST(GrpcStatus, LongOrIllFormedMessagesFitIntoMetadata) {
  const auto status = GrpcStatusOf(InvalidField("n", std::string(1'000'000, '\xe2') + "x"));
  EXPECT_LT(3 * status.error_message().size() + status.error_details().size() * 4 / 3, 8'000u);
  EXPECT_EQ(Details(status).message(), status.error_message());
}

}  // namespace
}  // namespace refrain::server::rpc
