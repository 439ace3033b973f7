#ifndef REFRAIN_KVCACHE_CHUNK_CACHE_H_
#define REFRAIN_KVCACHE_CHUNK_CACHE_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "kvcache/chunk_pool.h"
#include "kvcache/eviction_policy.h"
#include "kvcache/prefix_tree.h"
#include "kvcache/types.h"

namespace refrain::kvcache {

// What running sequences have, counted by someone else: for ChunkCache::CheckInvariants.
struct Holdings {
  std::unordered_map<NodeId, int32_t> holders;  // sequences of each node and root
  std::unordered_map<NodeId, int32_t> writers;
  std::vector<ChunkId> reserved;  // chunks outside the tree
};

// The prefix tree with its chunks: which node is in use, which is kept for later, and what goes
// when the pool is full. Keeps tree, pool and eviction policy in step.
//
//   free -- Allocate --> reserved -- AddNode --> used <-- Hold, Unhold, Pin, Unpin --> cached
//     ^                     |                     |                                      |
//     +------ Release ------+----- Replace -------+------------- Evict, Drop ------------+
//
// A node is used while a running sequence holds it or a pin keeps it, and cached else; who holds a
// node holds all before it. A cached node without children is idle: the policy may name it. A
// cached node whose tokens are all the first tokens of a sibling is good for nothing and dropped at
// once. With `keeps_unused` off there are no cached nodes. A root goes when nothing is below it and
// nobody holds it.
//
// Called by the cache manager alone, on its thread. Cannot fail; misuse asserts.
class ChunkCache {
 public:
  ChunkCache(int32_t num_chunks, int32_t chunk_tokens, uint64_t hash_mask, bool keeps_unused,
             std::unique_ptr<EvictionPolicy> policy);

  // --- queries ---
  const PrefixTree& tree() const { return tree_; }
  const ChunkPool& pool() const { return pool_; }
  const NodeUse& use(NodeId node) const { return tree_.node(node).use; }
  int32_t cached_chunks() const { return cached_chunks_; }
  int32_t available_chunks() const { return pool_.free_chunks() + cached_chunks_; }
  int64_t requests() const { return requests_; }  // that joined
  // Changes when a node that was there gets its first holder or pin, or loses its last. Never 0.
  uint64_t use_stamp() const { return use_stamp_; }
  int64_t evicted_chunks_total() const { return evicted_chunks_total_; }
  absl::Status CheckInvariants(const Holdings& holdings) const;

  // --- chunks outside the tree ---
  // Evicts until `num_chunks` are free; no more than are available.
  void MakeFree(int32_t num_chunks);
  ChunkId Allocate();  // one of the free ones
  void Release(ChunkId chunk) { pool_.Release(chunk); }

  // --- roots ---
  // The namespace's root, or one that nobody else finds if nothing is kept.
  NodeId HoldRoot(const Namespace& name_space);
  void HoldRootAgain(NodeId root) { ++tree_.use(root).refs; }
  void UnholdRoot(NodeId root);

  // --- nodes ---
  // A child that one sequence holds.
  NodeId AddNode(NodeId parent, ChunkId chunk, const TokenSpan& tokens, ReuseClass reuse);
  void Extend(NodeId node, const TokenSpan& tokens);
  void Truncate(NodeId node, int32_t tokens);
  // A request joins that matches these, from the root down.
  void BeginRequest() { policy_->RequestJoined(), ++requests_; }
  // `in_part`: fewer than its tokens were matched.
  void Hit(NodeId node, bool in_part);
  void Hold(NodeId node) { HoldBy(node, 1); }
  void Unhold(NodeId node);
  // All that hold `from`, a node without children, hold `to` instead; `from` is gone.
  void Replace(NodeId from, NodeId to);
  // With all before it.
  void Pin(NodeId node);
  void Unpin(NodeId node);
  void Retain(NodeId node, std::string_view tenant) { policy_->Retain(node, tenant); }
  void Leaving(NodeId node, AnswerEnd end) { policy_->Leaving(node, end); }
  // The same of one that left before.
  void HasLeft(NodeId node, AnswerEnd end);
  void Await(SequenceId sequence, const WaitingPlace& place, NodeId node) {
    policy_->Await(sequence, place, node);
  }
  void StopAwaiting(SequenceId sequence) { policy_->StopAwaiting(sequence); }
  // False if it is not idle, or there is no such node.
  bool EvictIfIdle(NodeId node);
  // What nobody uses of the node, all behind it, and what comes before it for its sake only.
  // Returns the number of chunks.
  int32_t EvictFrom(NodeId node);
  // The node and what comes before it, up to the first that is not idle.
  int32_t EvictUpwards(NodeId node);
  // Somebody may come back for tokens of the node up to the path's first `path_tokens`, and so for
  // all before it, which is to be kept, too. False where that many were kept before.
  bool Keep(NodeId node, int32_t path_tokens);
  // As EvictUpwards, of what is neither among the path's first `kept_tokens` tokens nor kept by
  // others; kForgetAll: of all. Counts as no eviction: it is what nobody will ask for.
  void Forget(NodeId node, int32_t kept_tokens);

 private:
  ChunkTraits TraitsOf(NodeId node) const;
  void HoldBy(NodeId node, int32_t holders);
  void BecomeUsed(NodeId node);
  void BecomeUnused(NodeId node);
  // Idle siblings that `node`, having grown, makes good for nothing.
  void DropCovered(NodeId node);
  // `heir`: has all of its tokens; or kNoNode.
  void Drop(NodeId node, NodeId heir);
  void Evict(NodeId node);
  void Remove(NodeId node);

  const bool keeps_unused_;
  const std::unique_ptr<EvictionPolicy> policy_;
  ChunkPool pool_;
  PrefixTree tree_;
  int32_t cached_chunks_ = 0;
  int64_t evicted_chunks_total_ = 0;
  int64_t requests_ = 0;
  uint64_t use_stamp_ = 1;
};

}  // namespace refrain::kvcache

#endif  // REFRAIN_KVCACHE_CHUNK_CACHE_H_
