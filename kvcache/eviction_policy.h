#ifndef REFRAIN_KVCACHE_EVICTION_POLICY_H_
#define REFRAIN_KVCACHE_EVICTION_POLICY_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "kvcache/types.h"
#include "kvcache/waiting_line.h"

namespace refrain::kvcache {

// Who computed a chunk's tokens: a prompt that was sent, or the model's own answer.
enum class ReuseClass : uint8_t { kPrompt, kGenerated };

// What a policy may know of a chunk.
struct ChunkTraits {
  int32_t depth_tokens = 0;  // tokens before it in its lineage
  int32_t tokens = 0;        // its own
  ReuseClass reuse = ReuseClass::kPrompt;
  NodeId parent{-1};  // the chunk before it, or a root: a node of which the policy was never told
  // Names namespace and all tokens up to the chunk's end, so that a policy can recognise a chunk
  // that was evicted and computed again. 0 for a part-full chunk.
  uint64_t lineage_hash = 0;
};

// Decides which cached chunk goes when the pool is full. Told of every change of the tree, asked
// for one victim at a time.
//
// Life of a chunk: Inserted (in use) -> Idle (no running sequence, no pin, no child: may be
// evicted) <-> Busy -> Removed. Parents become idle when their last child is gone, so leaves go
// before parents whatever the policy says.
//
// Pure: no clock, no I/O, no randomness; time is the number of requests that joined. The server and
// the trace simulator drive the same code. One thread (the cache manager's). Cannot fail.
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;

  // A request joins; the Hit calls of its matched chunks, from the root down, follow, and HitInPart
  // of a last one of which only the first tokens were matched: the request goes on beside it.
  virtual void RequestJoined() = 0;
  virtual void Hit(NodeId node) = 0;
  virtual void HitInPart(NodeId node) { Hit(node); }

  virtual void Inserted(NodeId node, const ChunkTraits& traits) = 0;
  // The chunk grew, or became full.
  virtual void Changed(NodeId node, const ChunkTraits& traits) = 0;
  virtual void Idle(NodeId node) = 0;
  virtual void Busy(NodeId node) = 0;
  // Evicted (the node that Victim named, or one that an operator wants gone), or dropped for
  // another reason; idle before.
  virtual void Evicted(NodeId node) = 0;
  virtual void Dropped(NodeId node) = 0;
  // Dropped, since all of its tokens are the first ones of `by`, in use or idle.
  virtual void Replaced(NodeId node, NodeId by) { Dropped(node); }

  // The idle chunk to evict next; nothing when none is idle. Changes nothing that shows.
  virtual std::optional<NodeId> Victim() = 0;

  // A hint: who uses the chunk, now in use, will come back for it. What MakeEvictionPolicy makes
  // keeps up to a quarter of the pool for such chunks, as long as there is anything else to evict
  // that nobody awaits; where that is too little, the tenant that has most of it gives up
  // (RetainingPolicy).
  virtual void Retain(NodeId node, std::string_view tenant) {}

  // A sequence is about to leave, perhaps to run again, whose last chunk this one is, in use. Or it
  // had left, and how it ended is known only now.
  virtual void Leaving(NodeId node, AnswerEnd answer) {}

  // A sequence that waits to run will use the chunk and all before it, in place of what it awaited
  // before, when its place's turn comes. What MakeEvictionPolicy makes evicts it last, up to three
  // quarters of the pool: beyond, those who come last are to await anew, now and then
  // (AwaitingPolicy).
  virtual void Await(SequenceId sequence, const WaitingPlace& place, NodeId node) {}
  virtual void StopAwaiting(SequenceId sequence) {}
};

// `name` is a value of kv_cache.eviction: "lru", "s3fifo" or "reuse_rate"; INVALID_ARGUMENT lists
// them. `capacity_chunks`: of the pool.
absl::StatusOr<std::unique_ptr<EvictionPolicy>> MakeEvictionPolicy(std::string_view name,
                                                                   int32_t capacity_chunks);

}  // namespace refrain::kvcache

#endif  // REFRAIN_KVCACHE_EVICTION_POLICY_H_
