// The gRPC front end over real sockets, with an engine that repeats its prompt.

#include "server/grpc/server.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "proto/admin.grpc.pb.h"
#include "proto/error_details.pb.h"
#include "proto/inference.grpc.pb.h"
#include "tests/server/grpc/health_check.h"
#include "tests/support/eventually.h"
#include "tests/support/fake_engine.h"

namespace refrain::server::rpc {
namespace {

using namespace std::chrono_literals;
using ::grpc::ClientContext;
using ::refrain::testing::Eventually;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

// "Bearer inference" opens inference, "Bearer admin" both; "Bearer busy" is over its limits.
class TestGate final : public access::Gate {
 public:
  absl::StatusOr<access::Principal> Authenticate(access::Area area,
                                                 std::string_view key) const override {
    if (key != "Bearer inference" && key != "Bearer admin" && key != "Bearer busy") {
      return absl::UnauthenticatedError("a key is needed");
    }
    if (area == access::Area::kAdmin && key != "Bearer admin") {
      return absl::PermissionDeniedError("not an administration key");
    }
    return access::Principal{.key_name = std::string(key.substr(7)), .weight = 2.5};
  }
  absl::StatusOr<access::Ticket> Admit(const access::Principal& principal) override {
    if (principal.key_name == "busy") return absl::ResourceExhaustedError("too many requests");
    return access::Ticket();
  }
};

// A running server and a client of it.
class Running {
 public:
  explicit Running(std::unique_ptr<access::Gate> gate = access::MakeOpenGate(), bool loaded = true)
      : gate_(std::move(gate)) {
    ServerOptions options;
    options.host = "127.0.0.1";
    auto started = Server::Start(options, gate_.get(), &log_);
    EXPECT_TRUE(started.ok()) << started.status();
    server = *std::move(started);
    if (loaded) server->SetEngine(&engine);
    channel = ::grpc::CreateChannel("127.0.0.1:" + std::to_string(server->port()),
                                    ::grpc::InsecureChannelCredentials());
    inference = v1::Inference::NewStub(channel);
    admin = v1::Admin::NewStub(channel);
  }
  ~Running() { server->Stop(0ms); }

  int Health() const { return HealthOf(channel); }
  bool HealthBecomes(int expected) {
    return Eventually([&] { return Health() == expected; });
  }

  const std::unique_ptr<access::Gate> gate_;
  Log log_{LogFormat::kText, LogLevel::kError};
  testing::FakeEngine engine;
  std::unique_ptr<Server> server;
  std::shared_ptr<::grpc::Channel> channel;
  std::unique_ptr<v1::Inference::Stub> inference;
  std::unique_ptr<v1::Admin::Stub> admin;
};

v1::GenerateRequest TextRequest(std::string text, int max_tokens = 1000) {
  v1::GenerateRequest request;
  request.mutable_text()->set_text(std::move(text));
  request.mutable_params()->mutable_stop()->set_max_tokens(max_tokens);
  return request;
}

struct Answer {
  ::grpc::Status status;
  std::string text;
  std::vector<int> ids;
  int messages = 0;
  int messages_with_usage = 0;
  v1::GenerateResponse last;
};

Answer ReadAll(::grpc::ClientReader<v1::GenerateResponse>* reader) {
  Answer answer;
  v1::GenerateResponse message;
  while (reader->Read(&message)) {
    ++answer.messages;
    answer.messages_with_usage += message.has_usage() ? 1 : 0;
    for (const v1::ChoiceDelta& delta : message.choices()) {
      answer.text += delta.text();
      answer.ids.insert(answer.ids.end(), delta.token_ids().begin(), delta.token_ids().end());
    }
    answer.last = message;
  }
  answer.status = reader->Finish();
  return answer;
}

Answer Generate(v1::Inference::Stub& stub, const v1::GenerateRequest& request,
                const std::string& authorization = "") {
  ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + 20s);
  if (!authorization.empty()) context.AddMetadata("authorization", authorization);
  return ReadAll(stub.Generate(&context, request).get());
}

// --- answers ---

TEST(GrpcServer, StreamsWhatTheEngineSaysAndEndsWithUsage) {
  Running r;
  const Answer answer = Generate(*r.inference, TextRequest("[[delay_ms=40]]hello"));
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.text, "hello");
  EXPECT_THAT(answer.ids, ElementsAre('h', 'e', 'l', 'l', 'o'));
  EXPECT_GT(answer.messages, 1);
  EXPECT_EQ(answer.messages_with_usage, 1);
  EXPECT_EQ(answer.last.usage().completion_tokens(), 5);
  EXPECT_EQ(answer.last.choices(0).finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(answer.last.choices(0).stop_token_id(), 256);
}

TEST(GrpcServer, ChatAnswersTheLastMessage) {
  Running r;
  v1::ChatRequest request;
  for (const char* text : {"first", "second"}) {
    auto* const message = request.mutable_chat()->add_messages();
    message->set_role("user");
    message->set_content(text);
  }
  ClientContext context;
  const Answer answer = ReadAll(r.inference->Chat(&context, request).get());
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.text, "second");
  EXPECT_EQ(r.engine.last_request().stop.max_tokens, r.engine.model().max_context_tokens);
}

TEST(GrpcServer, LargeRequestsAreReadElsewhereAndAnsweredTheSame) {
  Running r;
  v1::GenerateRequest request = TextRequest("", 5);
  for (int i = 0; i < 3000; ++i) request.mutable_tokens()->add_ids('a');
  for (int i = 0; i < 16; ++i) {
    request.mutable_params()->mutable_stop()->add_stop(std::string(1024, 's'));
  }
  for (int i = 0; i < 1000; ++i) request.mutable_params()->mutable_stop()->add_stop_token_ids(200);
  ASSERT_GT(request.ByteSizeLong(), 16u * 1024);
  const Answer answer = Generate(*r.inference, request);
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.text, "aaaaa");
}

TEST(GrpcServer, RequestIdsAreTakenOverAndSentBack) {
  Running r;
  ClientContext context;
  context.AddMetadata("x-request-id", "my-id");
  ASSERT_TRUE(ReadAll(r.inference->Generate(&context, TextRequest("a")).get()).status.ok());
  EXPECT_EQ(context.GetServerInitialMetadata().find("x-request-id")->second, "my-id");
  EXPECT_EQ(r.engine.last_request().id, "my-id");
}

TEST(GrpcServer, TellsTokensTextAndModel) {
  Running r;
  v1::TokenizeRequest text;
  text.set_text(std::string(1 << 20, 'x'));
  v1::TokenizeResponse tokens;
  ClientContext tokenize;
  ASSERT_TRUE(r.inference->Tokenize(&tokenize, text, &tokens).ok());
  EXPECT_EQ(tokens.token_ids_size(), 1 << 20);
  EXPECT_EQ(tokens.max_context_tokens(), 4096);
  v1::DetokenizeRequest ids;
  for (const int id : {104, 105, 256}) ids.add_token_ids(id);
  v1::DetokenizeResponse back;
  ClientContext detokenize;
  ASSERT_TRUE(r.inference->Detokenize(&detokenize, ids, &back).ok());
  EXPECT_THAT(back.text(), HasSubstr("hi"));
  ids.add_token_ids(-1);
  ClientContext refused;
  EXPECT_EQ(r.inference->Detokenize(&refused, ids, &back).error_code(), ::grpc::INVALID_ARGUMENT);
  v1::ModelsResponse models;
  ClientContext list;
  ASSERT_TRUE(r.inference->Models(&list, {}, &models).ok());
  EXPECT_EQ(models.models(0).id(), "fake-model");
}

// --- flow ---

// 4,000 tokens with 20 alternatives each fill the connection's window many times over.
v1::GenerateRequest ManyBytes() {
  v1::GenerateRequest request = TextRequest("abcdefgh", 4000);
  request.mutable_params()->mutable_stop()->set_ignore_eos(true);
  request.mutable_params()->mutable_logprobs()->set_top(20);
  return request;
}

TEST(GrpcServer, ASlowReaderHoldsUpNobodyAndLosesNothing) {
  Running r;
  ClientContext slow;
  const auto reader = r.inference->Generate(&slow, ManyBytes());
  v1::GenerateResponse first;
  ASSERT_TRUE(reader->Read(&first));
  ASSERT_TRUE(r.engine.WaitForRunning(0));  // the engine did not wait for it either
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(Generate(*r.inference, TextRequest("fast")).text, "fast");
  }
  const Answer rest = ReadAll(reader.get());
  EXPECT_TRUE(rest.status.ok()) << rest.status.error_message();
  EXPECT_EQ(rest.ids.size() + first.choices(0).token_ids_size(), 4000u);
}

TEST(GrpcServer, ManyStreamsAtOnceAllComeThrough) {
  Running r;
  std::vector<std::future<Answer>> answers;
  for (int i = 0; i < 32; ++i) {
    answers.push_back(std::async(std::launch::async, [&r, i] {
      return Generate(*r.inference, TextRequest("[[delay_ms=1]]number " + std::to_string(i)));
    }));
  }
  for (int i = 0; i < 32; ++i) {
    const Answer answer = answers[i].get();
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_EQ(answer.text, "number " + std::to_string(i));
  }
}

// --- cancelling ---

TEST(GrpcServer, CancellingEndsARequestThatHasNoTokenYet) {
  Running r;
  ClientContext context;
  const auto reader = r.inference->Generate(&context, TextRequest("[[hold]]x"));
  ASSERT_TRUE(r.engine.WaitForRunning(1));
  context.TryCancel();
  EXPECT_TRUE(r.engine.WaitForCancelled(1));
  EXPECT_EQ(ReadAll(reader.get()).status.error_code(), ::grpc::CANCELLED);
}

TEST(GrpcServer, CancellingEndsARunningRequest) {
  Running r;
  ClientContext context;
  const auto reader =
      r.inference->Generate(&context, TextRequest("[[delay_ms=5]]" + std::string(900, 'x')));
  v1::GenerateResponse message;
  ASSERT_TRUE(reader->Read(&message));
  context.TryCancel();
  EXPECT_TRUE(r.engine.WaitForCancelled(1));
  EXPECT_EQ(ReadAll(reader.get()).status.error_code(), ::grpc::CANCELLED);
}

TEST(GrpcServer, CancellingEndsACallWhoseAnswerIsUnread) {
  Running r;
  ClientContext context;
  const auto reader = r.inference->Generate(&context, ManyBytes());
  v1::GenerateResponse message;
  ASSERT_TRUE(reader->Read(&message));
  ASSERT_TRUE(r.engine.WaitForRunning(0));
  context.TryCancel();
  const auto start = Clock::now();
  r.server->Stop(10s);  // waits for the calls that run
  EXPECT_LT(Clock::now() - start, 5s);
}

TEST(GrpcServer, TheDeadlineEndsAHeldRequestAndIsTheEnginesToo) {
  Running r;
  // The deadline is not for connecting.
  ASSERT_TRUE(Generate(*r.inference, TextRequest("first")).status.ok());
  v1::GenerateRequest request = TextRequest("[[hold]]x");
  request.mutable_params()->set_timeout_s(100);
  ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + 1s);
  const Answer answer = ReadAll(r.inference->Generate(&context, request).get());
  EXPECT_EQ(answer.status.error_code(), ::grpc::DEADLINE_EXCEEDED);
  EXPECT_TRUE(r.engine.WaitForCancelled(1));
  EXPECT_LT(r.engine.last_request().timeout_s.value_or(1e9), 2);  // gRPC's own is rounded up
  request.mutable_text()->set_text("x");
  request.mutable_params()->set_timeout_s(7);
  ASSERT_TRUE(Generate(*r.inference, request).status.ok());
  EXPECT_EQ(r.engine.last_request().timeout_s, 7);
}

// --- errors ---

TEST(GrpcServer, ErrorsHaveTheirCodeMessageAndDetails) {
  Running r;
  const struct {
    const char* prompt;
    ::grpc::StatusCode code;
    int details;
    const char* text;
  } kCases[] = {
      {"[[reject=8]]", ::grpc::RESOURCE_EXHAUSTED, 2, ""},
      {"[[reject=3]]", ::grpc::INVALID_ARGUMENT, 1, ""},
      {"[[reject=14]]", ::grpc::UNAVAILABLE, 2, ""},
      {"[[late=3]]", ::grpc::INVALID_ARGUMENT, 1, ""},
      {"[[late=4]]", ::grpc::DEADLINE_EXCEEDED, 1, ""},
      {"[[fail_after=2]]hello", ::grpc::INTERNAL, 1, "he"},
  };
  for (const auto& one : kCases) {
    const Answer answer = Generate(*r.inference, TextRequest(one.prompt));
    EXPECT_EQ(answer.status.error_code(), one.code) << one.prompt;
    EXPECT_EQ(answer.text, one.text) << one.prompt;
    EXPECT_EQ(answer.status.error_message().find("secret"), std::string::npos);
    google::rpc::Status details;
    ASSERT_TRUE(details.ParseFromString(answer.status.error_details()));
    EXPECT_EQ(details.details_size(), one.details) << one.prompt;
  }
  for (const char* prompt : {"[[late=3]]", "[[reject=3]]"}) {
    v1::GenerateRequest request = TextRequest(prompt);
    request.mutable_params()->mutable_structured_output()->set_regex("a");
    google::rpc::Status details;
    ASSERT_TRUE(details.ParseFromString(Generate(*r.inference, request).status.error_details()));
    google::rpc::BadRequest bad;
    ASSERT_EQ(details.details_size(), 2) << prompt;
    ASSERT_TRUE(details.details(1).UnpackTo(&bad));
    EXPECT_EQ(bad.field_violations(0).field(), "params.structured_output.regex");
  }
  // As the engine has measured it, also where it turns out late: a form for which there is no room.
  for (const char* prompt : {"[[come_back_s=23]][[reject=8]]", "[[come_back_s=23]][[late=8]]"}) {
    v1::GenerateRequest request = TextRequest(prompt);
    request.mutable_params()->mutable_structured_output()->set_regex("a");
    google::rpc::Status details;
    ASSERT_TRUE(details.ParseFromString(Generate(*r.inference, request).status.error_details()));
    google::rpc::RetryInfo retry;
    for (const auto& detail : details.details()) detail.UnpackTo(&retry);
    EXPECT_EQ(retry.retry_delay().seconds(), 23) << prompt;
  }
  const Answer wrong = Generate(*r.inference, TextRequest("x", -1));
  EXPECT_EQ(wrong.status.error_code(), ::grpc::INVALID_ARGUMENT);
  EXPECT_THAT(wrong.status.error_message(), HasSubstr("'max_tokens'"));
}

TEST(GrpcServer, OversizeMessagesAreRefusedAndTheConnectionLivesOn) {
  Running r;
  EXPECT_EQ(Generate(*r.inference, TextRequest(std::string(17 << 20, 'x'))).status.error_code(),
            ::grpc::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Generate(*r.inference, TextRequest("still")).text, "still");
}

// --- who may ---

TEST(GrpcServer, KeysOpenWhatTheyAreFor) {
  Running r(std::make_unique<TestGate>());
  const auto code = [&](const char* key) {
    return Generate(*r.inference, TextRequest("a"), key).status.error_code();
  };
  EXPECT_EQ(code(""), ::grpc::UNAUTHENTICATED);
  EXPECT_EQ(code("Bearer wrong"), ::grpc::UNAUTHENTICATED);
  EXPECT_EQ(code("Bearer busy"), ::grpc::RESOURCE_EXHAUSTED);
  EXPECT_EQ(r.engine.submitted(), 0);
  EXPECT_EQ(code("Bearer inference"), ::grpc::OK);
  EXPECT_EQ(r.engine.last_request().tenant, "inference");
  EXPECT_EQ(r.engine.last_request().tenant_weight, 2.5);
  const auto statistics = [&](const char* key) {
    ClientContext context;
    context.AddMetadata("authorization", key);
    v1::CacheStatisticsResponse response;
    return r.admin->CacheStatistics(&context, {}, &response).error_code();
  };
  EXPECT_EQ(statistics("Bearer inference"), ::grpc::PERMISSION_DENIED);
  EXPECT_EQ(statistics("Bearer admin"), ::grpc::OK);
  EXPECT_EQ(r.Health(), 1);  // needs no key
}

// --- life ---

TEST(GrpcServer, IsUnavailableWhileLoading) {
  Running r(access::MakeOpenGate(), false);
  EXPECT_EQ(r.Health(), 2);
  const Answer early = Generate(*r.inference, TextRequest("a"));
  EXPECT_EQ(early.status.error_code(), ::grpc::UNAVAILABLE);
  EXPECT_THAT(early.status.error_message(), HasSubstr("loading"));
  r.server->SetEngine(&r.engine);
  EXPECT_EQ(r.Health(), 1);
  EXPECT_EQ(Generate(*r.inference, TextRequest("a")).text, "a");
}

TEST(GrpcServer, HealthTellsOfADeadEngine) {
  Running r;
  r.engine.Die(absl::InternalError("broken"));
  EXPECT_TRUE(r.HealthBecomes(2));
}

TEST(GrpcServer, DrainingRefusesNewCallsAndBreaksNoStream) {
  Running r;
  std::vector<std::future<Answer>> running;
  for (int i = 0; i < 8; ++i) {
    running.push_back(std::async(std::launch::async, [&r] {
      return Generate(*r.inference, TextRequest("[[delay_ms=2]]" + std::string(200, 'x')));
    }));
  }
  ASSERT_TRUE(r.engine.WaitForRunning(8));
  r.server->BeginDrain();
  EXPECT_EQ(r.Health(), 2);
  const Answer refused = Generate(*r.inference, TextRequest("late"));
  EXPECT_EQ(refused.status.error_code(), ::grpc::UNAVAILABLE);
  EXPECT_THAT(refused.status.error_message(), HasSubstr("shutting down"));
  r.server->Stop(20s);
  for (auto& one : running) {
    const Answer answer = one.get();
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_EQ(answer.text, std::string(200, 'x'));
  }
}

TEST(GrpcServer, StopWithoutGraceEndsHeldCalls) {
  Running r;
  auto held = std::async(std::launch::async,
                         [&r] { return Generate(*r.inference, TextRequest("[[hold]]x")); });
  ASSERT_TRUE(r.engine.WaitForRunning(1));
  const auto start = Clock::now();
  r.server->Stop(0ms);
  EXPECT_LT(Clock::now() - start, 5s);
  EXPECT_THAT(held.get().status.error_code(), AnyOf(::grpc::UNAVAILABLE, ::grpc::CANCELLED));
  EXPECT_TRUE(r.engine.WaitForCancelled(1));
}

TEST(GrpcServer, TwoServersOfOneProcessDoNotMeet) {
  Running a;
  Running b;
  EXPECT_NE(a.server->port(), b.server->port());
  EXPECT_EQ(Generate(*a.inference, TextRequest("to a")).text, "to a");
  EXPECT_EQ(Generate(*b.inference, TextRequest("to b")).text, "to b");
  EXPECT_EQ(a.engine.submitted(), 1);
  EXPECT_EQ(b.engine.submitted(), 1);
}

TEST(GrpcServer, APortThatIsTakenIsAnError) {
  Running r;
  ServerOptions options;
  options.host = "127.0.0.1";
  options.port = r.server->port();
  const auto second = Server::Start(options, r.gate_.get(), &r.log_);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(std::to_string(options.port)));
}

}  // namespace
}  // namespace refrain::server::rpc
