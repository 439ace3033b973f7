// What gRPC calls cost the server: threads, places of their keys, memory.

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <iterator>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "proto/admin.grpc.pb.h"
#include "proto/inference.grpc.pb.h"
#include "server/access/gate.h"
#include "server/grpc/server.h"
#include "server/log.h"
#include "tests/support/counting_gate.h"
#include "tests/support/eventually.h"
#include "tests/support/fake_engine.h"

namespace refrain::server::rpc {
namespace {

using namespace std::chrono_literals;
using ::grpc::ClientContext;
using ::grpc::StatusCode;
using ::refrain::testing::Eventually;

// Lets nobody more in.
class FullGate final : public access::Gate {
 public:
  absl::StatusOr<access::Principal> Authenticate(access::Area, std::string_view) const override {
    return access::Principal{.key_name = "team-a"};
  }
  absl::StatusOr<access::Ticket> Admit(const access::Principal&) override {
    return absl::ResourceExhaustedError("too many requests at once");
  }
};

// Who comes waits at it, on a thread of the server's.
class ShutGate final : public access::Gate {
 public:
  absl::StatusOr<access::Principal> Authenticate(access::Area, std::string_view) const override {
    return access::Principal{};
  }
  absl::StatusOr<access::Ticket> Admit(const access::Principal&) override {
    ++came;
    while (!open) std::this_thread::sleep_for(1ms);
    return access::Ticket();
  }

  std::atomic<int> came{0};
  std::atomic<bool> open{false};
};

class GrpcCallsTest : public ::testing::Test {
 public:
  ~GrpcCallsTest() override {
    if (server_ != nullptr) server_->Stop(0ms);
  }

 protected:
  void Start(ServerOptions options = {}, access::Gate* gate = nullptr) {
    options.host = "127.0.0.1";
    server_ = *Server::Start(options, gate == nullptr ? &counting_gate_ : gate, &log_);
    server_->SetEngine(&engine_);
    channel_ = ::grpc::CreateChannel("127.0.0.1:" + std::to_string(server_->port()),
                                     ::grpc::InsecureChannelCredentials());
    inference_ = v1::Inference::NewStub(channel_);
    admin_ = v1::Admin::NewStub(channel_);
  }

  static v1::GenerateRequest Text(std::string text) {
    v1::GenerateRequest request;
    request.mutable_text()->set_text(std::move(text));
    return request;
  }

  StatusCode Generate(std::string text) {
    ClientContext context;
    const auto reader = inference_->Generate(&context, Text(std::move(text)));
    v1::GenerateResponse message;
    while (reader->Read(&message)) {
    }
    return reader->Finish().error_code();
  }

  StatusCode Tokenize(std::string text, size_t* tokens = nullptr) {
    ClientContext context;
    v1::TokenizeRequest request;
    request.set_text(std::move(text));
    v1::TokenizeResponse response;
    const ::grpc::Status status = inference_->Tokenize(&context, request, &response);
    if (tokens != nullptr) *tokens = static_cast<size_t>(response.token_ids_size());
    return status.error_code();
  }

  Log log_{LogFormat::kText, LogLevel::kError};
  testing::CountingGate counting_gate_;
  FullGate full_gate_;
  ShutGate shut_gate_;
  testing::FakeEngine engine_;
  std::mutex details_mutex_;
  std::vector<std::string> details_;  // CallRecord's, where a test keeps them
  std::unique_ptr<Server> server_;
  std::shared_ptr<::grpc::Channel> channel_;
  std::unique_ptr<v1::Inference::Stub> inference_;
  std::unique_ptr<v1::Admin::Stub> admin_;
};

// Those of gRPC are woken up for what only comes later: each message would take two changes more.
// Two threads that write to one connection would wait for each other.
TEST_F(GrpcCallsTest, AConnectionsAnswersAreBroughtOnByOneThreadOfOurs) {
  std::mutex mutex;
  std::set<pid_t> tellers;  // of messages that are out, but for gRPC's threads
  ServerOptions options;
  options.stream_threads = 2;
  options.on_message_sent = [&](std::chrono::nanoseconds) {
    char name[16] = "";
    ::pthread_getname_np(::pthread_self(), name, sizeof(name));
    const std::string_view thread = name;
    if (thread == "nexting_thread" || thread == "default-executo") return;
    const std::lock_guard<std::mutex> lock(mutex);
    tellers.insert(::gettid());
  };
  const auto count = [&] {
    const std::lock_guard<std::mutex> lock(mutex);
    return tellers.size();
  };
  Start(options);
  // A client that answers while the server is still sending has the library's threads tell; on a
  // busy machine most do.
  const auto ask_until = [&](size_t wanted, int most_calls, auto&& before) {
    for (int i = 0; i < most_calls && count() < wanted; ++i) {
      before();
      EXPECT_EQ(Generate("[[delay_ms=1]]twenty characters..."), StatusCode::OK);
    }
  };
  ask_until(2, 20, [] {});
  EXPECT_EQ(count(), 1u);
  ask_until(2, 200, [&] {
    ::grpc::ChannelArguments own;
    own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    inference_ = v1::Inference::NewStub(::grpc::CreateCustomChannel(
        "127.0.0.1:" + std::to_string(server_->port()), ::grpc::InsecureChannelCredentials(), own));
  });
  server_->Stop(1s);
  EXPECT_EQ(count(), 2u);
}

TEST_F(GrpcCallsTest, OneThatIsCancelledBeforeItsFirstTokenIsChargedWhatWasComputed) {
  Start();
  const std::string prompt = "[[hold]]abcdef";
  ClientContext context;
  const auto reader = inference_->Generate(&context, Text(prompt));
  ASSERT_TRUE(engine_.WaitForRunning(1));
  std::this_thread::sleep_for(50ms);  // the call waits for a token by then
  engine_.TellUsage();
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), StatusCode::CANCELLED);
  EXPECT_TRUE(server_->WaitUntilAnswered(std::chrono::steady_clock::now() + 10s));
  EXPECT_EQ(counting_gate_.charged_tokens(), static_cast<int64_t>(prompt.size()));
}

// An echoed prompt is no answer; an end token is one.
TEST_F(GrpcCallsTest, RecordsAFirstTokenOnlyWhereOneWasGenerated) {
  ServerOptions options;
  options.on_call = [this](const CallRecord& call) {
    const std::lock_guard lock(details_mutex_);
    details_.push_back(call.details);
  };
  Start(options);
  struct Case {
    int32_t max_tokens;
    std::optional<int32_t> stop_token_id;
  };
  int answers = 0;
  for (const auto& [max_tokens, stop_token_id] : {Case{0, {}}, Case{1, {}}, Case{1, 'a'}}) {
    v1::GenerateRequest request = Text("abc");
    request.mutable_params()->set_echo(true);
    v1::Stop* const stop = request.mutable_params()->mutable_stop();
    stop->set_max_tokens(max_tokens);
    if (stop_token_id.has_value()) stop->add_stop_token_ids(*stop_token_id);
    ClientContext context;
    const auto reader = inference_->Generate(&context, request);
    v1::GenerateResponse message;
    while (reader->Read(&message)) {
    }
    ASSERT_TRUE(reader->Finish().ok());
    ++answers;
    ASSERT_TRUE(Eventually([&] {
      const std::lock_guard lock(details_mutex_);
      return std::ssize(details_) == answers;
    }));
    const std::lock_guard lock(details_mutex_);
    EXPECT_EQ(details_.back().find("first_token_ms") != std::string::npos, max_tokens > 0)
        << details_.back();
  }
}

TEST_F(GrpcCallsTest, TokenizesALongText) {
  Start();
  size_t tokens = 0;
  EXPECT_EQ(Tokenize(std::string(100'000, 'a'), &tokens), StatusCode::OK);
  EXPECT_EQ(tokens, 100'000u);
}

TEST_F(GrpcCallsTest, TokenisationCountsAmongTheRequestsOfItsKey) {
  Start({}, &full_gate_);
  EXPECT_EQ(Tokenize("abc"), StatusCode::RESOURCE_EXHAUSTED);
  ClientContext context;
  v1::DetokenizeRequest request;
  request.add_token_ids(97);
  v1::DetokenizeResponse response;
  EXPECT_EQ(inference_->Detokenize(&context, request, &response).error_code(),
            StatusCode::RESOURCE_EXHAUSTED);
}

// As where there is no memory: the process would end, and all calls with it.
TEST_F(GrpcCallsTest, AnExceptionEndsItsCallAlone) {
  Start();
  ClientContext held_context;
  const auto held = inference_->Generate(&held_context, Text("[[hold]]abc"));
  ASSERT_TRUE(engine_.WaitForRunning(1));
  EXPECT_EQ(Generate("[[throw]]"), StatusCode::INTERNAL);
  EXPECT_EQ(Tokenize("[[throw]]"), StatusCode::INTERNAL);
  EXPECT_EQ(Generate("[[throw]]" + std::string(100 << 10, 'a')), StatusCode::INTERNAL);
  EXPECT_EQ(Generate("abc"), StatusCode::OK);
  engine_.SetOnPin([] { throw std::bad_alloc(); });
  ClientContext context;
  v1::PinRequest pin;
  pin.mutable_prompt()->mutable_text()->set_text("abc");
  v1::PinResponse pinned;
  EXPECT_EQ(admin_->Pin(&context, pin, &pinned).error_code(), StatusCode::INTERNAL);
  EXPECT_EQ(Generate("abc"), StatusCode::OK);
  held_context.TryCancel();
  EXPECT_EQ(held->Finish().error_code(), StatusCode::CANCELLED);
  EXPECT_TRUE(server_->WaitUntilAnswered(std::chrono::steady_clock::now() + 10s));
}

// gRPC inflates a message before anything of ours sees it.
TEST_F(GrpcCallsTest, CompressedMessagesAreRefused) {
  Start();
  for (const auto algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    ClientContext context;
    context.set_compression_algorithm(algorithm);
    v1::TokenizeRequest request;
    request.set_text(std::string(10'000, 'a'));
    v1::TokenizeResponse response;
    const ::grpc::Status status = inference_->Tokenize(&context, request, &response);
    EXPECT_EQ(status.error_code(), StatusCode::UNIMPLEMENTED) << status.error_message();
  }
  EXPECT_EQ(engine_.tokenized(), 0);
  EXPECT_EQ(Tokenize("abc"), StatusCode::OK);
}

// A call that runs has its message in memory.
TEST_F(GrpcCallsTest, RefusesMoreBytesOfMessagesThanItMayHold) {
  Start({.messages_bytes = 150 << 10});
  const std::string large(100 << 10, 'a');
  {
    ClientContext context;
    const auto held = inference_->Generate(&context, Text("[[hold]]" + large));
    ASSERT_TRUE(engine_.WaitForRunning(1));
    EXPECT_EQ(Generate(large), StatusCode::UNAVAILABLE);
    EXPECT_EQ(Tokenize(large), StatusCode::UNAVAILABLE);
    EXPECT_EQ(Tokenize(std::string(16'000, 'a')), StatusCode::UNAVAILABLE);
    EXPECT_EQ(Generate(large + large), StatusCode::INVALID_ARGUMENT) << "to come back is no use";
    EXPECT_EQ(Tokenize("small"), StatusCode::OK);
    context.TryCancel();
    held->Finish();
  }
  EXPECT_TRUE(Eventually([&] {
    return Tokenize(std::string(16'000, 'a')) == StatusCode::OK;  // whose ids are 112 KB
  }));
}

// They are tokens, too, as long as the request waits or runs.
TEST_F(GrpcCallsTest, CountsBadWordsAsTokens) {
  Start({.messages_bytes = 60 << 10});
  v1::GenerateRequest request = Text("[[hold]]");
  for (int i = 0; i < 20; ++i) {
    request.mutable_params()->mutable_sampling()->add_bad_words(std::string(200, 'z'));
  }
  ClientContext first, second;
  const auto held = inference_->Generate(&first, request);
  ASSERT_TRUE(engine_.WaitForRunning(1));
  second.set_deadline(std::chrono::system_clock::now() + 5s);  // were it not refused
  const auto refused = inference_->Generate(&second, request);
  EXPECT_EQ(refused->Finish().error_code(), StatusCode::UNAVAILABLE);
  EXPECT_EQ(Generate("small"), StatusCode::OK);
  first.TryCancel();
  held->Finish();
}

// What a message takes counts, not what it is long: an empty element is two bytes.
TEST_F(GrpcCallsTest, RefusesMessagesWhoseElementsTakeMoreThanItMayHold) {
  Start({.messages_bytes = 300 << 10});
  const auto generate = [&](int bad_words) {
    v1::GenerateRequest request = Text("hello");
    for (int i = 0; i < bad_words; ++i)
      request.mutable_params()->mutable_sampling()->add_bad_words("");
    ClientContext context;
    v1::GenerateResponse message;
    const auto reader = inference_->Generate(&context, request);
    while (reader->Read(&message)) {
    }
    const ::grpc::Status status = reader->Finish();
    EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT);
    const bool takes = status.error_message().find("bytes of memory") != std::string::npos;
    return std::string(takes ? "takes" : "empty");  // of which a bad word must not be
  };
  EXPECT_EQ(generate(1), "empty");
  EXPECT_EQ(generate(8'000), "takes");  // 16,000 bytes
  EXPECT_EQ(generate(1'000), "empty");
}

// Nor is it read then: this one could not be.
TEST_F(GrpcCallsTest, CountsWhatElementsTakeBeforeItReadsThem) {
  Start({.messages_bytes = 300 << 10});
  const auto tokenize = [&](int elements) {
    v1::TokenizeRequest request;
    for (int i = 0; i < elements; ++i) {
      request.GetReflection()->MutableUnknownFields(&request)->AddLengthDelimited(15, "");
    }
    const ::grpc::Slice cut_off(request.SerializeAsString() + "\x08");
    ::grpc::ByteBuffer bytes(&cut_off, 1), answer;
    ::grpc::GenericStub stub(channel_);
    ClientContext context;
    std::promise<::grpc::Status> ended;
    stub.UnaryCall(&context, "/refrain.v1.Inference/Tokenize", {}, &bytes, &answer,
                   [&](const ::grpc::Status& status) { ended.set_value(status); });
    const ::grpc::Status status = ended.get_future().get();
    EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT);
    return status.error_message().find("bytes of memory") != std::string::npos;
  };
  EXPECT_FALSE(tokenize(1));
  EXPECT_TRUE(tokenize(10'000));  // 20,000 bytes
  EXPECT_FALSE(tokenize(1));
}

// Who cancels can send the next large one at once.
TEST_F(GrpcCallsTest, OfACallThatIsCancelledBeforeItsTurnTheMessageIsNotRead) {
  ServerOptions options{.log_prompts = true};
  options.on_call = [this](const CallRecord& call) {
    const std::lock_guard lock(details_mutex_);
    details_.push_back(call.details);
  };
  Start(options, &shut_gate_);
  const std::string large(20'000, 'a');
  std::vector<std::future<StatusCode>> first;
  for (int i = 0; i < 2; ++i) {  // all threads that read such messages
    first.push_back(std::async(std::launch::async, [&] { return Generate(large); }));
  }
  ASSERT_TRUE(Eventually([&] { return shut_gate_.came == 2; }));
  ClientContext context;
  const auto cancelled = inference_->Generate(&context, Text(large));
  std::this_thread::sleep_for(200ms);  // it waits behind them by then
  context.TryCancel();
  EXPECT_EQ(cancelled->Finish().error_code(), StatusCode::CANCELLED);
  std::this_thread::sleep_for(200ms);  // the server knows
  shut_gate_.open = true;
  for (auto& call : first) call.wait();
  ASSERT_TRUE(Eventually([&] {
    const std::lock_guard lock(details_mutex_);
    return details_.size() == 3;
  }));
  const std::lock_guard lock(details_mutex_);
  EXPECT_EQ(std::ranges::count_if(details_,
                                  [](const std::string& details) {
                                    return details.find("\"body\"") != std::string::npos;
                                  }),
            2);
}

// As over HTTP: a large message waits for a thread that reads it.
TEST_F(GrpcCallsTest, ACallsTimeRunsFromItsBeginning) {
  Start({}, &shut_gate_);
  const auto begin = std::chrono::steady_clock::now();
  for (const bool has_timeout : {true, false}) {
    v1::GenerateRequest request = Text("a");
    if (has_timeout) request.mutable_params()->set_timeout_s(30);
    ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + (has_timeout ? 100s : 20s));
    shut_gate_.open = false;
    const int came = shut_gate_.came;
    const auto reader = inference_->Generate(&context, request);
    ASSERT_TRUE(Eventually([&] { return shut_gate_.came > came; }));
    const auto there = std::chrono::steady_clock::now();
    std::this_thread::sleep_for(300ms);
    shut_gate_.open = true;
    v1::GenerateResponse message;
    while (reader->Read(&message)) continue;
    EXPECT_TRUE(reader->Finish().ok());
    const engine::Request submitted = engine_.last_request();
    ASSERT_TRUE(submitted.arrived.has_value());
    EXPECT_GE(*submitted.arrived, begin);
    EXPECT_LE(*submitted.arrived, there);
    EXPECT_NEAR(*submitted.timeout_s, has_timeout ? 30 : 20, 0.25);
  }
}

TEST_F(GrpcCallsTest, RefusesToTokenizeMoreThanItMayHold) {
  Start({.messages_bytes = 150 << 10});
  // A call's bytes are free when its answer has been sent.
  const auto tokenize = [&](size_t bytes) {
    const StatusCode code = Tokenize(std::string(bytes, 'a'));
    EXPECT_TRUE(server_->WaitUntilAnswered(std::chrono::steady_clock::now() + 10s));
    return code;
  };
  for (int i = 0; i < 10; ++i) EXPECT_EQ(tokenize(16'000), StatusCode::OK);
  EXPECT_EQ(tokenize(30'000), StatusCode::INVALID_ARGUMENT);  // 210 KB of ids
  EXPECT_EQ(tokenize(16'000), StatusCode::OK);
}

TEST_F(GrpcCallsTest, RefusesToDetokenizeMoreThanItMayHold) {
  Start({.messages_bytes = 150 << 10});
  const auto detokenize = [&](int count) {
    v1::DetokenizeRequest request;
    for (int i = 0; i < count; ++i) {
      request.add_token_ids(static_cast<int>(testing::ByteTokenizer::kEos));
    }
    ClientContext context;
    v1::DetokenizeResponse response;
    const StatusCode code = inference_->Detokenize(&context, request, &response).error_code();
    EXPECT_TRUE(server_->WaitUntilAnswered(std::chrono::steady_clock::now() + 10s));
    return code;
  };
  EXPECT_EQ(detokenize(8'000), StatusCode::OK);
  EXPECT_EQ(detokenize(40'000), StatusCode::INVALID_ARGUMENT);  // 200 KB of text
  EXPECT_EQ(detokenize(8'000), StatusCode::OK);
  EXPECT_EQ(detokenize((1 << 20) + 1), StatusCode::INVALID_ARGUMENT);  // the message alone
}

TEST_F(GrpcCallsTest, DetokenizesBoundedlyManyIds) {
  Start();
  v1::DetokenizeRequest request;
  for (int i = 0; i <= 1 << 20; ++i) request.add_token_ids('a');
  ClientContext context;
  v1::DetokenizeResponse response;
  EXPECT_EQ(inference_->Detokenize(&context, request, &response).error_code(),
            StatusCode::INVALID_ARGUMENT);
}

// Scenario: the key is removed between when the call is let in and when it is submitted.
TEST_F(GrpcCallsTest, EndsWhereItsKeyWentAsItWasSubmitted) {
  Start();
  counting_gate_.removed = true;
  ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + 30s);
  const auto reader = inference_->Generate(&context, Text("[[hold]]x"));
  v1::GenerateResponse message;
  EXPECT_FALSE(reader->Read(&message));
  EXPECT_EQ(reader->Finish().error_code(), StatusCode::UNAUTHENTICATED);
  EXPECT_TRUE(engine_.WaitForCancelled(1));
}

// Their prompts are not computed yet; other administration goes on, and so do they when they may.
TEST_F(GrpcCallsTest, WarmCallsThatWaitHoldNobodyUp) {
  Start();
  v1::WarmRequest request;
  request.mutable_prompt()->mutable_text()->set_text("[[hold]]warm");
  constexpr int kWaiting = 5;  // more than there are threads for administration
  std::vector<std::unique_ptr<ClientContext>> contexts;
  std::vector<std::future<StatusCode>> warms;
  for (int i = 0; i < kWaiting; ++i) {
    contexts.push_back(std::make_unique<ClientContext>());
    warms.push_back(std::async(std::launch::async, [&, context = contexts.back().get()] {
      v1::WarmResponse response;
      return admin_->Warm(context, request, &response).error_code();
    }));
  }
  ASSERT_TRUE(engine_.WaitForRunning(kWaiting));
  {
    ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + 5s);
    v1::ListPinsResponse pins;
    EXPECT_TRUE(admin_->ListPins(&context, {}, &pins).ok());
  }
  {
    ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + 5s);
    v1::WarmRequest quick;
    quick.mutable_prompt()->mutable_text()->set_text("warm");
    quick.set_pin(true);
    v1::WarmResponse response;
    EXPECT_TRUE(admin_->Warm(&context, quick, &response).ok());
    EXPECT_EQ(response.prompt_tokens(), 4);
    EXPECT_EQ(response.pin().pinned_tokens(), 4);
  }
  for (const auto& context : contexts) context->TryCancel();
  EXPECT_TRUE(engine_.WaitForCancelled(kWaiting));
  for (auto& warm : warms) EXPECT_EQ(warm.get(), StatusCode::CANCELLED);
}

// The engine pins between two steps, which may take seconds: who has gone by then never learns the
// id.
TEST_F(GrpcCallsTest, CallsThatAreCancelledLeaveNoPin) {
  Start();
  ASSERT_EQ(Generate("shared"), StatusCode::OK);
  ClientContext* calling = nullptr;
  engine_.SetOnPin([&] {
    calling->TryCancel();
    std::this_thread::sleep_for(200ms);  // the cancellation is on its way
  });
  const auto num_pins = [&] {
    ClientContext context;
    v1::ListPinsResponse list;
    EXPECT_TRUE(admin_->ListPins(&context, {}, &list).ok());
    return list.pins_size();
  };
  v1::WarmRequest warm;
  warm.mutable_prompt()->mutable_text()->set_text("shared");
  warm.set_pin(true);
  v1::WarmResponse warmed;
  v1::PinRequest pin;
  *pin.mutable_prompt() = warm.prompt();
  v1::PinResponse pinned;
  for (const bool warms : {true, false}) {
    ClientContext context;
    calling = &context;
    EXPECT_EQ((warms ? admin_->Warm(&context, warm, &warmed) : admin_->Pin(&context, pin, &pinned))
                  .error_code(),
              StatusCode::CANCELLED);
    EXPECT_TRUE(Eventually([&] { return num_pins() == 0; })) << warms;
  }
}

}  // namespace
}  // namespace refrain::server::rpc
