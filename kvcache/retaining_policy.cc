#include "kvcache/retaining_policy.h"

#include <cassert>
#include <utility>

namespace refrain::kvcache {

RetainingPolicy::RetainingPolicy(std::unique_ptr<EvictionPolicy> policy,
                                 int32_t max_retained_chunks)
    : policy_(std::move(policy)), max_retained_chunks_(max_retained_chunks) {}

RetainingPolicy::Chunk* RetainingPolicy::ParentOrNull(const Chunk& chunk) {
  if (static_cast<int32_t>(chunk.parent) < 0 || ToIndex(chunk.parent) >= chunks_.size()) {
    return nullptr;
  }
  Chunk& parent = Get(chunk.parent);
  return parent.known ? &parent : nullptr;
}

void RetainingPolicy::Inserted(NodeId node, const ChunkTraits& traits) {
  if (ToIndex(node) >= chunks_.size()) chunks_.resize(ToIndex(node) + 1);
  Get(node) = {.parent = traits.parent, .known = true};
  policy_->Inserted(node, traits);
}

RetainingPolicy::Tenant* RetainingPolicy::TenantOf(std::string_view name) {
  auto found = tenants_.find(name);
  if (found == tenants_.end()) {
    found = tenants_.try_emplace(std::string(name)).first;
    found->second.name = name;
  }
  return &found->second;
}

void RetainingPolicy::Count(Tenant* tenant, int32_t chunks) {
  retained_chunks_ += chunks;
  tenant->chunks += chunks;
  RankAgain(tenant);
  if (tenant->chunks == 0) tenants_.erase(tenants_.find(tenant->name));
}

void RetainingPolicy::RankAgain(Tenant* tenant) {
  by_rank_.erase(std::exchange(tenant->rank, {}));
  if (tenant->ends.empty()) return;
  tenant->rank = {-tenant->chunks, tenant->ends.begin()->first};
  by_rank_.emplace(tenant->rank, tenant);
}

void RetainingPolicy::MakeEnd(NodeId node, uint64_t number) {
  Chunk& chunk = Get(node);
  chunk.end_number = number;
  chunk.tenant->ends.emplace(number, node);
  RankAgain(chunk.tenant);
  if (chunk.idle) idle_.emplace(number, node);
}

void RetainingPolicy::TakeFromEnds(Chunk* chunk) {
  chunk->tenant->ends.erase(chunk->end_number);
  RankAgain(chunk->tenant);
  idle_.erase(chunk->end_number);
  chunk->end_number = 0;
}

void RetainingPolicy::Retain(NodeId node, std::string_view tenant) {
  Chunk& chunk = Get(node);
  if (chunk.retained()) {
    if (chunk.end_number == 0) return;
    TakeFromEnds(&chunk);
    return MakeEnd(node, ++last_number_);
  }
  Chunk* const parent = ParentOrNull(chunk);
  if (parent != nullptr && !parent->retained()) return;
  chunk.tenant = TenantOf(tenant);
  Count(chunk.tenant, 1);
  if (chunk.idle) policy_->Busy(node);
  MakeEnd(node, ++last_number_);
  if (parent != nullptr && parent->retained_children++ == 0) TakeFromEnds(parent);
  while (retained_chunks_ > max_retained_chunks_) {
    GiveUp(by_rank_.begin()->second->ends.begin()->second);
  }
}

// Also of an end behind which an answer lies: it is not idle, and so never becomes busy.
void RetainingPolicy::UseAgain(NodeId node) {
  Chunk& chunk = Get(node);
  if (chunk.end_number == 0) return;
  TakeFromEnds(&chunk);
  MakeEnd(node, ++last_number_);
}

void RetainingPolicy::Hit(NodeId node) {
  UseAgain(node);
  policy_->Hit(node);
}

void RetainingPolicy::HitInPart(NodeId node) {
  UseAgain(node);
  policy_->HitInPart(node);
}

void RetainingPolicy::GiveUp(NodeId node) {
  Chunk& chunk = Get(node);
  assert(chunk.retained() && chunk.end_number != 0);
  const uint64_t number = chunk.end_number;
  TakeFromEnds(&chunk);
  Count(std::exchange(chunk.tenant, nullptr), -1);
  // The rest of the lineage is next.
  Chunk* const parent = ParentOrNull(chunk);
  if (parent != nullptr && --parent->retained_children == 0) MakeEnd(chunk.parent, number);
  if (chunk.idle) policy_->Idle(node);
}

void RetainingPolicy::Idle(NodeId node) {
  Chunk& chunk = Get(node);
  chunk.idle = true;
  if (!chunk.retained()) return policy_->Idle(node);
  assert(chunk.end_number != 0);
  idle_.emplace(chunk.end_number, node);
}

void RetainingPolicy::Busy(NodeId node) {
  Chunk& chunk = Get(node);
  chunk.idle = false;
  if (!chunk.retained()) return policy_->Busy(node);
  TakeFromEnds(&chunk);
  MakeEnd(node, ++last_number_);
}

void RetainingPolicy::Evicted(NodeId node) {
  HandOver(node);
  policy_->Evicted(node);
}

void RetainingPolicy::Dropped(NodeId node) {
  HandOver(node);
  policy_->Dropped(node);
}

void RetainingPolicy::Replaced(NodeId node, NodeId by) {
  const Tenant* const tenant = Get(node).tenant;
  if (tenant == nullptr) return Dropped(node);
  const std::string name = tenant->name;  // the tenant may go with its last chunk
  Dropped(node);
  Retain(by, name);
}

void RetainingPolicy::HandOver(NodeId node) {
  Chunk& chunk = Get(node);
  if (chunk.retained()) GiveUp(node);
  chunk = {};
}

std::optional<NodeId> RetainingPolicy::Victim() {
  std::optional<NodeId> victim = policy_->Victim();
  if (victim.has_value() || idle_.empty()) return victim;
  GiveUp(idle_.begin()->second);
  return policy_->Victim();
}

}  // namespace refrain::kvcache
