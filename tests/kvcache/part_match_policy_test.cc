// Eviction where prompts part inside a chunk, as behind a chat template's header: the real cache,
// token by token.

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kvcache/cache_manager.h"
#include "kvcache/eviction_policy.h"
#include "tests/support/fake_chunk_mover.h"

namespace refrain::kvcache {
namespace {

constexpr int32_t kChunkTokens = 16;
constexpr int32_t kChunks = 96;

class PartMatchedCache {
 public:
  explicit PartMatchedCache(const std::string& policy)
      : mover_(kChunks, kChunkTokens),
        cache_(*CacheManager::Create(
            {.num_chunks = kChunks, .chunk_tokens = kChunkTokens, .max_slots = 1}, &mover_,
            *MakeEvictionPolicy(policy, kChunks))) {}

  void Await(SequenceId sequence, const std::vector<TokenId>& ids) {
    cache_->Await(sequence, {}, Match(ids));
  }

  // Returns how many of its tokens were there.
  int32_t Serve(SequenceId sequence, const std::vector<TokenId>& ids) {
    const auto tokens = static_cast<int32_t>(ids.size());
    std::vector<int32_t> positions;
    for (int32_t i = 0; i < tokens; ++i) positions.push_back(i);
    const MatchResult match = Match(ids);
    EXPECT_TRUE(cache_->Join(sequence, {}, match, tokens).ok());
    cache_->StopAwaiting(sequence);
    const int32_t begin = match.num_tokens;
    EXPECT_TRUE(cache_->Reserve(sequence, tokens - begin).ok());
    std::vector<TokenPlace> places;
    cache_->Append(sequence, std::span(positions).subspan(static_cast<size_t>(begin)), &places);
    cache_->Publish(sequence, std::span(ids).subspan(static_cast<size_t>(begin)));
    cache_->Leave(sequence);
    return begin;
  }

 private:
  MatchResult Match(const std::vector<TokenId>& ids) const {
    return cache_->Match({}, {.ids = std::span(ids).first(ids.size() - 1), .positions = {}});
  }

  ::refrain::testing::FakeChunkMover mover_;
  const std::unique_ptr<CacheManager> cache_;
};

void AppendRandom(std::mt19937& random, int32_t count, std::vector<TokenId>* ids) {
  for (int32_t i = 0; i < count; ++i) {
    ids->push_back(TokenId{static_cast<int32_t>(random() % 30'000)});
  }
}

// Conversations of `turns` turns, and beside each turn a stranger who never comes back; all begin
// with the same header. Returns the share of tokens that was cached.
double CachedShare(const std::string& policy, int32_t header_tokens, int turns) {
  constexpr int kConversations = 6;
  PartMatchedCache cache(policy);
  std::mt19937 random(7);
  std::vector<TokenId> header;
  AppendRandom(random, header_tokens, &header);
  std::vector<std::vector<TokenId>> conversations(kConversations, header);
  std::vector<int> done(kConversations, 0);
  uint64_t requests = 0;
  int64_t cached = 0, all = 0;
  const auto serve = [&](const std::vector<TokenId>& ids) {
    cached += cache.Serve(SequenceId{++requests}, ids);
    all += static_cast<int64_t>(ids.size());
  };
  for (int round = 0; round < 4000; ++round) {
    const size_t one = random() % kConversations;
    if (done[one]++ == turns) {
      conversations[one] = header;
      done[one] = 1;
    }
    AppendRandom(random, 40, &conversations[one]);
    serve(conversations[one]);
    std::vector<TokenId> stranger = header;
    AppendRandom(random, 60, &stranger);
    serve(stranger);
  }
  return static_cast<double>(cached) / static_cast<double>(all);
}

// The same with a queue: whoever was served comes again at once, as a conversation's next turn or
// as another stranger, `strangers` for each of six conversations.
double CachedShareOfQueue(const std::string& policy, int32_t header_tokens, int strangers,
                          bool await) {
  struct Waiting {
    SequenceId sequence{};
    std::vector<TokenId> ids;
    int turn = 0;  // 0: a stranger
  };
  constexpr int kConversations = 6;
  constexpr int kTurns = 8;
  PartMatchedCache cache(policy);
  std::mt19937 random(7);
  std::vector<TokenId> header;
  AppendRandom(random, header_tokens, &header);
  std::deque<Waiting> queue;
  uint64_t requests = 0;
  const auto come = [&](std::vector<TokenId> ids, int turn) {
    AppendRandom(random, turn == 0 ? 60 : 40, &ids);
    queue.push_back({SequenceId{++requests}, std::move(ids), turn});
  };
  for (int i = 0; i < kConversations * (1 + strangers); ++i) {
    come(header, i % (1 + strangers) == 0 ? 1 : 0);
  }
  int64_t cached = 0, all = 0;
  for (int round = 0; round < 1500; ++round) {
    for (const Waiting& waiting : queue) {
      if (await) cache.Await(waiting.sequence, waiting.ids);
    }
    Waiting served = std::move(queue.front());
    queue.pop_front();
    cached += cache.Serve(served.sequence, served.ids);
    all += static_cast<int64_t>(served.ids.size());
    if (served.turn == 0) {
      come(header, 0);
    } else if (served.turn == kTurns) {
      come(header, 1);
    } else {
      come(std::move(served.ids), served.turn + 1);
    }
  }
  return static_cast<double>(cached) / static_cast<double>(all);
}

class PartMatches : public ::testing::TestWithParam<int32_t> {};

// Strangers part from one another inside a chunk: none of them continues another.
TEST_P(PartMatches, TheDefaultPolicyIsNeverBelowLru) {
  for (const int turns : {3, 8}) {
    const double lru = CachedShare("lru", GetParam(), turns);
    const double reuse_rate = CachedShare("reuse_rate", GetParam(), turns);
    EXPECT_GE(reuse_rate, lru) << turns << " turns";
  }
}

// Strangers that wait match the header in as many chunks: to keep these for them would cost
// conversations theirs.
TEST_P(PartMatches, WhatWaitsDoesNotCostHits) {
  for (const int strangers : {1, 10}) {
    const double without = CachedShareOfQueue("reuse_rate", GetParam(), strangers, false);
    const double with = CachedShareOfQueue("reuse_rate", GetParam(), strangers, true);
    EXPECT_GT(with, without) << strangers << " strangers";
  }
}

// In whole chunks, and in chunks and a part.
INSTANTIATE_TEST_SUITE_P(HeaderTokens, PartMatches, ::testing::Values(5, 10, 16, 24, 30, 32, 40));

}  // namespace
}  // namespace refrain::kvcache
