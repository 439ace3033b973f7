#ifndef REFRAIN_KVCACHE_ATTENTION_PLAN_BUILDER_H_
#define REFRAIN_KVCACHE_ATTENTION_PLAN_BUILDER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kvcache/attention_plan.h"
#include "kvcache/prefix_tree.h"
#include "kvcache/types.h"

namespace refrain::kvcache {

// One node of a running sequence's path.
struct PathEntry {
  NodeId node;
  ChunkId chunk;      // the node's
  int32_t key_begin;  // key index of its first token
};

// What a plan needs to know of a running sequence.
struct PlanSequence {
  SlotId slot;
  size_t index;                         // the caller's own
  std::span<const PathEntry> path;      // the sequence reads no further than its length
  std::span<const ChunkId> own_chunks;  // behind the path, with tokens in flight
  int32_t own_begin;                    // key index of the first of them
};

// The attention plan of the given sequences, which are all that hold nodes of `tree`; orders them
// depth-first (DESIGN 4.4), as they stand in the plan; sequences in such order already cost least.
//
// How far a group of sequences stays together is found without comparing their paths: they share a
// node exactly when its `refs` is the size of the group, and refs fall along a path, so that a
// binary search over its depth suffices. Pure but for the order; cannot fail. Generation is 0.
AttentionPlan BuildAttentionPlan(const PrefixTree& tree, int32_t chunk_tokens,
                                 std::span<PlanSequence> sequences);

}  // namespace refrain::kvcache

#endif  // REFRAIN_KVCACHE_ATTENTION_PLAN_BUILDER_H_
