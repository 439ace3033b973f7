#include "kvcache/s3fifo_policy.h"

#include <algorithm>
#include <cassert>

namespace refrain::kvcache {
namespace {

constexpr uint8_t kMaxHits = 3;
constexpr uint8_t kHitsToStay = 2;

}  // namespace

S3FifoPolicy::S3FifoPolicy(int32_t capacity_chunks)
    : small_chunks_(static_cast<size_t>(std::max(capacity_chunks / 10, 1))),
      max_ghosts_(static_cast<size_t>(std::max(capacity_chunks, 1))) {}

void S3FifoPolicy::Hit(NodeId node) {
  Chunk& chunk = Get(node);
  chunk.hits = std::min<uint8_t>(chunk.hits + 1, kMaxHits);
}

void S3FifoPolicy::Inserted(NodeId node, const ChunkTraits& traits) {
  if (ToIndex(node) >= chunks_.size()) chunks_.resize(ToIndex(node) + 1);
  const bool known = traits.lineage_hash != 0 && ghosts_.erase(traits.lineage_hash) > 0;
  Get(node) = {.place = ++places_,
               .lineage_hash = traits.lineage_hash,
               .queue = known ? Queue::kMain : Queue::kSmall};
  if (!known) ++num_small_;
}

void S3FifoPolicy::Changed(NodeId node, const ChunkTraits& traits) {
  Get(node).lineage_hash = traits.lineage_hash;
}

void S3FifoPolicy::Idle(NodeId node) {
  const bool inserted = IdleOf(Get(node).queue).emplace(Get(node).place, node).second;
  assert(inserted);
  (void)inserted;
}

void S3FifoPolicy::Busy(NodeId node) {
  const size_t erased = IdleOf(Get(node).queue).erase({Get(node).place, node});
  assert(erased == 1);
  (void)erased;
}

void S3FifoPolicy::Evicted(NodeId node) {
  if (Get(node).queue == Queue::kSmall) RememberGhost(Get(node).lineage_hash);
  Remove(node);
}

void S3FifoPolicy::Dropped(NodeId node) { Remove(node); }

void S3FifoPolicy::Remove(NodeId node) {
  Busy(node);
  if (Get(node).queue == Queue::kSmall) --num_small_;
}

void S3FifoPolicy::RememberGhost(uint64_t lineage_hash) {
  if (lineage_hash == 0) return;
  const uint64_t now = ++places_;
  ghosts_[lineage_hash] = now;
  ghost_order_.emplace_back(now, lineage_hash);
  while (ghost_order_.size() > max_ghosts_) {
    const auto [when, hash] = ghost_order_.front();
    ghost_order_.pop_front();
    if (const auto found = ghosts_.find(hash); found != ghosts_.end() && found->second == when) {
      ghosts_.erase(found);
    }
  }
}

std::optional<NodeId> S3FifoPolicy::Victim() {
  while (!idle_small_.empty() && (num_small_ >= small_chunks_ || idle_main_.empty())) {
    const NodeId node = idle_small_.begin()->second;
    Chunk& chunk = Get(node);
    if (chunk.hits < kHitsToStay) return node;
    idle_small_.erase(idle_small_.begin());
    --num_small_;
    chunk.queue = Queue::kMain;
    chunk.hits = 0;
    chunk.place = ++places_;
    idle_main_.emplace(chunk.place, node);
  }
  while (!idle_main_.empty()) {
    const NodeId node = idle_main_.begin()->second;
    Chunk& chunk = Get(node);
    if (chunk.hits == 0) return node;
    idle_main_.erase(idle_main_.begin());
    --chunk.hits;
    chunk.place = ++places_;
    idle_main_.emplace(chunk.place, node);
  }
  return std::nullopt;
}

}  // namespace refrain::kvcache
