// Counts by labels, of which there may be many thousands: who counts waits for no page of them.

#include "server/metrics/labelled_counts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/grpc/call_record.h"
#include "server/http/exchange.h"
#include "server/metrics/metrics.h"
#include "tests/support/eventually.h"
#include "tests/support/rounds.h"
#include "tests/support/slow_build.h"

namespace refrain::server::metrics {
namespace {

using ::refrain::testing::Eventually;
using ::refrain::testing::kSlowBuildFactor;
using ::refrain::testing::SomeRoundKeeps;
using Clock = std::chrono::steady_clock;

std::vector<std::pair<int, uint64_t>> All(const LabelledCounts<int>& counts) {
  std::vector<std::pair<int, uint64_t>> all;
  counts.ForEach([&](int label, uint64_t count) { all.emplace_back(label, count); });
  return all;
}

// None, and numbers about those that are read at once.
TEST(LabelledCountsTest, VisitsEachOnceInOrder) {
  for (const int labels : {0, 1, 255, 256, 257, 512, 1009}) {
    LabelledCounts<int> counts;
    for (int label = labels; label-- > 0;) {
      for (int i = 0; i <= label % 3; ++i) counts.Add(label);
    }
    const auto all = All(counts);
    ASSERT_EQ(all.size(), static_cast<size_t>(labels));
    for (int label = 0; label < labels; ++label) {
      EXPECT_EQ(all[label], std::pair(label, uint64_t{1} + label % 3));
    }
  }
}

TEST(LabelledCountsTest, CountsWhileAVisitIsUnderWay) {
  LabelledCounts<int> counts;
  for (int label = 0; label < 1000; ++label) counts.Add(2 * label);
  int visited = 0;
  std::atomic<bool> added{false};
  std::thread adder;
  counts.ForEach([&](int label, uint64_t) {
    if (++visited != 300) return;
    adder = std::thread([&counts, &added, label] {
      for (const int near : {label - 1, label, label + 1}) counts.Add(near);
      added = true;
    });
    EXPECT_TRUE(Eventually([&] { return added.load(); })) << "it waits for the visit's end";
  });
  adder.join();
  EXPECT_GE(visited, 1000);
  EXPECT_LE(visited, 1002);
  EXPECT_EQ(All(counts).size(), 1002u);
}

// Whether nobody who counts stands still for long while a page of many keys is made. Relative to
// the page's own time, so that a slow machine or build shifts nothing; for a reader who sees the
// keys as one, as then hardly anything but the walk over them is in that time.
bool APageHoldsUpNobody(const std::function<void(Metrics*, const std::string& key)>& count) {
  // The walk is to take several times as long as the turn that another process may have.
  constexpr int kKeys = 400'000 / kSlowBuildFactor;
  Metrics metrics({.version = "9.9.9"});
  for (int i = 0; i < kKeys; ++i) count(&metrics, "key-" + std::to_string(i));
  return SomeRoundKeeps([&] {
    std::atomic<bool> begun{false}, over{false};
    Clock::duration longest{0};
    std::thread counter([&] {
      while (!over) {
        const auto begin = Clock::now();
        count(&metrics, "key-7");
        longest = std::max(longest, Clock::now() - begin);
        begun = true;
      }
    });
    EXPECT_TRUE(Eventually([&] { return begun.load(); }));
    const auto begin = Clock::now();
    metrics.Page(ShownKeys("reader"));
    const auto page = Clock::now() - begin;
    over = true;
    counter.join();
    std::printf("page %.1f ms, longest count %.3f ms\n",
                std::chrono::duration<double, std::milli>(page).count(),
                std::chrono::duration<double, std::milli>(longest).count());
    return longest < page / 3;
  });
}

TEST(ManyKeysTest, APageDoesNotHoldUpWhoCountsHttpExchanges) {
  EXPECT_TRUE(APageHoldsUpNobody([](Metrics* metrics, const std::string& key) {
    http::Exchange exchange;
    exchange.method = "POST";
    exchange.route = "/v1/completions";
    exchange.status = 200;
    exchange.principal = key;
    metrics->CountExchange(exchange);
  }));
}

TEST(ManyKeysTest, APageDoesNotHoldUpWhoCountsGrpcCalls) {
  EXPECT_TRUE(APageHoldsUpNobody([](Metrics* metrics, const std::string& key) {
    rpc::CallRecord call;
    call.path = "/refrain.v1.Inference/Chat";
    call.principal = key;
    metrics->CountCall(call);
  }));
}

}  // namespace
}  // namespace refrain::server::metrics
