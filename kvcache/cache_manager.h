#ifndef REFRAIN_KVCACHE_CACHE_MANAGER_H_
#define REFRAIN_KVCACHE_CACHE_MANAGER_H_

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvcache/attention_plan.h"
#include "kvcache/attention_plan_builder.h"
#include "kvcache/cache_view.h"
#include "kvcache/chunk_cache.h"
#include "kvcache/chunk_mover.h"
#include "kvcache/eviction_policy.h"
#include "kvcache/match_result.h"
#include "kvcache/options.h"
#include "kvcache/prefix_tree.h"
#include "kvcache/shared_runs.h"
#include "kvcache/stats.h"
#include "kvcache/types.h"

namespace refrain::kvcache {

// Decides which chunks hold the K and V of which tokens.
//
// A running sequence's life: Join (a slot, and what Match found), then again and again Reserve
// (chunks for further tokens), Append (places of the tokens of a step about to be launched),
// Publish (the step was collected: the tokens' K and V are computed and their ids known), at last
// Leave. Appended tokens that were never published are dropped by Leave: a stop seen one step late
// costs nothing. Only published tokens are offered to other sequences.
//
//   Append    |--------------- appended ----------------|
//   Publish   |------- published -------|-- in flight --|-- reserved --|
//
// Published chunks are nodes of a prefix tree. A sequence that joins holds the chunks of its match;
// when it leaves they stay as cache, evictable from the leaf up by the eviction policy. Reserve
// evicts when the pool is empty. A sequence never writes into a chunk of which another may read a
// written part further than both agree: whoever wants to go on behind a part match gets, with its
// first Reserve, a copy of the chunk - or the chunk itself when the match covers all its tokens
// and nobody else writes or forked it. A chunk that becomes full and equals its sibling is dropped
// in favour of that one. With `prefix_cache` off nothing is matched or stays; Fork still shares.
//
// Knows ids only; bytes are moved by the ChunkMover. Called by the engine thread alone; no clock,
// no I/O. Failure: RESOURCE_EXHAUSTED when the pool or the slots are full, nothing is changed then;
// a sequence id that is not running, or more tokens than were reserved, is misuse and asserts.
class CacheManager {
 public:
  // `mover` outlives the manager.
  static absl::StatusOr<std::unique_ptr<CacheManager>> Create(const CacheOptions& options,
                                                              ChunkMover* mover);
  // As above with a policy that has no name; `options.eviction` does not count.
  static absl::StatusOr<std::unique_ptr<CacheManager>> Create(
      const CacheOptions& options, ChunkMover* mover, std::unique_ptr<EvictionPolicy> policy);

  // --- queries ---
  // Longest cached prefix, token by token; pure.
  MatchResult Match(const Namespace& name_space, const TokenSpan& tokens) const {
    return MatchAgain({}, name_space, tokens);
  }
  // The same for tokens that begin with those that `before` was matched for: looks only behind the
  // last whole chunk of what that found, if it is still there.
  MatchResult MatchAgain(const MatchResult& before, const Namespace& name_space,
                         const TokenSpan& tokens) const;
  // Whether there is more behind what a current match found.
  bool GoesOn(const MatchResult& match) const {
    return match.node != kNoNode && tree().GoesOn({match.node, match.num_tokens});
  }
  // Whether it can be joined with and Match would find no more (it may say no when that is so).
  bool IsCurrent(const MatchResult& match) const;
  // Counts idle and unused chunks of a current match again: they change when others join and leave.
  void CountIdleAgain(MatchResult* match) const;
  CacheStats stats() const;  // O(1)
  const CacheOptions& options() const { return options_; }
  bool Contains(SequenceId sequence) const { return sequences_.contains(sequence); }
  SlotId slot(SequenceId sequence) const { return Get(sequence).slot; }
  int32_t appended_tokens(SequenceId sequence) const { return Get(sequence).appended_tokens; }
  int32_t published_tokens(SequenceId sequence) const { return Get(sequence).published_tokens; }
  // Tokens that fit into the chunks that the sequence has and may write. Less than appended_tokens
  // + 1 right after a part match: the copy is made by Reserve.
  int32_t reserved_tokens(SequenceId sequence) const;
  // Chunks that leaving would make evictable or free. O(log of what it holds).
  int32_t ExclusiveChunks(SequenceId sequence) const;
  // And those that some of them would make so together. O(log of what each holds) for each run.
  SharedRuns FindSharedRuns(std::span<const SequenceId> sequences) const;
  // Position of each token in the pool.  // [num_chunks, chunk_tokens]
  std::span<const int32_t> positions() const { return {positions_.get(), num_positions()}; }
  const PrefixTree& tree() const { return cache_.tree(); }
  CacheView Describe(const CacheViewLimits& limits) const;
  int64_t requests() const { return cache_.requests(); }  // that joined
  absl::Status CheckInvariants() const;

  // --- commands ---
  // `sequence` starts to run; its first `match.num_tokens` tokens are there (published). `match`
  // is current. Tokens from `prompt_tokens` on count as generated (ReuseClass).
  absl::StatusOr<SlotId> Join(SequenceId sequence, const Namespace& name_space,
                              const MatchResult& match, int32_t prompt_tokens);
  // As Join, of a request that joined before, with this sequence or another: it counts as no
  // further one that found anything, and the eviction policy hears of none.
  absl::StatusOr<SlotId> Rejoin(SequenceId sequence, const Namespace& name_space,
                                const MatchResult& match, int32_t prompt_tokens);
  // As Join, with the first `num_tokens` published tokens of `source`, which keeps running. Takes
  // no chunk: a part-full last one is copied by the first Reserve.
  absl::StatusOr<SlotId> Fork(SequenceId sequence, SequenceId source, int32_t num_tokens);
  // As Fork by the last act of `source`, which leaves: there is a slot for it.
  void HandOver(SequenceId sequence, SequenceId source, int32_t num_tokens);
  // Room for `num_tokens` tokens behind the appended ones; evicts and copies as needed.
  absl::Status Reserve(SequenceId sequence, int32_t num_tokens);
  // Places for one token per position, added to `places`.
  void Append(SequenceId sequence, std::span<const int32_t> positions,
              std::vector<TokenPlace>* places);
  // The next appended tokens are computed and are these.
  void Publish(SequenceId sequence, std::span<const TokenId> ids);
  // What it held stays as cache: it may be continued.
  void Leave(SequenceId sequence) { LeaveKeeping(sequence, published_tokens(sequence)); }
  // The same where it is not known yet whether anybody will ask for it: Keep or Forget follows.
  void LeaveForNow(SequenceId sequence) { LeaveKeeping(sequence, 0); }
  // Also how it ended, where Answered could not tell. `before`: as in MatchAgain, here and below.
  void Keep(const MatchResult& before, const Namespace& name_space, const TokenSpan& tokens,
            AnswerEnd answer);
  // What nobody uses, continues or left to be continued of these tokens, whose sequence has left,
  // does not stay as cache but for the first `kept_tokens` (kForgetAll).
  void Forget(const MatchResult& before, const Namespace& name_space, const TokenSpan& tokens,
              int32_t kept_tokens);
  // Leaves and forgets: nobody will ask for what is behind.
  void LeaveForGood(SequenceId sequence, int32_t kept_tokens);
  // The cached part of these tokens is not evicted until Unpin. Pins of one range count.
  // Returns how many tokens are pinned: whole chunks only.
  int32_t Pin(const Namespace& name_space, const TokenSpan& tokens);
  void Unpin(const Namespace& name_space, const TokenSpan& tokens, int32_t pinned_tokens);
  // Evicts what nobody uses of these tokens and, if all of them are cached, of what continues them;
  // what goes on otherwise as well stays. Returns the number of chunks.
  int32_t Drop(const Namespace& name_space, const TokenSpan& tokens);
  // If all of these tokens are cached, the nodes in which they end, or their root.
  std::vector<NodeId> EndsOf(const Namespace& name_space, const TokenSpan& tokens) const;
  // Hints of a running sequence (EvictionPolicy): its chunks will be wanted again; how it ended.
  void Retain(SequenceId sequence, std::string_view tenant);
  void Answered(SequenceId sequence, AnswerEnd answer) { Get(sequence).answer = answer; }
  // `sequence` waits to run and will join with `match`, which is current (EvictionPolicy::Await).
  void Await(SequenceId sequence, const WaitingPlace& place, const MatchResult& match);
  void StopAwaiting(SequenceId sequence) { cache_.StopAwaiting(sequence); }
  bool EvictIfIdle(NodeId node) { return cache_.EvictIfIdle(node); }  // whether it was (IdleSweep)

  // The plan for all running sequences; the same object until the structure changes.
  std::shared_ptr<const AttentionPlan> Plan();

 private:
  struct Sequence {
    SlotId slot{};
    NodeId root = kNoNode;
    std::vector<PathEntry> path;
    std::vector<ChunkId> reserved;  // chunks not yet in the tree
    int32_t appended_tokens = 0, published_tokens = 0, prompt_tokens = 0;
    // What the last node of the path is to it: one of its whole chunks, the chunk that it writes,
    // or another's chunk of which it holds the tokens up to `published_tokens`.
    enum class Tail : uint8_t { kWhole, kWritten, kPart } tail = Tail::kWhole;
    AnswerEnd answer = AnswerEnd::kOther;
  };
  struct FreeMemory {
    void operator()(void* memory) const { std::free(memory); }
  };

  CacheManager(const CacheOptions& options, ChunkMover* mover,
               std::unique_ptr<EvictionPolicy> policy);

  void LeaveKeeping(SequenceId sequence, int32_t kept_tokens);
  const Sequence& Get(SequenceId sequence) const;
  Sequence& Get(SequenceId sequence);
  size_t num_positions() const {
    return static_cast<size_t>(options_.num_chunks) * static_cast<size_t>(options_.chunk_tokens);
  }
  std::span<int32_t> PositionsOf(ChunkId chunk);  // [chunk_tokens]
  absl::StatusOr<Sequence*> AddSequence(SequenceId sequence);
  // All of Join but that it holds the path and is counted.
  absl::StatusOr<Sequence*> AddMatched(SequenceId sequence, const Namespace& name_space,
                                       const MatchResult& match, int32_t prompt_tokens);
  void StructureChanged();
  // What MatchAgain finds; of a namespace that has no root, no node.
  PrefixTree::PrefixMatch FindAgain(const MatchResult& before, const Namespace& name_space,
                                    const TokenSpan& tokens) const;

  // Chunks that a sequence may write: key index of the first one's first token, and how many.
  int32_t WriteBegin(const Sequence& sequence) const;
  size_t WritableChunks(const Sequence& sequence) const;
  ChunkId WritableChunk(const Sequence& sequence, size_t index) const;
  size_t UsedReserved(const Sequence& sequence) const;  // of `reserved` those with tokens

  // Steps of Reserve. Whether a part-held chunk may be written, or once its other tokens are gone.
  bool MayTakeOver(const Sequence& sequence) const;
  bool MayCut(const Sequence& sequence) const;
  absl::Status CopyTail(Sequence* sequence);

  // The steps of Publish: tokens that fit into the first reserved chunk, or into the written one.
  void OpenNode(Sequence* sequence, ChunkId chunk, std::span<const TokenId> ids);
  void ExtendTail(Sequence* sequence, std::span<const TokenId> ids);
  // Everyone who holds `from`, a node without children, holds its equal `to` from now on.
  void Merge(NodeId from, NodeId to);

  absl::Status CheckSequence(SequenceId id, Holdings* holdings) const;

  const CacheOptions options_;
  ChunkMover* const mover_;
  ChunkCache cache_;
  const std::unique_ptr<int32_t[], FreeMemory> positions_;  // zero pages until written
  std::unordered_map<SequenceId, Sequence> sequences_;
  // Running sequences; as of the last plan in depth-first order (DESIGN 4.4).
  std::vector<SequenceId> order_;
  std::vector<bool> slot_taken_;   // [max_slots]
  std::vector<TokenId> full_ids_;  // scratch of ExtendTail
  CacheStats totals_;              // only its logical_tokens and totals, but evicted chunks
  uint64_t generation_ = 1;
  std::shared_ptr<const AttentionPlan> plan_;  // null: to be made anew
};

}  // namespace refrain::kvcache

#endif  // REFRAIN_KVCACHE_CACHE_MANAGER_H_
