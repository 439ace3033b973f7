#ifndef REFRAIN_KVCACHE_ATTENTION_PLAN_H_
#define REFRAIN_KVCACHE_ATTENTION_PLAN_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "kvcache/types.h"

namespace refrain::kvcache {

// Who attends to which chunks (DESIGN 4.5): runs of chunks, in order of computation, each with the
// slots that read all of it. These are a list, and stand depth-first: a run's slots are a stretch
// of those of its parent, the run before it in their sequences, in the same order. No lengths, so
// it stays as it is while sequences grow inside their last chunks. Key indexes count a sequence's
// own tokens from its start; the runs of one slot cover [0, its length) without gap or overlap,
// ascending with the run's index.

struct PlanChunk {
  ChunkId chunk;
  int32_t token_begin;  // tokens of the run before this chunk; a chunk's tokens end where the next
                        // one's begin (the last one's: open)
  friend bool operator==(const PlanChunk&, const PlanChunk&) = default;
};

struct PlanSlot {
  SlotId slot;
  int32_t key_begin;               // key index of the run's first token in the slot's sequence
  std::optional<int32_t> key_end;  // the slot reads the run up to here; absent: to its length
  friend bool operator==(const PlanSlot&, const PlanSlot&) = default;
};

struct PlanRun {
  int32_t chunk_begin, chunk_end;  // into AttentionPlan::chunks
  int32_t slot_begin, slot_end;    // into AttentionPlan::slots
  friend bool operator==(const PlanRun&, const PlanRun&) = default;
};

struct AttentionPlan {
  uint64_t generation = 0;  // two plans of one manager with the same generation are equal
  std::vector<PlanRun> runs;
  std::vector<PlanChunk> chunks;
  std::vector<PlanSlot> slots;
};

}  // namespace refrain::kvcache

#endif  // REFRAIN_KVCACHE_ATTENTION_PLAN_H_
