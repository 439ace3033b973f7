#ifndef REFRAIN_KVCACHE_IDLE_SWEEP_H_
#define REFRAIN_KVCACHE_IDLE_SWEEP_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "kvcache/cache_manager.h"

namespace refrain::kvcache {

// A step is so many ids that are looked at, or nodes that are listed, or nodes that are evicted or
// stay: half a millisecond or so of each. One that comes to a node with 10^6 children copies their
// ids, which takes a millisecond more.
struct SweepPace {
  int32_t ids = 16'384, listed = 4'096, evicted = 512;
};

// Evicts what nobody uses, in steps between which others may use the cache: a million chunks at
// once take seconds.
//
//   IdleSweep sweep;  // of all, or that of some nodes and what stands behind them
//   while (sweep.EvictSome(&cache)) {}
//   int32_t evicted = sweep.evicted_chunks();
//
// Roots are looked for among all ids. Then those nodes are listed that others stand behind, each
// before those behind it. From the end of that list each one's children are evicted, so that they
// go before their parents; of siblings the last one goes first, which moves none (in the policy's
// order one of many would go from the middle, and move half of the others).
//
// What was unused at the first step and has not been used since is gone after the last. What is
// used when its turn comes stays, and so does all before it; what others leave meanwhile goes or
// stays. That goes for nodes, too, that were given the id of one that is gone: they may be
// anybody's, and so a sweep of some nodes, which must take no others, leaves all that has come, or
// has been cut, since it was made.
//
// Knows no thread: called where the cache may be changed. Cannot fail. May end after any step.
class IdleSweep {
 public:
  explicit IdleSweep(const SweepPace& pace = {}) : pace_(pace) {}
  // Of these nodes of `tree`, none of which stands behind another, and all behind them; some may be
  // roots, which go with the last one behind them.
  IdleSweep(const PrefixTree& tree, std::vector<NodeId> nodes, const SweepPace& pace = {})
      : pace_(pace),
        phase_(Phase::kList),
        newest_stamp_(tree.last_stamp()),
        first_(nodes),
        now_(std::move(nodes)) {}

  // False when all is done.
  bool EvictSome(CacheManager* cache);
  int32_t evicted_chunks() const { return evicted_chunks_; }

 private:
  enum class Phase : uint8_t { kFindRoots, kList, kEvict };

  // False of what may be anybody's, as it was given the id of a node that is gone.
  bool IsOwn(const PrefixTree& tree, NodeId id) const {
    return !newest_stamp_.has_value() || tree.node(id).made_stamp <= *newest_stamp_;
  }
  void FindRoots(const PrefixTree& tree);
  void List(const PrefixTree& tree);
  bool Evict(CacheManager* cache);

  SweepPace pace_;
  Phase phase_ = Phase::kFindRoots;
  std::optional<uint64_t> newest_stamp_;  // of the nodes that it may take; absent: it may take all
  int32_t next_id_ = 0;                   // kFindRoots: to be looked at
  std::vector<NodeId> first_;             // with these it begins, and with their eviction it ends
  std::deque<NodeId> parents_;            // those behind which there are others; none is moved
  size_t next_parent_ = 0;                // kList: whose children come next
  std::vector<NodeId> now_;  // to be listed or evicted before anything else, the last one first
  int32_t evicted_chunks_ = 0;
};

}  // namespace refrain::kvcache

#endif  // REFRAIN_KVCACHE_IDLE_SWEEP_H_
