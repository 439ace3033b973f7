#ifndef REFRAIN_ENGINE_CACHE_PARTS_H_
#define REFRAIN_ENGINE_CACHE_PARTS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/hash_map.h"
#include "engine/scheduler.h"

namespace refrain::engine {

// Calls `visit` with each of the shared runs that sequence `i` of snapshot.running holds.
template <typename Visit>
void ForEachSharedRun(const SchedulerSnapshot& snapshot, size_t i, Visit visit) {
  for (int32_t run = snapshot.running[i].shared_run; run >= 0;
       run = snapshot.shared_runs[run].parent) {
    visit(run);
  }
}

// What the tenants have of the KV cache with the sequences that they run, who has more than its
// part, and which sequence of a tenant gives way first: the youngest, under kPriority of those of
// the lowest priority. A tenant's part is that of its weight, among those that have requests, of
// what is free or held. What its sequences share counts once.
//
// A part of Plan, and pure as that is: it decides whose turn it is to give way, not whether anybody
// has to. Lives within one plan, on its thread. Cannot fail.
class CacheParts {
 public:
  // A sequence that runs on.
  struct Held {
    size_t index = 0;         // into SchedulerSnapshot::running
    int32_t own_chunks = 0;   // it would give them back alone
    int32_t next_chunks = 0;  // it will take them next
  };

  // `held`: oldest first. `holders`: of each shared run, those of them that run on. The snapshot
  // outlives this.
  CacheParts(const SchedulerSnapshot& snapshot, int32_t free_chunks, const std::vector<Held>& held,
             const std::vector<int32_t>& holders);

  // Of the tenants that run two sequences or more the one that has most of the cache for its
  // weight, if that is more than its part.
  std::optional<size_t> TenantOverPart() const;
  // Of the tenant's, which has one, the sequence that gives way first. Into snapshot.running.
  size_t First(size_t tenant) const { return tenants_[tenant].sequences.back().index; }
  // And takes it away.
  size_t TakeFirst(size_t tenant);
  // Of its tenant's this one is to give way last.
  void PutLast(size_t index);

 private:
  struct Holding {
    std::vector<Held> sequences;        // who gives way first stands last
    int64_t chunks = 0;                 // that they have and will take next
    HashMap<int32_t, int32_t> sharers;  // of each shared run, among `sequences`
  };

  const SchedulerSnapshot& s_;
  std::vector<Holding> tenants_;
  int64_t pool_chunks_;       // free or held
  int64_t total_weight_ = 0;  // of those that have requests, in thousandths
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_CACHE_PARTS_H_
