#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kvcache/options.h"
#include "tests/support/temporary_directory.h"
#include "tools/cachesim/simulator.h"
#include "tools/cachesim/trace.h"

namespace refrain::cachesim {
namespace {

constexpr char kData[] = "tests/data/cachesim-traces/";

// --- reading traces ---

class ReadTraceTest : public ::testing::Test {
 protected:
  absl::StatusOr<Trace> Read(const std::string& text, const TraceOptions& options = {}) {
    const std::string path = directory_.path() + "/trace.jsonl";
    std::ofstream(path) << text;
    return ReadTrace(path, options);
  }
  std::string Error(const std::string& text) {
    const auto trace = Read(text);
    return trace.ok() ? "OK" : std::string(trace.status().message());
  }

 private:
  testing::TemporaryDirectory directory_;
};

constexpr char kMooncakeLine[] =
    R"({"timestamp": 3000, "input_length": 700, "output_length": 5, "hash_ids": [7, 9]})"
    "\n";

TEST_F(ReadTraceTest, ReadsMooncakeRequestsInOrderOfArrival) {
  const auto trace = Read(std::string(kMooncakeLine) +
                          R"({"timestamp": 1000, "input_length": 512, "hash_ids": [7]})"
                          "\n");
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->block_tokens, 512);
  EXPECT_EQ(trace->prompt_tokens, 1212);
  EXPECT_EQ(trace->distinct_blocks, 2);
  EXPECT_EQ(trace->distinct_tokens, 700);
  ASSERT_EQ(trace->requests.size(), 2u);
  EXPECT_EQ(trace->requests[0].arrival_s, 1);
  EXPECT_EQ(trace->requests[0].blocks, std::vector<int32_t>{0});
  EXPECT_EQ(trace->requests[1].blocks, (std::vector<int32_t>{0, 1}));
}

// Two sessions use the same ids for different blocks; a sub-agent's times count from its start.
TEST_F(ReadTraceTest, ReadsAgenticSessions) {
  const std::string session =
      R"({"id": "s", "block_size": 4, "requests": [{"t": 0, "in": 9, "hash_ids": [1, 2]},
          {"t": 10, "type": "subagent", "requests": [{"t": 5, "in": 4, "hash_ids": [8]}]},
          {"t": 12, "in": 12, "hash_ids": [1, 2, 3]}]})";
  std::string line = session;
  line.erase(std::remove(line.begin(), line.end(), '\n'), line.end());
  const auto trace = Read(line + "\n" + line + "\n", {.session_gap_s = 100});
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->block_tokens, 4);
  EXPECT_EQ(trace->distinct_blocks, 8);
  std::vector<double> arrivals;
  for (const TraceRequest& request : trace->requests) arrivals.push_back(request.arrival_s);
  EXPECT_EQ(arrivals, (std::vector<double>{0, 12, 15, 100, 112, 115}));
  EXPECT_EQ(trace->requests[1].blocks, (std::vector<int32_t>{0, 1, 2}));
}

TEST_F(ReadTraceTest, ReadsHowAnswersEnded) {
  using kvcache::AnswerEnd;
  const auto answers = [&](const std::string& text) {
    const auto trace = Read(text);
    EXPECT_TRUE(trace.ok()) << trace.status();
    std::vector<AnswerEnd> ends;
    for (const TraceRequest& request : trace->requests) ends.push_back(request.answer);
    return ends;
  };
  std::string session = R"({"id": "s", "block_size": 1, "requests": [)";
  for (const char* more : {R"("stop": "tool_use", "out": 5)", R"("stop": "end_turn", "out": 33)",
                           R"("stop": "end_turn", "out": 32)", R"("stop": "", "out": 5)",
                           R"("stop": "end_turn")", R"("out": 5)"}) {
    session += std::string(R"({"t": 0, "in": 1, "hash_ids": [1], )") + more + "},";
  }
  session.pop_back();
  EXPECT_EQ(answers(session + "]}"),
            (std::vector{AnswerEnd::kToolCalls, AnswerEnd::kTurn, AnswerEnd::kBriefTurn,
                         AnswerEnd::kOther, AnswerEnd::kOther, AnswerEnd::kOther}));
  EXPECT_EQ(answers(R"({"timestamp": 0, "input_length": 1, "hash_ids": [1], "output_length": 33})"
                    "\n"
                    R"({"timestamp": 0, "input_length": 1, "hash_ids": [1], "output_length": 32})"
                    "\n"
                    R"({"timestamp": 0, "input_length": 1, "hash_ids": [1]})"),
            (std::vector{AnswerEnd::kTurn, AnswerEnd::kBriefTurn, AnswerEnd::kOther}));
}

// The same id behind another beginning is another block.
TEST_F(ReadTraceTest, ABlockIsNamedByItsWholePrefix) {
  const auto trace =
      Read(R"({"id": "s", "block_size": 1, "requests": [{"t": 0, "in": 2, "hash_ids": [1, 5]},)"
           R"( {"t": 1, "in": 2, "hash_ids": [2, 5]}]})");
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->distinct_blocks, 4);
}

TEST_F(ReadTraceTest, NamesLineAndFieldOfWhatItCannotUse) {
  const std::string good = kMooncakeLine;
  const auto expect = [&](const std::string& line, const std::string& message) {
    const std::string error = Error(good + line);
    EXPECT_NE(error.find("trace.jsonl, line 2: " + message), std::string::npos) << error;
  };
  expect("{", "is no JSON");
  expect("[]", "is no JSON object");
  expect(R"({"input_length": 1, "hash_ids": [1]})", "\"timestamp\" is missing");
  expect(R"({"timestamp": -1, "input_length": 1, "hash_ids": [1]})", "\"timestamp\" is -1");
  expect(R"({"timestamp": 1, "input_length": "x", "hash_ids": [1]})",
         "\"input_length\" is no number");
  expect(R"({"timestamp": 1, "input_length": 1})", "\"hash_ids\" is missing");
  expect(R"({"timestamp": 1, "input_length": 1, "hash_ids": ["a"]})",
         "\"hash_ids\" holds what is no whole number");
  expect(R"({"timestamp": 1, "input_length": 513, "hash_ids": [1]})",
         "\"hash_ids\" has 1 blocks of 512, \"input_length\" of 513 makes 2");
  expect(R"({"id": "s", "block_size": 64, "requests": []})",
         "is of the other format than the lines before");
  EXPECT_NE(Error(R"({"id": "s", "block_size": 0, "requests": []})").find("\"block_size\" is 0"),
            std::string::npos);
  EXPECT_NE(Error(R"({"id": "s", "block_size": 1, "requests": [{"t": 0, "in": 1}]})")
                .find("line 1: request 1: \"hash_ids\" is missing"),
            std::string::npos);
  EXPECT_NE(Error("").find("holds no request"), std::string::npos);
}

// --- simulating ---

// expected_hits.json was computed by a program that shares nothing with this one.
TEST(Simulate, LruAndOracleHitWhatBruteForceSays) {
  std::ifstream file(std::string(kData) + "expected_hits.json");
  const nlohmann::json all = nlohmann::json::parse(file);
  ASSERT_GT(all.size(), 4u);
  for (const nlohmann::json& expected : all) {
    const auto trace = ReadTrace(kData + expected["trace"].get<std::string>(), {});
    ASSERT_TRUE(trace.ok()) << trace.status();
    for (const char* policy : {"lru", "oracle"}) {
      const auto result =
          Simulate(*trace, policy, {.cache_blocks = expected["blocks"].get<int32_t>()});
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(result->hit_tokens, expected[policy].get<int64_t>())
          << policy << " " << expected.dump();
    }
  }
}

TEST(Simulate, NoPolicyBeatsTheOracleAndNoneHitsWhatWasNeverThere) {
  const auto trace = ReadTrace(std::string(kData) + "random_paths.jsonl", {});
  ASSERT_TRUE(trace.ok()) << trace.status();
  for (const int32_t blocks : {1, 5, 25, 100, trace->distinct_blocks}) {
    const int64_t best = Simulate(*trace, "oracle", {.cache_blocks = blocks})->hit_tokens;
    for (const char* policy : {"lru", "s3fifo", "reuse_rate"}) {
      const int64_t hits = Simulate(*trace, policy, {.cache_blocks = blocks})->hit_tokens;
      EXPECT_LE(hits, best) << policy << " at " << blocks;
      if (blocks == trace->distinct_blocks) {
        EXPECT_EQ(hits, best) << policy;
      }
    }
  }
}

// What the daemon uses by default hits no less than what it replaced, whatever the size, and more
// where there is something to choose: in the agentic trace nothing beats the oldest.
TEST(Simulate, ReuseRateHitsNoLessThanLru) {
  for (const auto& [name, gains] :
       {std::pair{"agentic_sample.jsonl.gz", false}, std::pair{"mooncake_head.jsonl", true},
        std::pair{"random_paths.jsonl", true}}) {
    const auto trace = ReadTrace(std::string(kData) + name, {});
    ASSERT_TRUE(trace.ok()) << trace.status();
    int64_t of_lru = 0, of_reuse_rate = 0;
    for (const int32_t percent : {1, 2, 5, 10, 25, 50, 75, 90}) {
      const int32_t blocks = trace->distinct_blocks * percent / 100;
      const int64_t lru = Simulate(*trace, "lru", {.cache_blocks = blocks})->hit_tokens;
      const int64_t reuse_rate =
          Simulate(*trace, "reuse_rate", {.cache_blocks = blocks})->hit_tokens;
      EXPECT_GE(reuse_rate, lru) << name << " at " << percent << " %";
      of_lru += lru;
      of_reuse_rate += reuse_rate;
    }
    EXPECT_TRUE(!gains || of_reuse_rate > of_lru) << name << ": " << of_reuse_rate;
  }
}

// The bounds on the default policy (docs/results/cachesim.md), on a whole trace and sessions that
// are long enough: in the samples too little comes back before a quarter of the blocks is full.
TEST(Simulate, TheDefaultReaches92PercentOfTheOracleInAQuarterAndIsNeverBelowLru) {
  const std::string policy = kvcache::CacheOptions().eviction;
  for (const char* name : {"mooncake_conversation.jsonl.gz", "agentic_short_sessions.jsonl.gz"}) {
    const auto trace = ReadTrace(std::string(kData) + name, {});
    ASSERT_TRUE(trace.ok()) << trace.status();
    ASSERT_GT(trace->requests.size(), 500u);
    for (const int32_t percent : {1, 5, 25}) {
      const SimulationOptions options{
          .cache_blocks =
              static_cast<int32_t>(trace->distinct_tokens * percent / 100 / trace->block_tokens)};
      const int64_t hits = Simulate(*trace, policy, options)->hit_tokens;
      EXPECT_GE(hits, Simulate(*trace, "lru", options)->hit_tokens)
          << name << " at " << percent << " %";
      if (percent != 25) continue;
      const int64_t best = Simulate(*trace, kOracle, options)->hit_tokens;
      EXPECT_GE(static_cast<double>(hits), 0.92 * static_cast<double>(best)) << name;
    }
  }
}

// Two blocks, and at 10 tokens a second two requests wait: for the first one's block, and another.
// Its own eviction of the block would have been the second request's.
TEST(Simulate, WhatWaitingRequestsMatchIsEvictedLast) {
  Trace trace{.block_tokens = 10, .distinct_blocks = 4, .distinct_tokens = 40};
  for (const auto& [arrival_s, block] :
       {std::pair{0.0, 0}, std::pair{1.0, 1}, std::pair{1.1, 2}, std::pair{1.2, 0}}) {
    trace.requests.push_back({.arrival_s = arrival_s, .tokens = 10, .blocks = {block}});
  }
  const auto hits = [&](double served_tokens_per_s, bool await) {
    const SimulationOptions options{
        .cache_blocks = 2, .served_tokens_per_s = served_tokens_per_s, .await = await};
    return Simulate(trace, "lru", options)->hit_tokens;
  };
  EXPECT_EQ(hits(10, true), 10);
  EXPECT_EQ(hits(10, false), 0);
  EXPECT_EQ(hits(0, true), 0);
  // Nobody waits: each is served before the next one comes.
  EXPECT_EQ(hits(1000, true), 0);
}

// Two kinds of sessions that look alike but for how their answers end: those of one kind send the
// result of a tool soon, twice, those of the other never come back.
TEST(Simulate, HitsMoreWhereItIsKnownHowAnswersEnd) {
  constexpr int32_t kBlocks = 10;
  Trace trace{.block_tokens = 1};
  for (int32_t session = 0; session < 3000; ++session) {
    const bool calls = session % 2 == 0;
    TraceRequest request{.tokens = kBlocks};
    for (int32_t i = 0; i < kBlocks; ++i) request.blocks.push_back(trace.distinct_blocks++);
    request.answer = calls ? kvcache::AnswerEnd::kToolCalls : kvcache::AnswerEnd::kTurn;
    for (int turn = 0; turn < (calls ? 3 : 1); ++turn) {
      request.arrival_s = session + 3.3 * turn;
      trace.requests.push_back(request);
    }
  }
  std::ranges::sort(trace.requests, {}, &TraceRequest::arrival_s);
  const auto hits = [&](const char* policy, bool answers) {
    return Simulate(trace, policy, {.cache_blocks = 30, .answers = answers})->hit_tokens;
  };
  EXPECT_GT(hits("reuse_rate", true), 1.2 * static_cast<double>(hits("reuse_rate", false)));
  EXPECT_LE(hits("reuse_rate", true), hits("oracle", true));
  EXPECT_EQ(hits("lru", true), hits("lru", false));
}

// The more of the future waits, the more is found of what the oracle finds; nearly all of it where
// all that comes waits, for which three quarters of the cache are kept.
TEST(Simulate, HitsMoreTheMoreRequestsWait) {
  const auto trace = ReadTrace(std::string(kData) + "random_paths.jsonl", {});
  ASSERT_TRUE(trace.ok()) << trace.status();
  for (const int32_t percent : {5, 10}) {
    SimulationOptions options{.cache_blocks = trace->distinct_blocks * percent / 100};
    const int64_t best = Simulate(*trace, "oracle", options)->hit_tokens;
    for (const char* policy : {"lru", "s3fifo", "reuse_rate"}) {
      options.served_tokens_per_s = 0;
      const SimulationResult alone = *Simulate(*trace, policy, options);
      options.served_tokens_per_s = 10000;
      const SimulationResult some = *Simulate(*trace, policy, options);
      options.served_tokens_per_s = 2000;
      const SimulationResult all = *Simulate(*trace, policy, options);
      EXPECT_EQ(alone.mean_queued, 0);
      EXPECT_GT(some.mean_queued, 1);
      EXPECT_GT(all.mean_queued, 100);
      EXPECT_GT(some.hit_tokens, alone.hit_tokens) << policy << " at " << percent << " %";
      EXPECT_GT(all.hit_tokens, some.hit_tokens) << policy << " at " << percent << " %";
      EXPECT_GE(all.hit_tokens, best * 95 / 100) << policy << " at " << percent << " %";
      options.await = false;
      EXPECT_EQ(Simulate(*trace, policy, options)->hit_tokens, alone.hit_tokens) << policy;
      options.await = true;
    }
  }
}

TEST(Simulate, GivesTheSameTwice) {
  const auto trace = ReadTrace(std::string(kData) + "mooncake_head.jsonl", {});
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(Simulate(*trace, "reuse_rate", {.cache_blocks = 600})->hit_tokens,
            Simulate(*trace, "reuse_rate", {.cache_blocks = 600})->hit_tokens);
}

TEST(Simulate, RefusesACacheOfNoBlocks) {
  Trace trace;
  trace.block_tokens = 1;
  EXPECT_FALSE(Simulate(trace, "lru", {.cache_blocks = 0}).ok());
}

// --- the oracle against every possible choice ---

struct SmallTree {
  std::vector<int32_t> parent;                 // of each block, -1: none
  std::vector<std::vector<int32_t>> requests;  // paths
};

// The most blocks that any sequence of evictions lets requests [at, ...) hit.
class Exhaustive {
 public:
  Exhaustive(const SmallTree& tree, size_t capacity) : tree_(tree), capacity_(capacity) {}

  int64_t Best(size_t at, const std::set<int32_t>& cache) {
    if (at == tree_.requests.size()) return 0;
    const auto known = best_.find({at, cache});
    if (known != best_.end()) return known->second;
    size_t matched = 0;
    const std::vector<int32_t>& path = tree_.requests[at];
    while (matched < path.size() && cache.contains(path[matched])) ++matched;
    const int64_t best = static_cast<int64_t>(matched) + Insert(at, matched, cache);
    best_[{at, cache}] = best;
    return best;
  }

 private:
  int64_t Insert(size_t at, size_t next, const std::set<int32_t>& cache) {
    const std::vector<int32_t>& path = tree_.requests[at];
    if (next == path.size()) return Best(at + 1, cache);
    std::set<int32_t> grown = cache;
    grown.insert(path[next]);
    if (cache.size() < capacity_) return Insert(at, next + 1, grown);
    int64_t best = -1;
    for (const int32_t leaf : cache) {
      const bool in_use = std::find(path.begin(), path.begin() + static_cast<ptrdiff_t>(next),
                                    leaf) != path.begin() + static_cast<ptrdiff_t>(next);
      const bool has_child = std::any_of(cache.begin(), cache.end(), [&](int32_t block) {
        return tree_.parent[static_cast<size_t>(block)] == leaf;
      });
      if (in_use || has_child) continue;
      std::set<int32_t> left = grown;
      left.erase(leaf);
      best = std::max(best, Insert(at, next + 1, left));
    }
    return best >= 0 ? best : Best(at + 1, cache);  // no room: the rest is not kept
  }

  const SmallTree& tree_;
  const size_t capacity_;
  std::map<std::pair<size_t, std::set<int32_t>>, int64_t> best_;
};

TEST(Simulate, TheOracleHitsAsMuchAsTheBestOfAllChoices) {
  uint32_t state = 7;
  const auto below = [&](uint32_t bound) {
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % bound;
  };
  for (int round = 0; round < 40; ++round) {
    SmallTree tree;
    for (int32_t block = 0; block < 9; ++block) {
      tree.parent.push_back(static_cast<int32_t>(below(static_cast<uint32_t>(block + 1))) - 1);
    }
    Trace trace;
    trace.block_tokens = 1;
    trace.distinct_blocks = 9;
    for (int request = 0; request < 9; ++request) {
      std::vector<int32_t> path;
      for (int32_t block = static_cast<int32_t>(below(9)); block >= 0;
           block = tree.parent[static_cast<size_t>(block)]) {
        path.insert(path.begin(), block);
      }
      TraceRequest made;
      made.tokens = static_cast<int32_t>(path.size());
      made.blocks = path;
      trace.requests.push_back(made);
      tree.requests.push_back(path);
    }
    for (const int32_t capacity : {2, 3, 4}) {
      EXPECT_EQ(Simulate(trace, kOracle, {.cache_blocks = capacity})->hit_tokens,
                Exhaustive(tree, static_cast<size_t>(capacity)).Best(0, {}))
          << "round " << round << ", " << capacity << " blocks";
    }
  }
}

}  // namespace
}  // namespace refrain::cachesim
