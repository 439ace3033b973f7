#include "kvcache/awaiting_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/kvcache/cache_harness.h"
#include "tests/kvcache/steady_line.h"
#include "tests/support/cpu_time.h"
#include "tests/support/random_steps.h"
#include "tests/support/slow_build.h"

namespace refrain::kvcache {
namespace {

using ::refrain::testing::SteadyLine;

NodeId N(int32_t id) { return NodeId{id}; }
SequenceId S(uint64_t id) { return SequenceId{id}; }

constexpr int32_t kRoot = 100;

class AwaitingPolicyTest : public ::testing::Test {
 protected:
  // For 8,000 chunks: some are awaited, but for where a test takes fewer.
  explicit AwaitingPolicyTest(int32_t chunks = 8000)
      : policy_(*MakeEvictionPolicy("lru", chunks)) {}

  void InsertIdle(int32_t id) {
    policy_->Inserted(N(id), {.tokens = 64, .parent = N(kRoot)});
    policy_->Idle(N(id));
  }

  // Chunks first, first + 1, ...: each the child of the one before.
  void InsertLineage(int32_t first, int32_t last) {
    for (int32_t id = first; id <= last; ++id) {
      policy_->Inserted(N(id), {.tokens = 64, .parent = N(id == first ? kRoot : id - 1)});
      parents_[id] = id == first ? kRoot : id - 1;
    }
    policy_->Idle(N(last));
  }

  std::vector<int32_t> EvictAll() {
    std::vector<int32_t> order;
    while (const auto victim = policy_->Victim()) {
      const auto id = static_cast<int32_t>(*victim);
      order.push_back(id);
      policy_->Evicted(*victim);
      const auto parent = parents_.find(id);
      if (parent != parents_.end() && parent->second != kRoot) policy_->Idle(N(parent->second));
    }
    return order;
  }

  std::unique_ptr<EvictionPolicy> policy_;
  std::map<int32_t, int32_t> parents_;
};

TEST_F(AwaitingPolicyTest, EvictsWhatIsAwaitedLastAndWhatComesSoonestLastOfAll) {
  for (int32_t id = 1; id <= 5; ++id) InsertIdle(id);
  policy_->Await(S(8), {}, N(1));
  policy_->Await(S(7), {}, N(2));
  policy_->Await(S(9), {}, N(3));
  EXPECT_EQ(EvictAll(), (std::vector<int32_t>{4, 5, 3, 1, 2}));
}

// Whose rank is lower runs sooner, however late it came.
TEST_F(AwaitingPolicyTest, RanksComeBeforeIds) {
  for (int32_t id = 1; id <= 4; ++id) InsertIdle(id);
  policy_->Await(S(7), {}, N(1));
  policy_->Await(S(8), {.rank = INT64_MIN}, N(2));
  policy_->Await(S(6), {.rank = INT64_MAX}, N(3));
  EXPECT_EQ(policy_->Victim(), N(4));
  policy_->Evicted(N(4));
  EXPECT_EQ(EvictAll(), (std::vector<int32_t>{3, 1, 2}));
}

TEST_F(AwaitingPolicyTest, ASequenceHasTheRankItWasGivenLast) {
  for (int32_t id = 1; id <= 2; ++id) InsertIdle(id);
  policy_->Await(S(5), {.rank = 1}, N(1));
  policy_->Await(S(6), {.rank = 2}, N(2));
  policy_->Await(S(6), {}, N(2));
  EXPECT_EQ(EvictAll(), (std::vector<int32_t>{1, 2}));
}

// The first to come of several counts, whenever it began to wait.
TEST_F(AwaitingPolicyTest, AChunkOfSeveralIsKeptForTheFirst) {
  for (int32_t id = 1; id <= 3; ++id) InsertIdle(id);
  policy_->Await(S(9), {}, N(1));
  policy_->Await(S(6), {}, N(2));
  policy_->Await(S(5), {}, N(1));
  EXPECT_EQ(EvictAll(), (std::vector<int32_t>{3, 2, 1}));
}

TEST_F(AwaitingPolicyTest, IsEvictedAsOthersOnceNobodyAwaitsIt) {
  for (int32_t id = 1; id <= 3; ++id) InsertIdle(id);
  policy_->Await(S(5), {}, N(1));
  policy_->Await(S(6), {}, N(1));
  policy_->StopAwaiting(S(5));
  EXPECT_EQ(policy_->Victim(), N(2));
  policy_->StopAwaiting(S(6));
  policy_->StopAwaiting(S(6));
  policy_->StopAwaiting(S(77));
  EXPECT_EQ(EvictAll(), (std::vector<int32_t>{1, 2, 3}));
}

TEST_F(AwaitingPolicyTest, ASequenceAwaitsWhatItWasGivenLast) {
  for (int32_t id = 1; id <= 3; ++id) InsertIdle(id);
  policy_->Await(S(5), {}, N(1));
  policy_->Await(S(5), {}, N(2));
  policy_->Await(S(5), {}, N(2));
  EXPECT_EQ(EvictAll(), (std::vector<int32_t>{1, 3, 2}));
}

TEST_F(AwaitingPolicyTest, WhatIsInUseIsSparedOnceItIsNot) {
  policy_->Inserted(N(1), {.tokens = 64, .parent = N(kRoot)});
  policy_->Await(S(5), {}, N(1));
  InsertIdle(2);
  EXPECT_EQ(policy_->Victim(), N(2));
  policy_->Idle(N(1));
  policy_->Busy(N(1));
  policy_->Idle(N(1));
  EXPECT_EQ(EvictAll(), (std::vector<int32_t>{2, 1}));
}

// A victim that was named and not evicted, for it came to be used, is spared when it is idle again.
TEST_F(AwaitingPolicyTest, AVictimThatIsUsedAfterAllIsSparedAgain) {
  InsertIdle(1);
  policy_->Await(S(5), {}, N(1));
  EXPECT_EQ(policy_->Victim(), N(1));
  EXPECT_EQ(policy_->Victim(), N(1));
  policy_->Busy(N(1));
  InsertIdle(2);
  policy_->Idle(N(1));
  EXPECT_EQ(EvictAll(), (std::vector<int32_t>{2, 1}));
}

// From its end; what is left of it stays awaited.
TEST_F(AwaitingPolicyTest, ALineageGivesUpFromItsEndAndIsAwaitedUpToThere) {
  InsertLineage(1, 3);
  policy_->Await(S(5), {}, N(3));
  EXPECT_EQ(policy_->Victim(), N(3));
  policy_->Evicted(N(3));
  policy_->Idle(N(2));
  InsertIdle(10);
  InsertIdle(11);
  EXPECT_EQ(EvictAll(), (std::vector<int32_t>{10, 11, 2, 1}));
}

TEST_F(AwaitingPolicyTest, LineagesGiveUpOneAfterTheOther) {
  InsertLineage(1, 3);
  InsertLineage(4, 6);
  policy_->Await(S(5), {}, N(3));
  policy_->Await(S(4), {}, N(6));
  EXPECT_EQ(EvictAll(), (std::vector<int32_t>{3, 2, 1, 6, 5, 4}));
}

// What lies behind an awaited chunk goes like any; then the chunk is spared.
TEST_F(AwaitingPolicyTest, WhatIsBehindIsNotAwaited) {
  InsertLineage(1, 2);
  policy_->Await(S(5), {}, N(1));
  InsertIdle(10);
  EXPECT_EQ(EvictAll(), (std::vector<int32_t>{2, 10, 1}));
}

TEST_F(AwaitingPolicyTest, WhatTakesAChunksPlaceIsAwaited) {
  InsertIdle(1);
  InsertIdle(2);
  InsertIdle(3);
  policy_->Await(S(5), {}, N(1));
  policy_->Replaced(N(1), N(2));
  EXPECT_EQ(EvictAll(), (std::vector<int32_t>{3, 2}));
}

TEST_F(AwaitingPolicyTest, WhatComesBeforeADroppedChunkIsAwaited) {
  InsertLineage(1, 2);
  policy_->Await(S(5), {}, N(2));
  policy_->Dropped(N(2));
  policy_->Idle(N(1));
  InsertIdle(10);
  EXPECT_EQ(EvictAll(), (std::vector<int32_t>{10, 1}));
}

TEST_F(AwaitingPolicyTest, NodeIdsAreUsedAgain) {
  InsertIdle(1);
  policy_->Await(S(5), {}, N(1));
  policy_->Dropped(N(1));
  InsertIdle(1);
  InsertIdle(2);
  EXPECT_EQ(EvictAll(), (std::vector<int32_t>{1, 2}));
}

// Sequences that awaited different chunks of a lineage, and now its beginning, end one by one.
TEST_F(AwaitingPolicyTest, EachOfThoseThatMeetStopsByItself) {
  InsertLineage(1, 3);
  for (const uint64_t id : {4, 5, 6}) policy_->Await(S(id), {}, N(3));
  for (const uint64_t id : {7, 8}) policy_->Await(S(id), {}, N(2));
  policy_->Await(S(9), {}, N(1));
  for (const int32_t id : {3, 2}) {
    EXPECT_EQ(policy_->Victim(), N(id));
    policy_->Evicted(N(id));
    policy_->Idle(N(id - 1));
  }
  InsertIdle(10);
  for (uint64_t id = 4; id <= 9; ++id) {
    EXPECT_EQ(policy_->Victim(), N(10)) << id;
    policy_->StopAwaiting(S(id));
  }
  EXPECT_EQ(policy_->Victim(), N(1));
}

// Many stand in one line, some in others, and came later: turns alone count.
TEST_F(AwaitingPolicyTest, OfSeveralLinesTheTurnThatComesLastGoesFirst) {
  const SteadyLine many(0, 10), few(5, 10), slow(0, 1000);
  for (int32_t id = 1; id <= 9; ++id) InsertIdle(id);
  for (int32_t i = 0; i < 5; ++i) policy_->Await(S(1 + i), {.rank = i, .line = &many}, N(1 + i));
  for (int32_t i = 0; i < 2; ++i) policy_->Await(S(11 + i), {.rank = i, .line = &few}, N(6 + i));
  for (int32_t i = 0; i < 2; ++i) policy_->Await(S(21 + i), {.rank = i, .line = &slow}, N(8 + i));
  EXPECT_EQ(EvictAll(), (std::vector<int32_t>{9, 5, 4, 3, 7, 2, 6, 8, 1}));
}

// One line gets behind the other while both wait.
TEST_F(AwaitingPolicyTest, TurnsCountAsTheyAreWhenSomethingGoes) {
  SteadyLine one(0, 1), other(10, 1);
  for (int32_t id = 1; id <= 4; ++id) InsertIdle(id);
  for (int32_t i = 0; i < 2; ++i) policy_->Await(S(1 + i), {.rank = i, .line = &one}, N(1 + i));
  for (int32_t i = 0; i < 2; ++i) policy_->Await(S(3 + i), {.rank = i, .line = &other}, N(3 + i));
  EXPECT_EQ(policy_->Victim(), N(4));
  policy_->Evicted(N(4));
  one.Delay(20);
  EXPECT_EQ(EvictAll(), (std::vector<int32_t>{2, 1, 3}));
}

TEST_F(AwaitingPolicyTest, AChunkOfSeveralLinesIsKeptForTheFirstTurn) {
  const SteadyLine one(0, 10), other(5, 10);
  for (int32_t id = 1; id <= 3; ++id) InsertIdle(id);
  policy_->Await(S(1), {.rank = 7, .line = &one}, N(1));
  policy_->Await(S(2), {.rank = 2, .line = &one}, N(2));
  policy_->Await(S(3), {.rank = 3, .line = &one}, N(3));
  policy_->Await(S(9), {.rank = 0, .line = &other}, N(1));
  for (const bool stops : {false, true}) {
    EXPECT_EQ(policy_->Victim(), stops ? N(1) : N(3));
    policy_->Busy(stops ? N(1) : N(3));
    policy_->Idle(stops ? N(1) : N(3));
    policy_->StopAwaiting(S(9));
  }
}

// To ask a thousand lines for each chunk would cost more than to evict it.
TEST_F(AwaitingPolicyTest, LinesAreAskedOnceForALineage) {
  const SteadyLine one(0, 1), other(10, 1);
  InsertLineage(1, 5);
  InsertLineage(6, 10);
  policy_->Await(S(1), {.line = &one}, N(5));
  policy_->Await(S(2), {.line = &other}, N(10));
  EXPECT_EQ(EvictAll(), (std::vector<int32_t>{10, 9, 8, 7, 6, 5, 4, 3, 2, 1}));
  EXPECT_LE(one.questions + other.questions, 4);
}

// Eight chunks, of which six may be awaited.
class FewAwaitedTest : public AwaitingPolicyTest {
 protected:
  FewAwaitedTest() : AwaitingPolicyTest(8) {}
};

// Of four conversations of two chunks the last to come is as if it did not wait: older than another
// chunk, and evicted before it. When the first one runs there is room for it.
TEST_F(FewAwaitedTest, WhoComesLastBeyondThemAwaitsNothing) {
  for (const bool another_runs : {false, true}) {
    policy_ = *MakeEvictionPolicy("lru", 8);
    for (const int32_t first : {1, 3, 5, 7}) InsertLineage(first, first + 1);
    InsertIdle(10);
    for (int32_t i = 4; i >= 1; --i) policy_->Await(S(i), {}, N(2 * i));
    if (another_runs) policy_->StopAwaiting(S(1));
    policy_->Await(S(4), {}, N(8));
    EXPECT_EQ(policy_->Victim(), N(another_runs ? 2 : 8));
  }
}

// Five chunks that all begin with count once, whoever awaits how many of them.
TEST_F(FewAwaitedTest, WhatSeveralAwaitCountsOnce) {
  InsertLineage(1, 5);
  for (const int32_t end : {6, 7}) {
    policy_->Inserted(N(end), {.tokens = 64, .parent = N(5)});
    policy_->Idle(N(end));
  }
  for (int32_t i = 1; i <= 5; ++i) policy_->Await(S(i), {}, N(i));
  policy_->Await(S(6), {}, N(6));
  InsertIdle(10);
  EXPECT_EQ(policy_->Victim(), N(7));
  policy_->Evicted(N(7));
  EXPECT_EQ(policy_->Victim(), N(10));
}

// What leaves, or is awaited no more, counts no more: there is room for others.
TEST_F(FewAwaitedTest, WhatIsGoneDoesNotCount) {
  for (int round = 0; round < 5; ++round) {
    InsertLineage(1, 6);
    policy_->Await(S(1), {}, N(6));
    EXPECT_EQ(EvictAll().size(), 6u);
    InsertLineage(1, 6);
    policy_->Await(S(1), {}, N(6));
    InsertIdle(10);
    EXPECT_EQ(policy_->Victim(), N(10));
    policy_->Dropped(N(10));
    policy_->StopAwaiting(S(1));
    EXPECT_EQ(EvictAll().size(), 6u);
  }
}

// The second of the queue has more than fits beside the first's. Who comes behind it awaits
// nothing, but it does.
TEST_F(FewAwaitedTest, WhoDoesNotFitGivesUpNothingForThoseBehindIt) {
  InsertLineage(1, 3);
  InsertLineage(4, 7);
  InsertIdle(8);
  policy_->Await(S(1), {}, N(3));
  policy_->Await(S(3), {}, N(8));
  policy_->Await(S(2), {}, N(7));
  policy_->Await(S(3), {}, N(8));
  InsertIdle(10);
  EXPECT_EQ(EvictAll(), (std::vector<int32_t>{8, 10, 7, 6, 5, 4, 3, 2, 1}));
}

// A conversation has begun to give up, awaits what is left of it anew, and then others come whose
// turns are later.
TEST_F(AwaitingPolicyTest, WhoAwaitsAnewNoLongerGivesUp) {
  const SteadyLine sooner(1, 1), later(100, 1);
  InsertLineage(1, 3);
  InsertLineage(4, 5);
  policy_->Await(S(1), {.line = &sooner}, N(3));
  policy_->Busy(N(5));
  EXPECT_EQ(policy_->Victim(), N(3));
  policy_->Evicted(N(3));
  policy_->Idle(N(2));
  policy_->Await(S(1), {.line = &sooner}, N(2));
  policy_->Idle(N(5));
  policy_->Await(S(2), {.line = &later}, N(5));
  EXPECT_EQ(policy_->Victim(), N(5));
}

// Half of them await its end, the others all of its chunks; it gives up chunk by chunk.
TEST_F(AwaitingPolicyTest, ThousandsMayAwaitOneLineage) {
  constexpr int32_t kChunks = 2000;
  constexpr int32_t kLast = kRoot + kChunks;
  InsertLineage(kRoot + 1, kLast);
  const std::chrono::nanoseconds begin = testing::ThreadCpuTime();
  for (uint64_t id = 1; id <= 40'000; ++id) {
    const auto before_last = static_cast<int32_t>(id % 2 == 0 ? 0 : id / 2 % kChunks);
    policy_->Await(S(id), {}, N(kLast - before_last));
  }
  EXPECT_EQ(EvictAll().size(), size_t{kChunks});
  EXPECT_LT(testing::ThreadCpuTime() - begin, std::chrono::seconds(1) * testing::kSlowBuildFactor);
}

// A prompt of one chunk comes again and again, and the next request for it always waits already.
// That its chunk, a tail, was hit each time tells what others' tails are worth.
TEST(AwaitingReuseRateTest, LearnsAsIfNobodyWaited) {
  for (const bool waits : {false, true}) {
    const auto policy = *MakeEvictionPolicy("reuse_rate", 100);
    policy->RequestJoined();
    policy->Inserted(N(1), {.tokens = 64, .parent = N(kRoot), .lineage_hash = 1});
    for (int i = 0; i < 100; ++i) {
      if (waits) policy->Await(S(5), {}, N(1));
      policy->Leaving(N(1), AnswerEnd::kOther);
      policy->Idle(N(1));
      policy->RequestJoined();
      policy->Hit(N(1));
      policy->Busy(N(1));
      policy->StopAwaiting(S(5));
    }
    // Of an older lineage what is left is no tail; of a younger one it is.
    policy->RequestJoined();
    policy->Inserted(N(10), {.tokens = 64, .parent = N(kRoot), .lineage_hash = 10});
    policy->Inserted(N(11),
                     {.depth_tokens = 64, .tokens = 64, .parent = N(10), .lineage_hash = 11});
    policy->Idle(N(11));
    policy->Dropped(N(11));
    policy->Idle(N(10));
    for (int i = 0; i < 4; ++i) policy->RequestJoined();
    policy->Inserted(N(20), {.tokens = 64, .parent = N(kRoot), .lineage_hash = 20});
    policy->Idle(N(20));
    EXPECT_EQ(policy->Victim(), N(10)) << waits;
  }
}

// What is awaited goes after what clients asked to be kept.
TEST_F(AwaitingPolicyTest, OutlivesWhatIsRetained) {
  for (int32_t id = 1; id <= 4; ++id) {
    policy_->Inserted(N(id), {.tokens = 64, .parent = N(kRoot)});
    if (id <= 2) policy_->Retain(N(id), "");
    policy_->Idle(N(id));
  }
  policy_->Await(S(5), {}, N(1));
  policy_->Await(S(6), {}, N(3));
  EXPECT_EQ(EvictAll(), (std::vector<int32_t>{4, 2, 3, 1}));
}

// Beside plain lists: chunks without children, LRU.
TEST(AwaitingPolicyRandomTest, NamesWhatPlainListsName) {
  struct Plain {
    bool idle = false;
    int64_t last_use = 0;
    std::optional<std::pair<int64_t, uint64_t>> first;  // that awaits it: turn and id
  };
  std::mt19937 random(testing::RandomSeed(1));
  const auto below = [&](uint32_t n) { return static_cast<int32_t>(random() % n); };
  const auto policy = *MakeEvictionPolicy("lru", 1000);
  std::map<int32_t, Plain> chunks;
  struct Waiting {
    int64_t turn;
    int32_t chunk;
  };
  const SteadyLine lines[] = {{0, 3}, {1, 3}, {2, 5}};
  std::map<uint64_t, Waiting> awaits;
  int64_t now = 0;
  int spared = 0;
  int of_awaited = 0;
  for (int step = 0; step < 10 * testing::RandomSteps(); ++step) {
    const int32_t id = below(12);
    const bool there = chunks.contains(id);
    const int32_t action = below(6);
    if (!there) {
      policy->Inserted(N(id), {.tokens = 64, .parent = N(kRoot)});
      chunks[id].last_use = ++now;
    } else if (action < 2) {
      chunks[id].idle ? policy->Busy(N(id)) : policy->Idle(N(id));
      chunks[id].idle = !chunks[id].idle;
    } else if (action < 4) {
      const auto sequence = static_cast<uint64_t>(below(6));
      const int32_t rank = below(3);
      const SteadyLine& line = lines[below(3)];
      policy->Await(S(sequence), {.rank = rank, .line = &line}, N(id));
      awaits[sequence] = {line.TurnOf(rank, S(sequence)), id};
    } else if (action == 4) {
      const auto sequence = static_cast<uint64_t>(below(6));
      policy->StopAwaiting(S(sequence));
      awaits.erase(sequence);
    }
    for (auto& [other, chunk] : chunks) chunk.first.reset();
    for (const auto& [sequence, waiting] : awaits) {
      auto& first = chunks.at(waiting.chunk).first;
      const std::pair place(waiting.turn, sequence);
      if (!first.has_value() || place < *first) first = place;
    }
    if (action != 5) continue;
    // By what is evicted first.
    const auto before = [](const auto& a, const auto& b) {
      const Plain &x = a.second, &y = b.second;
      if (x.idle != y.idle) return x.idle;
      if (x.first.has_value() != y.first.has_value()) return y.first.has_value();
      return x.first.has_value() ? *x.first > *y.first : x.last_use < y.last_use;
    };
    const auto victim = std::min_element(chunks.begin(), chunks.end(), before);
    const bool some_idle = victim->second.idle;
    ASSERT_EQ(policy->Victim(), some_idle ? std::optional(N(victim->first)) : std::nullopt);
    if (!some_idle) continue;
    victim->second.first.has_value() ? ++of_awaited : ++spared;
    std::erase_if(awaits, [&](const auto& of) { return of.second.chunk == victim->first; });
    policy->Evicted(N(victim->first));
    chunks.erase(victim);
  }
  EXPECT_GT(spared, testing::RandomSteps() / 20);
  EXPECT_GT(of_awaited, testing::RandomSteps() / 20);
}

class AwaitingInCacheTest : public ::testing::Test {
 protected:
  void RunAndLeave(uint64_t id, const std::string& text) {
    h_.Run(id, text);
    h_.Leave(id);
  }
  int32_t Cached(const std::string& text) { return h_.Match(testing::CellsOf(text)).num_tokens; }

  testing::LetterHarness h_{6};
};

TEST_F(AwaitingInCacheTest, OthersTakeOtherChunks) {
  RunAndLeave(1, "aaaabbbb");
  RunAndLeave(2, "ccccdddd");
  h_.cache->Await(S(9), {}, h_.Match(testing::CellsOf("aaaabbbbx")));
  for (uint64_t id = 10; id < 20; ++id)
    RunAndLeave(id, std::string(8, static_cast<char>('A' + id)));
  EXPECT_EQ(Cached("aaaabbbb"), 8);
  EXPECT_EQ(Cached("cccc"), 0);
  h_.cache->StopAwaiting(S(9));
  for (uint64_t id = 20; id < 23; ++id)
    RunAndLeave(id, std::string(8, static_cast<char>('A' + id)));
  EXPECT_EQ(Cached("a"), 0);
  h_.CheckAll();
}

// A prompt of which one token is found, in any of as many chunks.
TEST_F(AwaitingInCacheTest, OneOfManyThatBeginAlikeIsNotAwaited) {
  for (const int alike : {4, 5}) {
    testing::LetterHarness h(6);
    for (int i = 0; i < alike; ++i) {
      h.Run(static_cast<uint64_t>(i), "x" + std::string(3, static_cast<char>('a' + i)));
      h.Leave(static_cast<uint64_t>(i));
    }
    // It would be copied.
    const MatchResult match = h.Match(testing::CellsOf("xA"));
    ASSERT_EQ(match.num_tokens, 1);
    h.cache->Await(S(99), {}, match);
    for (uint64_t id = 10; id < 16; ++id) {
      h.Run(id, std::string(4, static_cast<char>('A' + id)));
      h.Leave(id);
    }
    EXPECT_EQ(h.Match(testing::CellsOf("x")).num_tokens, alike == 4 ? 1 : 0);
    h.CheckAll();
  }
}

// A pool that who runs needs whole is theirs.
TEST_F(AwaitingInCacheTest, NobodyWaitsForAChunkThatIsOnlyAwaited) {
  RunAndLeave(1, "aaaabbbb");
  h_.cache->Await(S(9), {}, h_.Match(testing::CellsOf("aaaabbbb")));
  RunAndLeave(2, std::string(20, 'A'));
  EXPECT_EQ(Cached("aaaabbbb"), 4);
  RunAndLeave(3, std::string(24, 'B'));
  EXPECT_EQ(Cached("a"), 0);
  h_.cache->Await(S(9), {}, {});
  h_.CheckAll();
}

// The last chunk of "abcdef" has two tokens: another sequence goes on in a chunk that has them too.
TEST_F(AwaitingInCacheTest, FollowsTokensIntoTheChunkThatTakesTheirPlace) {
  RunAndLeave(1, "abcdef");
  h_.cache->Await(S(9), {}, h_.Match(testing::CellsOf("abcdef")));
  RunAndLeave(2, "abcdefgh");
  for (uint64_t id = 10; id < 20; ++id)
    RunAndLeave(id, std::string(8, static_cast<char>('A' + id)));
  EXPECT_EQ(Cached("abcdef"), 6);
  h_.CheckAll();
}

}  // namespace
}  // namespace refrain::kvcache
