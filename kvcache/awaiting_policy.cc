#include "kvcache/awaiting_policy.h"

#include <cassert>

namespace refrain::kvcache {

bool AwaitingPolicy::IsKnown(NodeId node) const {
  return static_cast<int32_t>(node) >= 0 && ToIndex(node) < chunks_.size() &&
         chunks_[ToIndex(node)].known;
}

void AwaitingPolicy::Inserted(NodeId node, const ChunkTraits& traits) {
  if (ToIndex(node) >= chunks_.size()) chunks_.resize(ToIndex(node) + 1);
  Get(node) = {.parent = traits.parent, .known = true};
  policy_->Inserted(node, traits);
}

void AwaitingPolicy::Spare(NodeId node) {
  Get(node).spared = true;
  spared_.emplace(*Get(node).awaited_by.begin(), node);
}

void AwaitingPolicy::Show(NodeId node) {
  Chunk& chunk = Get(node);
  spared_.erase({*chunk.awaited_by.begin(), node});
  chunk.spared = false;
  policy_->Idle(node);
}

void AwaitingPolicy::Idle(NodeId node) {
  Chunk& chunk = Get(node);
  chunk.idle = true;
  if (chunk.awaited_by.empty()) return policy_->Idle(node);
  Spare(node);
}

void AwaitingPolicy::Busy(NodeId node) {
  Chunk& chunk = Get(node);
  chunk.idle = false;
  if (!chunk.spared) return policy_->Busy(node);
  spared_.erase({*chunk.awaited_by.begin(), node});
  chunk.spared = false;
}

void AwaitingPolicy::Await(SequenceId sequence, NodeId node) {
  const auto found = awaits_.find(sequence);
  if (found != awaits_.end() && found->second == node) return;
  StopAwaiting(sequence);
  AddSequence(sequence, node);
}

void AwaitingPolicy::StopAwaiting(SequenceId sequence) {
  const auto found = awaits_.find(sequence);
  if (found == awaits_.end()) return;
  RemoveSequence(sequence, found->second);
  awaits_.erase(found);
}

void AwaitingPolicy::AddSequence(SequenceId sequence, NodeId node) {
  Chunk& chunk = Get(node);
  assert(chunk.known);
  awaits_[sequence] = node;
  if (chunk.spared) {
    spared_.erase({*chunk.awaited_by.begin(), node});
  } else if (chunk.idle) {
    policy_->Busy(node);
  }
  chunk.awaited_by.insert(sequence);
  if (chunk.idle) Spare(node);
}

void AwaitingPolicy::RemoveSequence(SequenceId sequence, NodeId node) {
  Chunk& chunk = Get(node);
  if (!chunk.spared) {
    chunk.awaited_by.erase(sequence);
    return;
  }
  spared_.erase({*chunk.awaited_by.begin(), node});
  chunk.awaited_by.erase(sequence);
  if (!chunk.awaited_by.empty()) return Spare(node);
  chunk.spared = false;
  policy_->Idle(node);
}

void AwaitingPolicy::MoveTo(NodeId node, NodeId other) {
  if (Get(node).spared) Show(node);
  const std::set<SequenceId> sequences = std::move(Get(node).awaited_by);
  Get(node) = {};
  for (const SequenceId sequence : sequences) {
    if (IsKnown(other)) {
      AddSequence(sequence, other);
    } else {
      awaits_.erase(sequence);
    }
  }
}

void AwaitingPolicy::Evicted(NodeId node) {
  MoveTo(node, Get(node).parent);
  policy_->Evicted(node);
}

void AwaitingPolicy::Dropped(NodeId node) {
  MoveTo(node, Get(node).parent);
  policy_->Dropped(node);
}

void AwaitingPolicy::Replaced(NodeId node, NodeId by) {
  MoveTo(node, by);
  policy_->Replaced(node, by);
}

std::optional<NodeId> AwaitingPolicy::Victim() {
  std::optional<NodeId> victim = policy_->Victim();
  if (victim.has_value() || spared_.empty()) return victim;
  Show(spared_.rbegin()->second);
  return policy_->Victim();
}

}  // namespace refrain::kvcache
