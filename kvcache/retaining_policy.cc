#include "kvcache/retaining_policy.h"

#include <utility>

namespace refrain::kvcache {

RetainingPolicy::RetainingPolicy(std::unique_ptr<EvictionPolicy> policy,
                                 int32_t max_retained_chunks)
    : policy_(std::move(policy)), max_retained_chunks_(static_cast<size_t>(max_retained_chunks)) {}

RetainingPolicy::Chunk& RetainingPolicy::Get(NodeId node) {
  if (ToIndex(node) >= chunks_.size()) chunks_.resize(ToIndex(node) + 1);
  return chunks_[ToIndex(node)];
}

void RetainingPolicy::Inserted(NodeId node, const ChunkTraits& traits) {
  Get(node) = {};
  policy_->Inserted(node, traits);
}

void RetainingPolicy::Retain(NodeId node) { Get(node).retained = true; }

void RetainingPolicy::Idle(NodeId node) {
  Chunk& chunk = Get(node);
  if (!chunk.retained) return policy_->Idle(node);
  chunk.idle_number = ++last_number_;
  idle_.emplace(chunk.idle_number, node);
  if (idle_.size() > max_retained_chunks_) ReleaseOldest();
}

void RetainingPolicy::Busy(NodeId node) {
  Chunk& chunk = Get(node);
  if (chunk.idle_number == 0) return policy_->Busy(node);
  Take(&chunk);
}

void RetainingPolicy::Evicted(NodeId node) {
  HandOver(node);
  policy_->Evicted(node);
}

void RetainingPolicy::Dropped(NodeId node) {
  HandOver(node);
  policy_->Dropped(node);
}

void RetainingPolicy::HandOver(NodeId node) {
  Chunk& chunk = Get(node);
  if (chunk.idle_number != 0) {
    Take(&chunk);
    policy_->Idle(node);
  }
  chunk = {};
}

std::optional<NodeId> RetainingPolicy::Victim() {
  std::optional<NodeId> victim = policy_->Victim();
  if (victim.has_value() || idle_.empty()) return victim;
  ReleaseOldest();
  return policy_->Victim();
}

void RetainingPolicy::Take(Chunk* chunk) {
  idle_.erase(chunk->idle_number);
  chunk->idle_number = 0;
}

void RetainingPolicy::ReleaseOldest() {
  const NodeId oldest = idle_.begin()->second;
  Chunk& chunk = Get(oldest);
  Take(&chunk);
  chunk.retained = false;
  policy_->Idle(oldest);
}

}  // namespace refrain::kvcache
