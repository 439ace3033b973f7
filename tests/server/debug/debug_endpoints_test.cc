#include "server/debug/debug_endpoints.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "server/debug/cache_page.h"
#include "server/http/server.h"
#include "server/status_mapping.h"
#include "tests/server/http/raw_client.h"
#include "tests/support/eventually.h"
#include "tests/support/fake_engine.h"

namespace refrain::server::debug {
namespace {

using nlohmann::json;
using ::refrain::testing::FakeEngine;

TEST(CacheQuery, HasDefaultsAndReadsBothNumbers) {
  const auto defaults = ParseCacheQuery("");
  ASSERT_TRUE(defaults.ok());
  EXPECT_EQ(defaults->max_nodes, 1000);
  EXPECT_EQ(defaults->max_depth, INT32_MAX);
  const auto both = ParseCacheQuery("depth=3&limit=20&");
  ASSERT_TRUE(both.ok());
  EXPECT_EQ(both->max_nodes, 20);
  EXPECT_EQ(both->max_depth, 3);
}

TEST(CacheQuery, NamesWhatIsWrong) {
  for (const auto& [query, param] : std::vector<std::pair<std::string, std::string>>{
           {"limit=0", "limit"},
           {"limit=100001", "limit"},
           {"limit=99999999999", "limit"},
           {"limit=", "limit"},
           {"limit", "limit"},
           {"limit=5x", "limit"},
           {"depth=-1", "depth"},
           {"limit=5&deep=1", "deep"},
           {"=5", ""},
       }) {
    const auto limits = ParseCacheQuery(query);
    ASSERT_FALSE(limits.ok()) << query;
    const ApiError error = ApiErrorFromStatus(limits.status());
    EXPECT_EQ(error.http_status, 400) << query;
    EXPECT_EQ(error.param, param) << query;
  }
}

TEST(CachePage, ShowsEveryMember) {
  engine::CacheView view;
  view.stats.total_chunks = 10;
  view.stats.free_chunks = 3;
  view.stats.used_chunks = 5;
  view.stats.cached_chunks = 2;
  view.stats.sequences = 4;
  view.stats.chunk_tokens = 64;
  view.stats.copied_chunks_total = 9;
  view.total_nodes = 7;
  view.total_namespaces = 5;
  view.namespaces = {{.tenant = "a\"b", .salted = true, .first_chunks = 7}};
  engine::CacheViewNode root;
  root.id = kvcache::NodeId{3};
  root.chunk = kvcache::ChunkId{8};
  root.num_tokens = 64;
  root.num_children = 2;
  root.sharers = 4;
  root.hits = 11;
  root.age_requests = 5;
  root.pinned = true;
  engine::CacheViewNode leaf;
  leaf.id = kvcache::NodeId{4};
  leaf.parent = root.id;
  leaf.chunk = kvcache::ChunkId{9};
  leaf.depth = 2;
  leaf.num_tokens = 17;
  leaf.sharers = 1;
  leaf.writer = kvcache::SequenceId{77};
  view.nodes = {root, leaf};
  view.stats.merged_chunks_total = 12;
  view.stats.evicted_chunks_total = 13;
  view.stats.logical_tokens = 300;
  engine::EngineStats engine;
  engine.steps_total = 21;
  engine.preemptions_total = 22;
  engine.prompt_tokens_total = 23;
  engine.cached_prompt_tokens_total = 24;
  engine.computed_prompt_tokens_total = 25;
  engine.generated_tokens_total = 26;
  engine.held_sequences = 27;
  engine.turn_seconds_total = 2.5;
  engine.scheduling_seconds_total = 0.125;
  EXPECT_EQ(json::parse(CachePage(view, engine)), json::parse(R"({
    "totals":{"chunks":10,"free_chunks":3,"used_chunks":5,"cached_chunks":2,"chunk_tokens":64,
              "running_sequences":4,"logical_tokens":300,"copied_chunks":9,"merged_chunks":12,
              "evicted_chunks":13,"nodes":7,"nodes_shown":2,"namespaces":5},
    "engine":{"steps":21,"preemptions":22,"prompt_tokens":23,"cached_prompt_tokens":24,
              "computed_prompt_tokens":25,"generated_tokens":26,"held_sequences":27,
              "turn_seconds":2.5,"scheduling_seconds":0.125},
    "namespaces":[{"tenant":"a\"b","salted":true,"first_chunks":7}],
    "nodes":[
      {"id":3,"parent":null,"namespace":0,"chunk":8,"depth":1,"tokens":64,"children":2,"sharers":4,
       "hits":11,"age_requests":5,"residency":"device","pinned":true,"writer":null},
      {"id":4,"parent":3,"namespace":0,"chunk":9,"depth":2,"tokens":17,"children":0,"sharers":1,
       "hits":0,"age_requests":0,"residency":"device","pinned":false,"writer":77}]})"));
  EXPECT_EQ(json::parse(CachePage({}, {}))["nodes"], json::array());
}

class DebugEndpointsTest : public ::testing::Test {
 protected:
  DebugEndpointsTest() { endpoints_.AddRoutes(&router_); }

  std::pair<int, json> Get(std::string query) {
    const auto match = router_.Find("GET", "/debug/cache");
    http::Request request;
    request.query = std::move(query);
    const auto part = match.route->handler(std::move(request))->Next();
    return {part.head->status, json::parse(part.body)};
  }

  http::Router router_;
  DebugEndpoints endpoints_;
};

TEST_F(DebugEndpointsTest, TellsWhatTheEngineHolds) {
  FakeEngine engine;
  endpoints_.SetEngine(&engine);
  for (const char* prompt : {"abc", "abcd", "x"}) {
    engine::Request request;
    request.prompt = engine::TextPrompt{prompt};
    ASSERT_TRUE(engine.Submit(request).ok());
  }
  const auto [status, page] = Get("limit=2");
  EXPECT_EQ(status, 200);
  EXPECT_EQ(page["totals"]["nodes"], 3);
  ASSERT_EQ(page["nodes"].size(), 2u);
  EXPECT_EQ(page["nodes"][1]["tokens"], 4);
}

// Looking waits for a step, which may be a long one.
TEST_F(DebugEndpointsTest, HoldsUpNoOtherRequests) {
  std::promise<void> step;
  std::atomic<int> looking{0};
  FakeEngine engine;
  engine.SetOnDescribe([&, ended = step.get_future().share()] {
    ++looking;
    ended.wait();
  });
  endpoints_.SetEngine(&engine);
  router_.Add({"POST", "/echo",
               [](http::Request request) { return http::MakeReply({}, std::move(request.body)); }});
  router_.Add({"GET", "/probe", [](http::Request) { return http::MakeReply({}, "probe"); },
               http::HandlerSpeed::kProbe});
  http::ServerOptions options;
  options.io_threads = options.worker_threads = 1;
  options.error_body = [](int, std::string_view) { return std::string(); };
  const auto server = *http::Server::Start(std::move(options), &router_);
  const auto ask = [&](const std::string& request) {
    testing::RawClient client(server->port());
    client.Send(request);
    return client.ReadResponse().body;
  };
  testing::RawClient first(server->port()), second(server->port());
  for (testing::RawClient* client : {&first, &second}) {
    client->Send(testing::GetRequest("/debug/cache"));
  }
  EXPECT_TRUE(testing::Eventually([&] { return looking > 0; }));
  const std::string large(20 << 10, 'x');  // not the I/O thread's
  EXPECT_TRUE(ask(testing::PostRequest("/echo", large)) == large);
  EXPECT_EQ(ask(testing::GetRequest("/probe")), "probe");
  step.set_value();
  for (testing::RawClient* client : {&first, &second}) {
    EXPECT_EQ(client->ReadResponse().status, 200);
  }
}

TEST_F(DebugEndpointsTest, RefusesWhileLoadingAfterDeathAndForBadQueries) {
  EXPECT_EQ(Get("").first, 503);
  FakeEngine engine;
  endpoints_.SetEngine(&engine);
  const auto [status, page] = Get("limit=many\xff");
  EXPECT_EQ(status, 400);
  EXPECT_EQ(page["error"]["param"], "limit");
  engine.Die(absl::InternalError("x"));
  EXPECT_EQ(Get("").first, 503);
}

}  // namespace
}  // namespace refrain::server::debug
