// Eviction where prompts part inside a chunk, as behind a chat template's header: the real cache,
// token by token.

#include <gtest/gtest.h>

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

  // Returns how many of its tokens were there.
  int32_t Serve(const std::vector<TokenId>& ids) {
    const SequenceId sequence{++requests_};
    const Namespace name_space;
    const auto tokens = static_cast<int32_t>(ids.size());
    std::vector<int32_t> positions;
    for (int32_t i = 0; i < tokens; ++i) positions.push_back(i);
    const MatchResult match = cache_->Match(
        name_space,
        {std::span(ids).first(ids.size() - 1), std::span(positions).first(ids.size() - 1)});
    EXPECT_TRUE(cache_->Join(sequence, name_space, match, tokens).ok());
    const int32_t begin = match.num_tokens;
    EXPECT_TRUE(cache_->Reserve(sequence, tokens - begin).ok());
    std::vector<TokenPlace> places;
    cache_->Append(sequence, std::span(positions).subspan(static_cast<size_t>(begin)), &places);
    cache_->Publish(sequence, std::span(ids).subspan(static_cast<size_t>(begin)));
    cache_->Leave(sequence);
    return begin;
  }

 private:
  ::refrain::testing::FakeChunkMover mover_;
  const std::unique_ptr<CacheManager> cache_;
  uint64_t requests_ = 0;
};

// Conversations of `turns` turns, and beside each turn a stranger who never comes back; all begin
// with the same header. Returns the share of tokens that was cached.
double CachedShare(const std::string& policy, int32_t header_tokens, int turns) {
  constexpr int kConversations = 6;
  PartMatchedCache cache(policy);
  std::mt19937 random(7);
  const auto append = [&](std::vector<TokenId>* ids, int32_t count) {
    for (int32_t i = 0; i < count; ++i) {
      ids->push_back(TokenId{static_cast<int32_t>(random() % 30'000)});
    }
  };
  std::vector<TokenId> header;
  append(&header, header_tokens);
  std::vector<std::vector<TokenId>> conversations(kConversations, header);
  std::vector<int> done(kConversations, 0);
  int64_t cached = 0, all = 0;
  const auto serve = [&](const std::vector<TokenId>& ids) {
    cached += cache.Serve(ids);
    all += static_cast<int64_t>(ids.size());
  };
  for (int round = 0; round < 4000; ++round) {
    const size_t one = random() % kConversations;
    if (done[one]++ == turns) {
      conversations[one] = header;
      done[one] = 1;
    }
    append(&conversations[one], 40);
    serve(conversations[one]);
    std::vector<TokenId> stranger = header;
    append(&stranger, 60);
    serve(stranger);
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

// In whole chunks, and in chunks and a part.
INSTANTIATE_TEST_SUITE_P(HeaderTokens, PartMatches, ::testing::Values(5, 10, 16, 24, 30, 32, 40));

}  // namespace
}  // namespace refrain::kvcache
