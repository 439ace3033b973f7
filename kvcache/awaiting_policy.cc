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
  while (next->line != places.rbegin()->line) {
    next = places.upper_bound(Place::EndOf(next->line));
    if (next->RunsBefore(first)) first = *next;
  }
  return first;
}

void AwaitingPolicy::AddToSpared(Group* group) {
  group->first = FirstOf(group->places);
  spared_.emplace(group->first, group->node);
  last_.reset();
}

void AwaitingPolicy::TakeFromSpared(const Group& group) {
  spared_.erase({group.first, group.node});
  last_.reset();
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
  if (gives_up_ == stands) gives_up_.reset();
  const auto found = waiting_.find(sequence);
  if (found != waiting_.end() && found->second.group->node == node &&
      found->second.place == stands) {
    return;
  }
  StopAwaiting(sequence);
  if (!Fits(node) && !spared_.empty() && LastAsRemembered().first.RunsBefore(stands)) return;
  auto group = std::make_unique<Group>();
  group->places.insert(stands);
  waiting_[sequence] = {group.get(), stands};
  AddGroup(std::move(group), node);
  while (awaited_chunks_ > max_awaited_chunks_ && !spared_.empty()) {
    const NodeId last = LastAsRemembered().second;
    if (last == node) break;  // those that came before it leave too little room for all of it
    Show(last);
    for (const Place& other : Get(last).group->places) waiting_.erase(other.sequence);
    DropGroup(last);
  }
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
    DropGroup(node);
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
  if (chunk.group == nullptr) {
    for (NodeId id = node; IsKnown(id) && Get(id).awaited++ == 0; id = Get(id).parent) {
      ++awaited_chunks_;
    }
  }
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

void AwaitingPolicy::DropGroup(NodeId node) {
  Get(node).group = nullptr;
  for (NodeId id = node; IsKnown(id) && --Get(id).awaited == 0; id = Get(id).parent) {
    --awaited_chunks_;
  }
}

void AwaitingPolicy::MoveTo(NodeId node, NodeId other) {
  if (Get(node).spared) Show(node);
  if (std::unique_ptr<Group> group = std::move(Get(node).group); group != nullptr) {
    if (IsKnown(other)) {
      AddGroup(std::move(group), other);
    } else {
      for (const Place& place : group->places) waiting_.erase(place.sequence);
    }
    DropGroup(node);  // now, so that those before it are not counted anew
  }
  Get(node) = {};
  assert(!waiting_.empty() || awaited_chunks_ == 0);
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

bool AwaitingPolicy::Fits(NodeId node) {
  int32_t room = max_awaited_chunks_ - awaited_chunks_;
  for (NodeId id = node; IsKnown(id) && Get(id).awaited == 0; id = Get(id).parent) {
    if (--room < 0) return false;
  }
  return true;
}

AwaitingPolicy::Spared::iterator AwaitingPolicy::LastOf(const WaitingLine* line) {
  return std::prev(spared_.lower_bound({Place::EndOf(line), NodeId{INT32_MAX}}));
}

AwaitingPolicy::Spared::iterator AwaitingPolicy::Last() {
  auto last = std::prev(spared_.end());
  const WaitingLine* const last_line = last->first.line;
  if (spared_.begin()->first.line == last_line) return last;
  auto turn = last->first.Turn();
  for (auto next = spared_.begin(); next->first.line != last_line;) {
    const auto other = LastOf(next->first.line);
    next = std::next(other);
    const auto other_turn = other->first.Turn();
    if (other_turn < turn) continue;
    last = other;
    turn = other_turn;
  }
  return last;
}

const AwaitingPolicy::Spared::value_type& AwaitingPolicy::LastAsRemembered() {
  if (!last_.has_value()) last_ = Last();
  return **last_;
}

std::optional<NodeId> AwaitingPolicy::Victim() {
  std::optional<NodeId> victim = policy_->Victim();
  if (victim.has_value() || spared_.empty()) return victim;
  // Who has begun to give up a lineage gives up the rest of it.
  const bool goes_on = gives_up_.has_value() && spared_.begin()->first <= *gives_up_ &&
                       LastOf(gives_up_->line)->first == *gives_up_;
  const auto last = goes_on ? LastOf(gives_up_->line) : Last();
  gives_up_ = last->first;
  Show(last->second);
  return policy_->Victim();
}

}  // namespace refrain::kvcache
