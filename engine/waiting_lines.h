#ifndef REFRAIN_ENGINE_WAITING_LINES_H_
#define REFRAIN_ENGINE_WAITING_LINES_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/fair_shares.h"
#include "kvcache/types.h"
#include "kvcache/waiting_line.h"

namespace refrain::engine {

using kvcache::SequenceId;

// The waiting sequences in the order in which plans will take them, for what the KV cache keeps for
// them: each tenant's in a line, by rank (AdmissionOrder::RankOf), then id. Who takes a turn before
// its place in the line since it shares with running ones is not foreseen: what it shares is in
// use.
//
// Plans serve the tenant that has been served least. So the turn of a sequence comes when its
// tenant will have been served for those ahead in the line, too, in FairShares' measure. Each of
// these counts with the mean of the line's tokens. What they will take nobody knows: answers count
// for nothing, and what is cached as if it were not. (If it did not count, the tenant of which more
// is cached would have its turns sooner, would so have still more of it kept, and of two tenants
// that ask for the same one would have all of the cache.) That is as far off as the sequence stands
// back; for the first of each line it is right, but for prompts of its tenant that are being
// computed, which go first.
//
// Costs: O(log n) for a turn. To enter or leave a line as well, and a move of 16 bytes for each
// place between there and the nearer end: a few microseconds in the middle of 10,000; once for all
// that stand together and leave together. Nothing is done as others are served. Engine thread only;
// cannot fail.
class WaitingLines {
 public:
  // `shares`: whose tenants they are; outlives it.
  explicit WaitingLines(const FairShares* shares) : shares_(shares) {}

  // The sequence's place from now on. It stays good until Remove; the line as long as this.
  // `tokens`: its prefill, cached or not, as it is now.
  kvcache::WaitingPlace Place(SequenceId id, int32_t tenant, int64_t rank, int32_t tokens);
  // It waits no longer. May be of one that does not.
  void Remove(SequenceId id) { Remove(std::span(&id, 1)); }
  // The same of several of one tenant.
  void Remove(std::span<const SequenceId> ids);

 private:
  class Line final : public kvcache::WaitingLine {
   public:
    using Place = std::pair<int64_t, SequenceId>;  // by rank

    Line(const FairShares* shares, int32_t tenant) : shares_(shares), tenant_(tenant) {}
    int64_t TurnOf(int64_t rank, SequenceId sequence) const override;
    void Add(int64_t rank, SequenceId sequence, int32_t tokens);
    // Of those at `places`, ascending; `tokens`: of them all.
    void Remove(std::span<const Place> places, int64_t tokens);

   private:
    const FairShares* const shares_;
    const int32_t tenant_;
    std::deque<Place> places_;  // ascending
    int64_t tokens_ = 0;        // of all
  };
  struct Standing {
    int32_t tenant;
    int64_t rank;
    int32_t tokens;
  };

  const FairShares* const shares_;
  std::vector<std::unique_ptr<Line>> lines_;  // by tenant
  absl::flat_hash_map<SequenceId, Standing> standing_;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_WAITING_LINES_H_
