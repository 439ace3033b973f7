#include "server/access/key_gate.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "engine/retry_after.h"
#include "engine/token_stream.h"
#include "server/access/http_access.h"
#include "server/status_mapping.h"
#include "tests/support/fake_clock.h"
#include "tests/support/temporary_directory.h"

namespace refrain::server::access {
namespace {

using namespace std::chrono_literals;

class KeyGateTest : public ::testing::Test {
 protected:
  NewKey AddKey(const std::string& file, std::string_view name, const KeyTerms& terms = {}) {
    absl::StatusOr<NewKey> made = MakeKey(name, terms);
    EXPECT_TRUE(made.ok());
    std::ofstream(Path(file), std::ios::app) << made->line;
    return *made;
  }

  std::string Path(const std::string& file) const { return folder_.path() + "/" + file; }

  std::unique_ptr<KeyGate> Load(bool keys, bool admin_keys, int32_t requests = 0,
                                double tokens_per_s = 0) {
    absl::StatusOr<std::unique_ptr<KeyGate>> gate =
        KeyGate::Load({.keys_file = keys ? Path("keys") : "",
                       .admin_keys_file = admin_keys ? Path("admin") : "",
                       .requests = requests,
                       .tokens_per_s = tokens_per_s,
                       .now = [this] { return clock_.Now(); }});
    EXPECT_TRUE(gate.ok()) << gate.status();
    return *std::move(gate);
  }

  static absl::StatusCode CodeOf(const KeyGate& gate, Area area, const std::string& header) {
    return gate.Authenticate(area, header).status().code();
  }

  testing::TemporaryDirectory folder_;
  testing::FakeClock clock_;
};

constexpr auto kOk = absl::StatusCode::kOk;
constexpr auto kNoKey = absl::StatusCode::kUnauthenticated;
constexpr auto kWrongKey = absl::StatusCode::kPermissionDenied;

TEST_F(KeyGateTest, EachKindOfKeyOpensItsArea) {
  const std::string key = "Bearer " + AddKey("keys", "a", {.weight = 3}).key;
  const std::string admin = "Bearer " + AddKey("admin", "root").key;
  const auto gate = Load(true, true);
  for (const auto& [area, none, with_key, with_admin] :
       {std::tuple(Area::kInference, kNoKey, kOk, kWrongKey),
        std::tuple(Area::kAdmin, kNoKey, kWrongKey, kOk),
        std::tuple(Area::kMonitoring, kNoKey, kOk, kOk)}) {
    EXPECT_EQ(CodeOf(*gate, area, ""), none);
    EXPECT_EQ(CodeOf(*gate, area, "Bearer nonsense"), kNoKey);
    EXPECT_EQ(CodeOf(*gate, area, key), with_key);
    EXPECT_EQ(CodeOf(*gate, area, admin), with_admin);
  }
  const auto principal = gate->Authenticate(Area::kInference, key);
  EXPECT_EQ(principal->key_name, "a");
  EXPECT_EQ(principal->weight, 3);
  EXPECT_EQ(gate->num_keys().inference, 1u);
  EXPECT_EQ(gate->num_keys().admin, 1u);
}

TEST_F(KeyGateTest, WithoutKeysOnlyAdministrationCanBeClosed) {
  const auto open = Load(false, false);
  for (const Area area : {Area::kInference, Area::kAdmin, Area::kMonitoring}) {
    EXPECT_EQ(CodeOf(*open, area, ""), kOk);
    EXPECT_EQ(CodeOf(*open, area, "Bearer anything"), kOk);
  }
  EXPECT_EQ(open->Authenticate(Area::kInference, "Bearer anything")->key_name, "");

  const std::string admin = "Bearer " + AddKey("admin", "root").key;
  const auto half = Load(false, true);
  EXPECT_EQ(CodeOf(*half, Area::kInference, "Bearer anything"), kOk);
  EXPECT_EQ(CodeOf(*half, Area::kMonitoring, ""), kOk);
  EXPECT_EQ(CodeOf(*half, Area::kAdmin, ""), kNoKey);
  EXPECT_EQ(CodeOf(*half, Area::kAdmin, admin), kOk);

  const std::string key = "Bearer " + AddKey("keys", "a").key;
  EXPECT_EQ(CodeOf(*Load(true, false), Area::kAdmin, key), kWrongKey);
}

TEST_F(KeyGateTest, ReadsTheHeaderAsClientsWriteIt) {
  const std::string key = AddKey("keys", "a").key;
  const auto gate = Load(true, false);
  for (const std::string& header :
       std::vector<std::string>{"Bearer " + key, "bearer " + key, "BEARER   " + key + " "}) {
    EXPECT_EQ(CodeOf(*gate, Area::kInference, header), kOk) << header;
  }
  for (const std::string& header : std::vector<std::string>{
           key, "Bearer", "Bearer ", "Basic " + key, "Bearer" + key, "Bearer " + key + " x"}) {
    const absl::Status status = gate->Authenticate(Area::kInference, header).status();
    EXPECT_EQ(status.code(), kNoKey) << header;
    EXPECT_EQ(std::string(status.message()).find(key.substr(0, 8)), std::string::npos);
  }
}

TEST_F(KeyGateTest, ABadFileLeavesTheKeysAsTheyWere) {
  const std::string old_key = "Bearer " + AddKey("keys", "a").key;
  const auto gate = Load(true, false);
  const std::string new_key = "Bearer " + AddKey("keys", "b").key;
  EXPECT_EQ(CodeOf(*gate, Area::kInference, new_key), kNoKey);
  std::ofstream(Path("keys"), std::ios::app) << "nonsense\n";
  EXPECT_FALSE(gate->Reload().ok());
  EXPECT_EQ(CodeOf(*gate, Area::kInference, old_key), kOk);
  EXPECT_EQ(CodeOf(*gate, Area::kInference, new_key), kNoKey);

  std::ofstream(Path("keys"), std::ios::trunc).flush();
  const std::string third = "Bearer " + AddKey("keys", "c").key;
  EXPECT_TRUE(gate->Reload().ok());
  EXPECT_EQ(CodeOf(*gate, Area::kInference, old_key), kNoKey);
  EXPECT_EQ(CodeOf(*gate, Area::kInference, third), kOk);
  EXPECT_TRUE(absl::IsNotFound(KeyGate::Load({.keys_file = Path("missing")}).status()));
}

// An editor or a deployment that truncates a file before it writes it would lock everybody out. One
// that is to hold no keys says so.
TEST_F(KeyGateTest, AFileThatWasCutToNothingLeavesTheKeysAsTheyWere) {
  const std::string key = "Bearer " + AddKey("keys", "a").key;
  const std::string admin = "Bearer " + AddKey("admin", "root").key;
  const auto gate = Load(true, true);
  const auto write = [&](const std::string& file, const std::string& text) {
    std::ofstream(Path(file), std::ios::trunc) << text;
    return gate->Reload().status();
  };
  for (const auto& [file, area, held] :
       {std::tuple("admin", Area::kAdmin, admin), std::tuple("keys", Area::kInference, key)}) {
    const absl::Status refused = write(file, "");
    EXPECT_NE(std::string(refused.message()).find(Path(file) + ": is empty"), std::string::npos)
        << refused;
    EXPECT_EQ(CodeOf(*gate, Area::kInference, key), kOk);
    EXPECT_EQ(CodeOf(*gate, area, held), kOk);
    EXPECT_EQ(write(file, "# nobody\n"), absl::OkStatus());
    EXPECT_EQ(CodeOf(*gate, area, held), kNoKey);
    EXPECT_EQ(write(file, ""), absl::OkStatus()) << "there was none to lose";
  }
  EXPECT_EQ(gate->num_keys().inference + gate->num_keys().admin, 0u);
  EXPECT_TRUE(KeyGate::Load({.keys_file = Path("keys")}).ok()) << "a start takes it as it is";
}

// What waits of those is to end; a name that keeps a key, whichever, is none of them.
TEST_F(KeyGateTest, TellsWhoseKeysAreAllGone) {
  AddKey("keys", "a");
  AddKey("keys", "b");
  AddKey("keys", "c");
  const auto gate = Load(true, false);
  const auto write = [&](const std::vector<std::string>& names) {
    std::ofstream(Path("keys"), std::ios::trunc).flush();
    for (const std::string& name : names) AddKey("keys", name);
    const auto removed = gate->Reload();
    EXPECT_TRUE(removed.ok()) << removed.status();
    return removed.value_or(std::vector<std::string>());
  };
  EXPECT_EQ(write({"b"}), (std::vector<std::string>{"a", "c"}));
  EXPECT_EQ(gate->Admit({.key_name = "a"}).status(), KeyRemoved()) << "it had been let in";
  EXPECT_TRUE(gate->Admit({.key_name = "b"}).ok());
  EXPECT_EQ(write({"b", "a"}), std::vector<std::string>());
  EXPECT_TRUE(gate->Admit({.key_name = "a"}).ok());
}

// As an operator has it who warms the cache for a key.
TEST_F(KeyGateTest, WhatOthersHaveComputedInItsNameIsTheKeys) {
  AddKey("keys", "a", {.requests = 1, .tokens_per_s = 10});
  const auto gate = Load(true, false);
  {
    const absl::StatusOr<Ticket> own = gate->Admit({.key_name = "a"});
    ASSERT_TRUE(own.ok());
    Ticket usage = gate->UsageOf("a");
    usage.ChargeUsage({.computed_tokens = 100});
  }
  const absl::Status owes = gate->Admit({.key_name = "a"}).status();
  EXPECT_NE(std::string(owes.message()).find("too many tokens"), std::string::npos) << owes;
  clock_.Advance(20s);
  const absl::StatusOr<Ticket> own = gate->Admit({.key_name = "a"});
  EXPECT_TRUE(own.ok()) << own.status();
  EXPECT_FALSE(gate->Admit({.key_name = "a"}).ok()) << "a place was given back that was not taken";
  gate->UsageOf("nobody").ChargeUsage({.computed_tokens = 100});
}

TEST_F(KeyGateTest, CountsRequestsAtOnceByNameAcrossReloads) {
  AddKey("keys", "a", {.requests = 2});
  AddKey("keys", "a", {.requests = 2});
  AddKey("keys", "b");
  const auto gate = Load(true, false, /*requests=*/1);
  std::vector<Ticket> tickets;
  tickets.push_back(*gate->Admit({.key_name = "a"}));
  tickets.push_back(*gate->Admit({.key_name = "a"}));
  ASSERT_TRUE(gate->Reload().ok());
  const absl::Status status = gate->Admit({.key_name = "a"}).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_EQ(ApiErrorFromStatus(status).code, "rate_limit_exceeded");
  EXPECT_NE(std::string(status.message()).find("its limit is 2"), std::string::npos);
  EXPECT_TRUE(engine::RetryAfterOf(status).has_value());
  auto other = gate->Admit({.key_name = "b"});
  EXPECT_TRUE(other.ok());
  EXPECT_FALSE(gate->Admit({.key_name = "b"}).ok());  // the configuration's limit
  tickets.pop_back();
  EXPECT_TRUE(gate->Admit({.key_name = "a"}).ok());
}

TEST_F(KeyGateTest, APlaceIsGivenBackOnceAndWhatComesLaterIsStillCharged) {
  AddKey("keys", "a", {.requests = 1, .tokens_per_s = 100.0});
  const auto gate = Load(true, false);
  {
    auto ticket = gate->Admit({.key_name = "a"});
    ASSERT_TRUE(ticket.ok());
    ticket->Leave();
    ticket->Leave();
    auto next = gate->Admit({.key_name = "a"});
    EXPECT_TRUE(next.ok());
    *ticket = Ticket();  // whose place was given back
    EXPECT_FALSE(gate->Admit({.key_name = "a"}).ok());
  }
  auto ticket = gate->Admit({.key_name = "a"});
  ASSERT_TRUE(ticket.ok());
  ticket->Leave();
  ticket->ChargeUsage({.computed_tokens = 101});
  EXPECT_FALSE(gate->Admit({.key_name = "a"}).ok());
}

// 100 tokens a second: 1,000 at once are let through and then owed for nine seconds.
TEST_F(KeyGateTest, KeepsAKeyToItsTokensPerSecond) {
  AddKey("keys", "a", {.tokens_per_s = 100.0});
  const auto gate = Load(true, false);
  {
    auto ticket = gate->Admit({.key_name = "a"});
    ASSERT_TRUE(ticket.ok());
    ticket->ChargeUsage({.computed_tokens = 1000});
  }
  const absl::Status status = gate->Admit({.key_name = "a"}).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_EQ(ApiErrorFromStatus(status).code, "rate_limit_exceeded");
  EXPECT_EQ(engine::RetryAfterOf(status), 10);
  clock_.Advance(8s);
  EXPECT_FALSE(gate->Admit({.key_name = "a"}).ok());
  clock_.Advance(1100ms);
  EXPECT_TRUE(gate->Admit({.key_name = "a"}).ok());
  clock_.Advance(1000s);  // an idle hour is not saved up
  gate->Admit({.key_name = "a"})->ChargeUsage({.computed_tokens = 101});
  EXPECT_FALSE(gate->Admit({.key_name = "a"}).ok());
}

TEST_F(KeyGateTest, ChargesWhatWasComputedAndEachTokenOnce) {
  AddKey("keys", "a", {.tokens_per_s = 100.0});
  const auto gate = Load(true, false);
  auto ticket = gate->Admit({.key_name = "a"});
  ASSERT_TRUE(ticket.ok());
  engine::Usage usage{.prompt_tokens = 600, .cached_tokens = 500, .computed_tokens = 100};
  ticket->ChargeUsage(usage);
  usage.computed_tokens += 50;
  ticket->ChargeUsage(usage);
  ticket->ChargeUsage(usage);  // 150 together: 50 more than there are
  EXPECT_FALSE(gate->Admit({.key_name = "a"}).ok());
  clock_.Advance(600ms);
  EXPECT_TRUE(gate->Admit({.key_name = "a"}).ok());
}

TEST(HttpAccess, AsksForAKeyEverywhereButAtHealth) {
  for (const char* path : {"/health", "/ping", "/ready", "/live"})
    EXPECT_EQ(AreaOf(path), std::nullopt);
  for (const char* path : {"/v1/models", "/v1/completions", "/tokenize", "/unknown", "/", "",
                           "/health/", "/healthy", "/debug"}) {
    EXPECT_EQ(AreaOf(path), Area::kInference) << path;
  }
  for (const char* path : {"/debug/cache", "/admin/x"}) EXPECT_EQ(AreaOf(path), Area::kAdmin);
  for (const char* path : {"/metrics", "/version"}) EXPECT_EQ(AreaOf(path), Area::kMonitoring);
}

// Who is no operator does not learn who else has a key.
TEST_F(KeyGateTest, OnlyOperatorsSeeAllKeysWhereThereAreAny) {
  const std::string key = AddKey("keys", "a").key, admin = AddKey("admin", "root").key;
  const auto sees_all = [](const Gate& gate, const std::string& presented) {
    return gate.Authenticate(Area::kMonitoring, "Bearer " + presented)->sees_all_keys;
  };
  EXPECT_TRUE(sees_all(*Load(true, false), key));
  const auto gate = Load(true, true);
  EXPECT_FALSE(sees_all(*gate, key));
  EXPECT_TRUE(sees_all(*gate, admin));
  const auto half = Load(false, true);
  EXPECT_FALSE(sees_all(*half, key)) << "that is nobody's";
  EXPECT_TRUE(sees_all(*half, admin));
  EXPECT_FALSE(half->Authenticate(Area::kMonitoring, "")->sees_all_keys);
  EXPECT_TRUE(Load(false, false)->Authenticate(Area::kMonitoring, "")->sees_all_keys);

  http::Request request;
  request.method = "GET";
  request.path = "/metrics";
  request.headers = {{"Authorization", "Bearer " + key}};
  request.notes = std::make_shared<http::RequestNotes>();
  EXPECT_EQ(RefuseUnlessAllowed(*gate, request), nullptr);
  EXPECT_EQ(request.notes->principal, "a");
  EXPECT_FALSE(request.notes->sees_all_keys);
}

// The request log tells whose key was refused, and why.
TEST_F(KeyGateTest, NotesWhoseKeyOpensSomethingElse) {
  const std::string key = AddKey("keys", "a").key, admin = AddKey("admin", "root").key;
  const auto gate = Load(true, true);
  const auto noted = [&](const std::string& path, const std::string& presented) {
    http::Request request;
    request.method = "GET";
    request.path = path;
    request.headers = {{"Authorization", "Bearer " + presented}};
    request.notes = std::make_shared<http::RequestNotes>();
    EXPECT_NE(RefuseUnlessAllowed(*gate, request), nullptr);
    return request.notes->principal + " " + request.notes->details;
  };
  EXPECT_EQ(noted("/debug/cache", key), "a \"error\":\"permission_denied\"");
  EXPECT_EQ(noted("/v1/models", admin), "root \"error\":\"permission_denied\"");
  EXPECT_EQ(noted("/v1/models", "wrong"), " \"error\":\"invalid_api_key\"");
}

TEST_F(KeyGateTest, TellsWhetherAnyKeyOfANameIsLeft) {
  AddKey("keys", "a");
  AddKey("keys", "b");
  const auto gate = Load(true, false);
  EXPECT_EQ(gate->StillHas("a"), absl::OkStatus());
  EXPECT_EQ(gate->StillHas(""), absl::OkStatus()) << "who came without one";
  std::ofstream(Path("keys")).close();  // empty
  AddKey("keys", "b");
  EXPECT_EQ(gate->StillHas("a"), absl::OkStatus()) << "nobody has read the file";
  ASSERT_TRUE(gate->Reload().ok());
  EXPECT_EQ(gate->StillHas("a"), KeyRemoved());
  EXPECT_EQ(gate->StillHas("b"), absl::OkStatus());
}

// Who may name a key without having it, an operator, learns with what weight its requests come.
TEST_F(KeyGateTest, TellsTheWeightOfAKeyByItsName) {
  AddKey("keys", "a", {.weight = 2.5});
  AddKey("admin", "root");
  const auto gate = Load(true, true);
  EXPECT_EQ(gate->WeightOf("a"), 2.5);
  EXPECT_EQ(gate->WeightOf("root"), std::nullopt) << "no requests come with that";
  EXPECT_EQ(gate->WeightOf(""), std::nullopt) << "nor without a key";
  AddKey("keys", "b");
  EXPECT_EQ(gate->WeightOf("b"), std::nullopt);
  ASSERT_TRUE(gate->Reload().ok());
  EXPECT_EQ(gate->WeightOf("b"), 1);

  const auto open = Load(false, true);
  EXPECT_EQ(open->WeightOf(""), 1) << "all come without one";
  EXPECT_EQ(open->WeightOf("a"), std::nullopt);
}

TEST_F(KeyGateTest, RefusalsTellClientsHowToAsk) {
  AddKey("keys", "a");
  const auto gate = Load(true, false);
  http::Request request;
  request.method = "POST";
  request.path = "/v1/completions";
  const auto reply = RefuseUnlessAllowed(*gate, request);
  ASSERT_NE(reply, nullptr);
  const http::ReplyPart part = reply->Next();
  EXPECT_EQ(part.head->status, 401);
  EXPECT_NE(part.body.find("\"code\":\"invalid_api_key\""), std::string::npos);
  EXPECT_EQ(part.head->headers.front().first, "WWW-Authenticate");
  request.path = "/health";
  EXPECT_EQ(RefuseUnlessAllowed(*gate, request), nullptr);
}

}  // namespace
}  // namespace refrain::server::access
