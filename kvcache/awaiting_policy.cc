#include "kvcache/awaiting_policy.h"

#include <cassert>
#include <iterator>

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

AwaitingPolicy::Place AwaitingPolicy::FirstOf(const std::set<Place>& places) {
  auto next = places.begin();
  Place first = *next;
  if (first.line == places.rbegin()->line) return first;
  auto turn = first.Turn();
  while ((next = places.upper_bound(Place::EndOf(next->line))) != places.end()) {
    const auto other = next->Turn();
    if (turn < other) continue;
    first = *next;
    turn = other;
  }
  return first;
}

void AwaitingPolicy::AddToSpared(Group* group) {
  group->first = FirstOf(group->places);
  spared_.emplace(group->first, group->node);
}

void AwaitingPolicy::Spare(NodeId node) {
  policy_->Busy(node);
  Get(node).spared = true;
  AddToSpared(Get(node).group.get());
}

void AwaitingPolicy::Show(NodeId node) {
  TakeFromSpared(*Get(node).group);
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
  TakeFromSpared(*chunk.group);
  chunk.spared = false;
}

void AwaitingPolicy::Await(SequenceId sequence, const WaitingPlace& place, NodeId node) {
  assert(IsKnown(node));
  const Place stands{place.line, place.rank, sequence};
  const auto found = waiting_.find(sequence);
  if (found != waiting_.end() && found->second.group->node == node &&
      found->second.place == stands) {
    return;
  }
  StopAwaiting(sequence);
  if (gives_up_ == stands) gives_up_.reset();
  auto group = std::make_unique<Group>();
  group->places.insert(stands);
  waiting_[sequence] = {group.get(), stands};
  AddGroup(std::move(group), node);
}

void AwaitingPolicy::StopAwaiting(SequenceId sequence) {
  const auto found = waiting_.find(sequence);
  if (found == waiting_.end()) return;
  const auto [group, place] = found->second;
  waiting_.erase(found);
  const NodeId node = group->node;
  Chunk& chunk = Get(node);
  if (group->places.size() == 1) {
    if (chunk.spared) Show(node);
    chunk.group = nullptr;
    return;
  }
  group->places.erase(place);
  if (!chunk.spared || group->first != place) return;
  TakeFromSpared(*group);
  AddToSpared(group);
}

void AwaitingPolicy::AddGroup(std::unique_ptr<Group> group, NodeId node) {
  Chunk& chunk = Get(node);
  if (chunk.spared) TakeFromSpared(*chunk.group);
  if (chunk.group == nullptr || chunk.group->places.size() < group->places.size()) {
    std::swap(chunk.group, group);
    chunk.group->node = node;
  }
  if (group != nullptr) {
    for (const Place& place : group->places) waiting_.at(place.sequence).group = chunk.group.get();
    chunk.group->places.merge(group->places);
  }
  if (chunk.spared) {
    AddToSpared(chunk.group.get());
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
  for (const Place& place : group->places) waiting_.erase(place.sequence);
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

NodeId AwaitingPolicy::LastSpared() {
  const auto end_of = [this](const WaitingLine* line) {
    return spared_.lower_bound({Place::EndOf(line), NodeId{INT32_MAX}});
  };
  // Who has begun to give up a lineage gives up the rest of it.
  if (gives_up_.has_value()) {
    const auto end = end_of(gives_up_->line);
    if (end != spared_.begin() && std::prev(end)->first == gives_up_) return std::prev(end)->second;
  }
  auto last = std::prev(spared_.end());
  if (spared_.begin()->first.line != last->first.line) {
    auto turn = last->first.Turn();
    for (auto next = spared_.begin(); next != spared_.end();) {
      next = end_of(next->first.line);
      const auto other = std::prev(next)->first.Turn();
      if (other < turn) continue;
      last = std::prev(next);
      turn = other;
    }
  }
  gives_up_ = last->first;
  return last->second;
}

std::optional<NodeId> AwaitingPolicy::Victim() {
  std::optional<NodeId> victim = policy_->Victim();
  if (victim.has_value() || spared_.empty()) return victim;
  Show(LastSpared());
  return policy_->Victim();
}

}  // namespace refrain::kvcache
