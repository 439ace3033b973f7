// What waits of a tenant whose key was removed.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/loop_harness.h"

namespace refrain::engine {
namespace {

using ::refrain::testing::LoopHarness;
using ::refrain::testing::Prompt;
using ::refrain::testing::TokenRequest;

Request Of(const std::string& tenant, int32_t n = 1) {
  Request request = TokenRequest(Prompt(20), 30);
  request.tenant = tenant;
  request.n = n;
  return request;
}

// Scenario: the first one runs, and the last but one was being encoded when the tenant was ended.
TEST(EngineLoopTenantEndTest, EndsWhatCameBeforeAndHasNotBegun) {
  const absl::Status reason = absl::UnauthenticatedError("removed");
  LoopHarness h({.max_sequences = 1});
  std::vector<std::shared_ptr<TokenStream>> streams;
  streams.push_back(h.Submit(Of("a")));
  for (int i = 0; i < 3; ++i) h.loop.Turn();
  ASSERT_EQ(h.loop.stats().running_sequences, 1);
  streams.push_back(h.Submit(Of("a", /*n=*/3)));
  streams.push_back(h.Submit(Of("b")));
  streams.push_back(h.Submit(Of("a")));
  std::optional<int32_t> ended;
  h.queue->Post(
      {.tenants = {"a"}, .before = 6, .reason = reason, .done = [&](auto told) { ended = *told; }});
  h.loop.Turn();
  EXPECT_EQ(ended, 2);
  for (const size_t i : {1, 3}) EXPECT_EQ(h.Read(streams[i]).status, reason) << i;
  streams.push_back(h.Submit(Of("a")));
  streams.push_back(h.Submit(Of("a")));  // the key is there again
  h.RunUntilIdle();
  EXPECT_EQ(h.Read(streams[4]).status, reason);
  for (const size_t i : {0, 2, 5}) {
    const testing::RequestOutput output = h.Read(streams[i]);
    EXPECT_EQ(output.status, absl::OkStatus()) << i;
    EXPECT_EQ(output.choices.at(0).tokens.size(), 30u) << i;
  }
  h.CheckIdle();
}

TEST(EngineLoopTenantEndTest, SaysSoWhereTheLoopHasStopped) {
  LoopHarness h;
  h.queue->Close();
  absl::Status told;
  h.queue->Post({.tenants = {"a"}, .before = 1, .reason = {}, .done = [&](auto ended) {
                   told = ended.status();
                 }});
  EXPECT_TRUE(absl::IsUnavailable(told));
}

}  // namespace
}  // namespace refrain::engine
