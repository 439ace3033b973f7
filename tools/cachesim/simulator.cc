#include "tools/cachesim/simulator.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <vector>

#include "kvcache/cache_manager.h"
#include "kvcache/eviction_policy.h"
#include "tools/cachesim/furthest_use_policy.h"

namespace refrain::cachesim {
namespace {

using kvcache::CacheManager;
using kvcache::SequenceId;
using kvcache::TokenId;

// There are no bytes to move.
class NoBytes : public kvcache::ChunkMover {
 public:
  absl::Status CopyChunk(kvcache::ChunkId, kvcache::ChunkId) override { return absl::OkStatus(); }
};

// For each request and block, the next request that has the block.
std::vector<std::vector<int64_t>> NextUses(const Trace& trace) {
  std::vector<int64_t> next(static_cast<size_t>(trace.distinct_blocks), FurthestUsePolicy::kNever);
  std::vector<std::vector<int64_t>> uses(trace.requests.size());
  for (size_t i = trace.requests.size(); i-- > 0;) {
    for (const int32_t block : trace.requests[i].blocks) {
      int64_t& use = next[static_cast<size_t>(block)];
      uses[i].push_back(use);
      use = static_cast<int64_t>(i);
    }
  }
  return uses;
}

class Simulation {
 public:
  Simulation(const Trace& trace, std::unique_ptr<CacheManager> cache)
      : trace_(trace), cache_(std::move(cache)) {
    size_t longest = 0;
    for (const TraceRequest& request : trace.requests) {
      longest = std::max(longest, request.blocks.size());
    }
    positions_.resize(longest);
    std::iota(positions_.begin(), positions_.end(), 0);
  }

  absl::Status Serve(const TraceRequest& request) {
    ids_.resize(request.blocks.size());
    std::transform(request.blocks.begin(), request.blocks.end(), ids_.begin(),
                   [](int32_t block) { return TokenId{block}; });
    const kvcache::Namespace name_space;
    const SequenceId sequence{++requests_};
    const int32_t blocks = static_cast<int32_t>(ids_.size());
    const kvcache::MatchResult match = cache_->Match(name_space, {.ids = ids_, .positions = {}});
    if (auto slot = cache_->Join(sequence, name_space, match, blocks); !slot.ok()) {
      return slot.status();
    }
    const int32_t begin = match.num_tokens;
    const int32_t count = std::min(blocks - begin, cache_->stats().available_chunks());
    if (absl::Status status = cache_->Reserve(sequence, count); !status.ok()) return status;
    places_.clear();
    cache_->Append(sequence, Part(positions_, begin, count), &places_);
    cache_->Publish(sequence, Part(ids_, begin, count));
    cache_->Leave(sequence);
    result_.prompt_tokens += request.tokens;
    result_.hit_tokens += std::min<int64_t>(int64_t{begin} * trace_.block_tokens, request.tokens);
    return absl::OkStatus();
  }

  SimulationResult result() const {
    SimulationResult result = result_;
    result.evicted_blocks = cache_->stats().evicted_chunks_total;
    return result;
  }

 private:
  template <typename T>
  static std::span<const T> Part(const std::vector<T>& of, int32_t begin, int32_t count) {
    return std::span(of).subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
  }

  const Trace& trace_;
  const std::unique_ptr<CacheManager> cache_;
  uint64_t requests_ = 0;
  std::vector<int32_t> positions_;  // 0, 1, 2, ...
  std::vector<TokenId> ids_;
  std::vector<kvcache::TokenPlace> places_;
  SimulationResult result_;
};

}  // namespace

absl::StatusOr<SimulationResult> Simulate(const Trace& trace, const std::string& policy_name,
                                          int32_t cache_blocks) {
  std::unique_ptr<kvcache::EvictionPolicy> policy;
  FurthestUsePolicy* oracle = nullptr;
  std::vector<std::vector<int64_t>> next_uses;
  if (policy_name == kOracle) {
    auto made = std::make_unique<FurthestUsePolicy>();
    oracle = made.get();
    policy = std::move(made);
    next_uses = NextUses(trace);
  } else {
    auto made = kvcache::MakeEvictionPolicy(policy_name, cache_blocks);
    if (!made.ok()) return made.status();
    policy = *std::move(made);
  }
  NoBytes mover;
  auto cache = CacheManager::Create({.num_chunks = cache_blocks, .chunk_tokens = 1, .max_slots = 1},
                                    &mover, std::move(policy));
  if (!cache.ok()) return cache.status();
  Simulation simulation(trace, *std::move(cache));
  const auto begin = std::chrono::steady_clock::now();
  for (size_t i = 0; i < trace.requests.size(); ++i) {
    if (oracle != nullptr) oracle->NextRequest(next_uses[i]);
    if (absl::Status status = simulation.Serve(trace.requests[i]); !status.ok()) return status;
  }
  SimulationResult result = simulation.result();
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

}  // namespace refrain::cachesim
