// refrain.v1.Admin over real sockets, with an engine that repeats its prompt.

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "proto/admin.grpc.pb.h"
#include "proto/inference.grpc.pb.h"
#include "server/access/account.h"
#include "server/access/gate.h"
#include "tests/server/grpc/server_fixture.h"
#include "tests/support/eventually.h"

namespace refrain::server::rpc {
namespace {

using namespace std::chrono_literals;
using ::grpc::ClientContext;
using ::testing::HasSubstr;

// Lets everybody in; there is a key of the name "them".
class GateOfThem final : public access::Gate {
 public:
  absl::StatusOr<access::Principal> Authenticate(access::Area, std::string_view) const override {
    return access::Principal{};
  }
  absl::StatusOr<access::Ticket> Admit(const access::Principal&) override {
    return access::Ticket();
  }
  std::optional<double> WeightOf(std::string_view key_name) const override {
    return key_name == "them" ? std::optional<double>(2.5) : std::nullopt;
  }
  access::Ticket UsageOf(std::string_view key_name) override {
    return access::Ticket::OfUsageAlone(key_name == "them" ? them_ : nullptr);
  }

  absl::Status StillHas(std::string_view key_name) const override {
    return removed && key_name == "them" ? absl::UnauthenticatedError("removed") : absl::OkStatus();
  }

  std::atomic<bool> removed{false};  // their key, after WeightOf

  int64_t charged_tokens() const { return them_->tokens; }

 private:
  struct Account final : public access::Ticket::Account {
    void Leave() override { ADD_FAILURE() << "no place was taken"; }
    void Charge(int64_t charged) override { tokens += charged; }

    std::atomic<int64_t> tokens{0};
  };

  const std::shared_ptr<Account> them_ = std::make_shared<Account>();
};

v1::CachedPrompt Prompt(const char* text) {
  v1::CachedPrompt prompt;
  prompt.mutable_text()->set_text(text);
  return prompt;
}

class GrpcAdministration : public GrpcServerTest {
 protected:
  GrpcAdministration() : GrpcServerTest(std::make_unique<GateOfThem>()) {}

  void SetUp() override { Start(); }

  void Start(ServerOptions options = {}) {
    GrpcServerTest::Start(std::move(options));
    const auto channel = Connect();
    inference_ = v1::Inference::NewStub(channel);
    admin_ = v1::Admin::NewStub(channel);
  }

  void Generate(const char* text) {
    v1::GenerateRequest request;
    request.mutable_text()->set_text(text);
    ClientContext context;
    const auto reader = inference_->Generate(&context, request);
    v1::GenerateResponse message;
    while (reader->Read(&message)) continue;
    EXPECT_TRUE(reader->Finish().ok());
  }

  GateOfThem& gate() const { return static_cast<GateOfThem&>(*gate_); }

  ::grpc::Status Warm(const v1::CachedPrompt& prompt) {
    v1::WarmRequest request;
    *request.mutable_prompt() = prompt;
    v1::WarmResponse response;
    ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + 30s);
    return admin_->Warm(&context, request, &response);
  }

  std::unique_ptr<v1::Inference::Stub> inference_;
  std::unique_ptr<v1::Admin::Stub> admin_;
};

TEST_F(GrpcAdministration, WarmsPinsListsUnpinsAndDrops) {
  v1::PinRequest pin;
  *pin.mutable_prompt() = Prompt("shared");
  v1::PinResponse pinned;
  ClientContext cold;
  EXPECT_EQ(admin_->Pin(&cold, pin, &pinned).error_code(), ::grpc::NOT_FOUND);

  v1::WarmRequest warm;
  *warm.mutable_prompt() = Prompt("shared");
  warm.mutable_prompt()->set_cache_salt("salt");
  warm.mutable_prompt()->set_tenant("them");
  warm.set_pin(true);
  v1::WarmResponse warmed;
  ClientContext warming;
  ASSERT_TRUE(admin_->Warm(&warming, warm, &warmed).ok());
  EXPECT_EQ(warmed.prompt_tokens(), 6);
  EXPECT_EQ(warmed.cached_tokens(), 0);
  EXPECT_EQ(warmed.pin().pinned_tokens(), 6);
  EXPECT_EQ(engine_.last_request().stop.max_tokens, 0);
  EXPECT_TRUE(engine_.last_request().keep_cached);
  EXPECT_EQ(engine_.last_request().cache_salt, "salt");
  EXPECT_EQ(engine_.last_request().tenant, "them");

  ClientContext hot;
  ASSERT_TRUE(admin_->Pin(&hot, pin, &pinned).ok());
  EXPECT_NE(pinned.pin().id(), warmed.pin().id());
  v1::ListPinsResponse list;
  ClientContext listing;
  ASSERT_TRUE(admin_->ListPins(&listing, {}, &list).ok());
  ASSERT_EQ(list.pins_size(), 2);
  EXPECT_EQ(list.pins(0).tenant(), "them");
  EXPECT_TRUE(list.pins(0).salted());

  v1::UnpinRequest unpin;
  unpin.set_id(pinned.pin().id());
  v1::UnpinResponse unpinned;
  ClientContext first, again;
  EXPECT_TRUE(admin_->Unpin(&first, unpin, &unpinned).ok());
  EXPECT_EQ(admin_->Unpin(&again, unpin, &unpinned).error_code(), ::grpc::NOT_FOUND);

  v1::DropRequest drop;
  v1::DropResponse dropped;
  ClientContext nothing, one;
  EXPECT_EQ(admin_->Drop(&nothing, drop, &dropped).error_code(), ::grpc::INVALID_ARGUMENT);
  *drop.mutable_prompt() = Prompt("shared");
  ASSERT_TRUE(admin_->Drop(&one, drop, &dropped).ok());
  EXPECT_EQ(dropped.dropped_chunks(), 1);
}

// What is computed for a key is its: the last weight given holds for all of its requests.
TEST_F(GrpcAdministration, WarmsWithTheWeightOfTheKeyThatItIsFor) {
  v1::CachedPrompt prompt = Prompt("shared");
  prompt.set_tenant("them");
  ASSERT_TRUE(Warm(prompt).ok());
  EXPECT_EQ(engine_.last_request().tenant, "them");
  EXPECT_EQ(engine_.last_request().tenant_weight, 2.5);
  ASSERT_TRUE(Warm(Prompt("shared")).ok());
  EXPECT_EQ(engine_.last_request().tenant, "");
  EXPECT_EQ(engine_.last_request().tenant_weight, 1);
}

// Also what was computed before the call was given up.
TEST_F(GrpcAdministration, ChargesWhatItWarmsToTheKeyThatItIsFor) {
  v1::CachedPrompt prompt = Prompt("shared");
  ASSERT_TRUE(Warm(prompt).ok());
  EXPECT_EQ(gate().charged_tokens(), 0);
  prompt.set_tenant("them");
  prompt.mutable_text()->set_text("theirs");
  ASSERT_TRUE(Warm(prompt).ok());
  EXPECT_EQ(gate().charged_tokens(), 6);
  prompt.mutable_text()->set_text("[[hold]]theirs");
  v1::WarmRequest request;
  *request.mutable_prompt() = prompt;
  v1::WarmResponse response;
  ClientContext context;
  auto warmed = std::async(std::launch::async,
                           [&] { return admin_->Warm(&context, request, &response).error_code(); });
  ASSERT_TRUE(engine_.WaitForRunning(1));
  engine_.TellUsage();
  context.TryCancel();
  EXPECT_EQ(warmed.get(), ::grpc::CANCELLED);
  EXPECT_TRUE(testing::Eventually([&] { return gate().charged_tokens() == 6 + 14; }));
}

// Scenario: the key goes while its prompt waits, or as it is submitted.
TEST_F(GrpcAdministration, TheEndOfTheKeyThatItWarmsForIsNotTheOperators) {
  v1::CachedPrompt prompt = Prompt("[[late=16]]x");
  prompt.set_tenant("them");
  const ::grpc::Status waited = Warm(prompt);
  EXPECT_EQ(waited.error_code(), ::grpc::FAILED_PRECONDITION);
  EXPECT_EQ(waited.error_message(), "the key \"them\" was removed while the prompt waited");
  gate().removed = true;
  prompt.mutable_text()->set_text("[[hold]]x");
  const ::grpc::Status submitted = Warm(prompt);
  EXPECT_EQ(submitted.error_code(), ::grpc::FAILED_PRECONDITION);
  EXPECT_EQ(submitted.error_message(), waited.error_message());
  EXPECT_TRUE(engine_.WaitForCancelled(1));
}

// The engine remembers for good whose requests came.
TEST_F(GrpcAdministration, KeepsNothingForNamesThatNoKeyHas) {
  v1::CachedPrompt prompt = Prompt("shared");
  const auto refused = [&] {
    const ::grpc::Status warmed = Warm(prompt);
    v1::PinRequest pin;
    *pin.mutable_prompt() = prompt;
    v1::PinResponse pinned;
    ClientContext context;
    EXPECT_EQ(admin_->Pin(&context, pin, &pinned).error_message(), warmed.error_message());
    EXPECT_EQ(warmed.error_code(), ::grpc::INVALID_ARGUMENT);
    return warmed.error_message();
  };
  prompt.set_tenant("nobody");
  EXPECT_EQ(refused(), "'tenant' is \"nobody\", which is the name of no key");

  // Where keys share nothing, none can reach what is nobody's.
  server_->Stop(0ms);
  Start({.isolates_keys = true});
  prompt.clear_tenant();
  EXPECT_EQ(refused(),
            "'tenant' is \"\", which is the name of no key; kv_cache.isolation is \"api_key\"");

  // Where no keys are asked for, no request comes with a name.
  server_->Stop(0ms);
  gate_ = access::MakeOpenGate();
  Start();
  EXPECT_TRUE(Warm(prompt).ok());
  const int submitted = engine_.submitted();
  prompt.set_tenant(std::string(100'000, 'x'));
  EXPECT_LT(refused().size(), 300u);
  EXPECT_EQ(engine_.submitted(), submitted);
}

TEST_F(GrpcAdministration, CacheStatisticsDescribeTheTree) {
  for (const char* text : {"one", "three"}) Generate(text);
  v1::CacheStatisticsRequest request;
  v1::CacheStatisticsResponse response;
  request.set_max_nodes(1);
  ClientContext context;
  ASSERT_TRUE(admin_->CacheStatistics(&context, request, &response).ok());
  EXPECT_EQ(response.cache().nodes(), 2);
  EXPECT_EQ(response.cache().namespaces(), 1);
  ASSERT_EQ(response.nodes_size(), 1);
  EXPECT_EQ(response.nodes(0).tokens(), 3);
  EXPECT_FALSE(response.nodes(0).has_parent());
  ASSERT_EQ(response.namespaces_size(), 1);
  EXPECT_TRUE(response.namespaces(0).salted());
  const auto refusal = [&](std::optional<int32_t> max_nodes, std::optional<int32_t> max_depth) {
    v1::CacheStatisticsRequest wrong;
    if (max_nodes.has_value()) wrong.set_max_nodes(*max_nodes);
    if (max_depth.has_value()) wrong.set_max_depth(*max_depth);
    ClientContext wrong_context;
    const ::grpc::Status status = admin_->CacheStatistics(&wrong_context, wrong, &response);
    EXPECT_EQ(status.error_code(), ::grpc::INVALID_ARGUMENT);
    return status.error_message();
  };
  EXPECT_THAT(refusal(-1, {}), HasSubstr("'max_nodes' must be"));
  EXPECT_THAT(refusal({}, 0), HasSubstr("'max_depth' must be"));
  EXPECT_THAT(refusal({}, 1'000'001), HasSubstr("'max_depth' must be"));
}

TEST_F(GrpcAdministration, SessionsAreListed) {
  for (const char* text : {"one", "three"}) Generate(text);
  v1::ListSessionsRequest request;
  v1::ListSessionsResponse response;
  request.set_max_sessions(1);
  ClientContext context, wrong;
  ASSERT_TRUE(admin_->ListSessions(&context, request, &response).ok());
  EXPECT_EQ(response.total_sessions(), 2);
  ASSERT_EQ(response.sessions_size(), 1);
  EXPECT_EQ(response.sessions(0).ShortDebugString(),
            "id: 1 tenant: \"us\" salted: true tokens: 3 chunks: 3 own_chunks: 2 sharers: 1 "
            "hits: 5 age_requests: 4 pinned: true");
  request.set_max_sessions(100'001);
  const ::grpc::Status refused = admin_->ListSessions(&wrong, request, &response);
  EXPECT_EQ(refused.error_code(), ::grpc::INVALID_ARGUMENT);
  EXPECT_NE(refused.error_message().find("'max_sessions' must be"), std::string::npos)
      << refused.error_message();
}

TEST_F(GrpcAdministration, AWarmingCallThatIsCancelledStopsTheWork) {
  // The deadline is not for connecting.
  Generate("first");
  v1::WarmRequest warm;
  *warm.mutable_prompt() = Prompt("[[hold]]x");
  v1::WarmResponse response;
  ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + 1s);
  EXPECT_EQ(admin_->Warm(&context, warm, &response).error_code(), ::grpc::DEADLINE_EXCEEDED);
  EXPECT_TRUE(engine_.WaitForCancelled(1));
}

}  // namespace
}  // namespace refrain::server::rpc
