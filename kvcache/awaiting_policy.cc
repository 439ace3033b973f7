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
  policy_->Busy(node);
  Get(node).spared = true;
  spared_.insert(KeyOf(node));
}

void AwaitingPolicy::Show(NodeId node) {
  spared_.erase(KeyOf(node));
  Get(node).spared = false;
  policy_->Idle(node);
}

// The other policy learns from what becomes idle: it is told of that in any case.
void AwaitingPolicy::Idle(NodeId node) {
  Get(node).idle = true;
  policy_->Idle(node);
  if (Get(node).group != nullptr) Spare(node);
}

void AwaitingPolicy::Busy(NodeId node) {
  Chunk& chunk = Get(node);
  chunk.idle = false;
  if (!chunk.spared) return policy_->Busy(node);
  spared_.erase(KeyOf(node));
  chunk.spared = false;
}

void AwaitingPolicy::Await(SequenceId sequence, int32_t rank, NodeId node) {
  assert(IsKnown(node));
  const auto found = waiting_.find(sequence);
  if (found != waiting_.end() && found->second.group->node == node && found->second.rank == rank) {
    return;
  }
  StopAwaiting(sequence);
  auto group = std::make_unique<Group>();
  group->places.emplace(rank, sequence);
  waiting_[sequence] = {group.get(), rank};
  AddGroup(std::move(group), node);
}

void AwaitingPolicy::StopAwaiting(SequenceId sequence) {
  const auto found = waiting_.find(sequence);
  if (found == waiting_.end()) return;
  const auto [group, rank] = found->second;
  waiting_.erase(found);
  const NodeId node = group->node;
  Chunk& chunk = Get(node);
  if (group->places.size() == 1) {
    if (chunk.spared) Show(node);
    chunk.group = nullptr;
    return;
  }
  if (chunk.spared) spared_.erase(KeyOf(node));
  group->places.erase({rank, sequence});
  if (chunk.spared) spared_.insert(KeyOf(node));
}

void AwaitingPolicy::AddGroup(std::unique_ptr<Group> group, NodeId node) {
  Chunk& chunk = Get(node);
  if (chunk.spared) spared_.erase(KeyOf(node));
  if (chunk.group == nullptr || chunk.group->places.size() < group->places.size()) {
    std::swap(chunk.group, group);
    chunk.group->node = node;
  }
  if (group != nullptr) {
    for (const Place& place : group->places) waiting_.at(place.second).group = chunk.group.get();
    chunk.group->places.merge(group->places);
  }
  if (chunk.spared) {
    spared_.insert(KeyOf(node));
  } else if (chunk.idle) {
    Spare(node);
  }
}

void AwaitingPolicy::MoveTo(NodeId node, NodeId other) {
  if (Get(node).spared) Show(node);
  std::unique_ptr<Group> group = std::move(Get(node).group);
  Get(node) = {};
  if (group == nullptr) return;
  if (IsKnown(other)) return AddGroup(std::move(group), other);
  for (const Place& place : group->places) waiting_.erase(place.second);
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
