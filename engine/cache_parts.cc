#include "engine/cache_parts.h"

#include <algorithm>

namespace refrain::engine {

CacheParts::CacheParts(const SchedulerSnapshot& snapshot, int32_t free_chunks,
                       const std::vector<Held>& held, const std::vector<int32_t>& holders)
    : s_(snapshot), tenants_(snapshot.tenants.size()), pool_chunks_(free_chunks) {
  for (size_t run = 0; run < holders.size(); ++run) {
    if (holders[run] > 0) pool_chunks_ += s_.shared_runs[run].chunks;
  }
  for (const Held& one : held) {
    Holding& holding = tenants_[s_.running[one.index].tenant];
    holding.sequences.push_back(one);
    holding.chunks += one.own_chunks + one.next_chunks;
    ForEachSharedRun(s_, one.index, [&](int32_t run) {
      if (holding.sharers[run]++ == 0) holding.chunks += s_.shared_runs[run].chunks;
    });
    pool_chunks_ += one.own_chunks;
  }
  for (const TenantEntry& tenant : s_.tenants) {
    if (tenant.has_requests) total_weight_ += tenant.weight_milli;
  }
  if (s_.limits.policy != Policy::kPriority) return;
  const auto priority = [this](const Held& one) { return s_.running[one.index].priority; };
  for (Holding& holding : tenants_) {
    std::stable_sort(holding.sequences.begin(), holding.sequences.end(),
                     [&](const Held& a, const Held& b) { return priority(a) < priority(b); });
  }
}

std::optional<size_t> CacheParts::TenantOverPart() const {
  const auto weight = [this](size_t tenant) { return int64_t{s_.tenants[tenant].weight_milli}; };
  std::optional<size_t> most;
  for (size_t i = 0; i < tenants_.size(); ++i) {
    if (tenants_[i].sequences.size() < 2) continue;
    if (!most.has_value() ||
        tenants_[i].chunks * weight(*most) > tenants_[*most].chunks * weight(i)) {
      most = i;
    }
  }
  const bool over =
      most.has_value() && tenants_[*most].chunks * total_weight_ > pool_chunks_ * weight(*most);
  return over ? most : std::nullopt;
}

size_t CacheParts::TakeFirst(size_t tenant) {
  Holding& holding = tenants_[tenant];
  const Held taken = holding.sequences.back();
  holding.sequences.pop_back();
  holding.chunks -= taken.own_chunks + taken.next_chunks;
  ForEachSharedRun(s_, taken.index, [&](int32_t run) {
    if (--holding.sharers[run] == 0) holding.chunks -= s_.shared_runs[run].chunks;
  });
  return taken.index;
}

void CacheParts::PutLast(size_t index) {
  std::vector<Held>& sequences = tenants_[s_.running[index].tenant].sequences;
  std::stable_partition(sequences.begin(), sequences.end(),
                        [index](const Held& one) { return one.index == index; });
}

}  // namespace refrain::engine
