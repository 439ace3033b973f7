#include "tools/cachesim/simulator.h"

#include <algorithm>
#include <chrono>
#include <deque>
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

  // Request `index` of the trace waits from now on.
  void Enqueue(size_t index) { waiting_.push_back({index, {}}); }
  bool idle() const { return waiting_.empty(); }

  // Those that wait look for their prompts where others have changed what is there, and say so
  // again: it may have been too much for all of them.
  void Await() {
    for (Waiting& waiting : waiting_) {
      if (!cache_->IsCurrent(waiting.match)) {
        LoadIds(trace_.requests[waiting.index]);
        waiting.match = cache_->MatchAgain(waiting.match, {}, {.ids = ids_, .positions = {}});
      }
      cache_->Await(IdOf(waiting.index), {}, waiting.match);
    }
  }

  // The one that has waited longest. Returns how many tokens had to be computed.
  absl::StatusOr<int64_t> ServeNext() {
    const size_t index = waiting_.front().index;
    waiting_.pop_front();
    queued_ += std::ssize(waiting_);
    ++served_;
    const TraceRequest& request = trace_.requests[index];
    LoadIds(request);
    const kvcache::Namespace name_space;
    const SequenceId sequence = IdOf(index);
    const int32_t blocks = static_cast<int32_t>(ids_.size());
    const kvcache::MatchResult match = cache_->Match(name_space, {.ids = ids_, .positions = {}});
    if (auto slot = cache_->Join(sequence, name_space, match, blocks); !slot.ok()) {
      return slot.status();
    }
    cache_->StopAwaiting(sequence);
    const int32_t begin = match.num_tokens;
    const int32_t count = std::min(blocks - begin, cache_->stats().available_chunks());
    if (absl::Status status = cache_->Reserve(sequence, count); !status.ok()) return status;
    places_.clear();
    cache_->Append(sequence, Part(positions_, begin, count), &places_);
    cache_->Publish(sequence, Part(ids_, begin, count));
    cache_->Leave(sequence);
    const int64_t hit = std::min<int64_t>(int64_t{begin} * trace_.block_tokens, request.tokens);
    result_.prompt_tokens += request.tokens;
    result_.hit_tokens += hit;
    return request.tokens - hit;
  }

  SimulationResult result() const {
    SimulationResult result = result_;
    result.evicted_blocks = cache_->stats().evicted_chunks_total;
    result.mean_queued =
        served_ == 0 ? 0 : static_cast<double>(queued_) / static_cast<double>(served_);
    return result;
  }

 private:
  struct Waiting {
    size_t index;
    kvcache::MatchResult match;
  };

  static SequenceId IdOf(size_t index) { return SequenceId{index + 1}; }
  void LoadIds(const TraceRequest& request) {
    ids_.resize(request.blocks.size());
    std::transform(request.blocks.begin(), request.blocks.end(), ids_.begin(),
                   [](int32_t block) { return TokenId{block}; });
  }
  template <typename T>
  static std::span<const T> Part(const std::vector<T>& of, int32_t begin, int32_t count) {
    return std::span(of).subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
  }

  const Trace& trace_;
  const std::unique_ptr<CacheManager> cache_;
  std::deque<Waiting> waiting_;
  int64_t served_ = 0;
  int64_t queued_ = 0;              // summed up over those served
  std::vector<int32_t> positions_;  // 0, 1, 2, ...
  std::vector<TokenId> ids_;
  std::vector<kvcache::TokenPlace> places_;
  SimulationResult result_;
};

}  // namespace

absl::StatusOr<SimulationResult> Simulate(const Trace& trace, const std::string& policy_name,
                                          const SimulationOptions& options) {
  std::unique_ptr<kvcache::EvictionPolicy> policy;
  FurthestUsePolicy* oracle = nullptr;
  std::vector<std::vector<int64_t>> next_uses;
  if (policy_name == kOracle) {
    auto made = std::make_unique<FurthestUsePolicy>();
    oracle = made.get();
    policy = std::move(made);
    next_uses = NextUses(trace);
  } else {
    auto made = kvcache::MakeEvictionPolicy(policy_name, options.cache_blocks);
    if (!made.ok()) return made.status();
    policy = *std::move(made);
  }
  NoBytes mover;
  auto cache =
      CacheManager::Create({.num_chunks = options.cache_blocks, .chunk_tokens = 1, .max_slots = 1},
                           &mover, std::move(policy));
  if (!cache.ok()) return cache.status();
  Simulation simulation(trace, *std::move(cache));
  const auto begin = std::chrono::steady_clock::now();
  double now_s = 0;
  size_t arrived = 0;
  for (size_t i = 0; i < trace.requests.size(); ++i) {
    const bool queues = options.served_tokens_per_s > 0;
    if (simulation.idle()) {
      now_s = std::max(now_s, trace.requests[arrived].arrival_s);
      simulation.Enqueue(arrived++);
    }
    for (; queues && arrived < trace.requests.size() && trace.requests[arrived].arrival_s <= now_s;
         ++arrived) {
      simulation.Enqueue(arrived);
    }
    if (queues && options.await) simulation.Await();
    if (oracle != nullptr) oracle->NextRequest(next_uses[i]);
    const absl::StatusOr<int64_t> computed = simulation.ServeNext();
    if (!computed.ok()) return computed.status();
    if (queues) now_s += static_cast<double>(*computed) / options.served_tokens_per_s;
  }
  SimulationResult result = simulation.result();
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

}  // namespace refrain::cachesim
