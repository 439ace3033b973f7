#ifndef REFRAIN_KVCACHE_REUSE_RATE_POLICY_H_
#define REFRAIN_KVCACHE_REUSE_RATE_POLICY_H_

#include <array>
#include <cstdint>
#include <deque>
#include <set>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "kvcache/eviction_policy.h"
#include "kvcache/reuse_statistics.h"

namespace refrain::kvcache {

// Evicts the chunk whose keeping promises the fewest hits per request of waiting (the rate of
// ReuseStatistics), weighted by what computing it again would cost.
//
// The chunks of one request share a fate, so what is observed are lineages: the path that a request
// leaves behind. A later request that matches it beyond what many share continues it. It takes the
// matched chunks over into its own lineage, which is one turn older and knows how long the turns
// took; what is left of the old one was abandoned: the conversation went another way. (A part-full
// last chunk, an edited message and a sub-agent's side path are all of that kind.)
//
//   request 1   A - B - C - d          lineage 1: A B C d, turn 0
//   request 2   A - B - C - D - e      continues it at C: lineage 2: A B C D e, turn 1;
//                         \ d          lineage 1: d, abandoned
//
// A chunk's rate follows from its lineage's class and its age. The class is how its answer ended,
// turns so far behind answers that ended so and their usual interval; or that it was abandoned, and
// into how many ways the path had parted. Age counts from when its sequence left, or it was
// abandoned. The very last chunk of a lineage is hit less often than the others, a prompt's and an
// answer's each to its own measure.
// A node with many children is a beginning that strangers share: matching it continues nobody, nor
// does matching the beginning of one of its children, as behind the header of a chat template that
// ends inside a chunk. What was matched in part stays with its lineage: the request has a copy.
// An evicted chunk leaves a ghost, so that a lineage counts as continued when nothing is left of
// it, too: else what is evicted early would look like what nobody comes back for.
//
// Requests that are admitted together join one after the other, and go on later: until then their
// lineages wait in a list. One that gave up its chunks and runs again has no lineage there; it goes
// on in a new one, which continues nobody: nobody has come back.
//
// Costs: O(1) per call, O(log n) when the chunk is idle; for the first chunk of a request a look at
// that list, of 256 at most. The first Victim after a request looks at
// each group of idle chunks with equal rate once: at most classes x tails x cost levels x buckets
// of them (315 x 3 x 4 x 32), in practice tens. Ghosts: 16 per chunk of the pool, but no more than
// the pool or 2^20, whichever is more.
class ReuseRatePolicy : public EvictionPolicy {
 public:
  explicit ReuseRatePolicy(int32_t capacity_chunks);

  void RequestJoined() override;
  void Hit(NodeId node) override;
  void HitInPart(NodeId node) override;
  void Inserted(NodeId node, const ChunkTraits& traits) override;
  void Changed(NodeId node, const ChunkTraits& traits) override;
  void Idle(NodeId node) override;
  void Busy(NodeId node) override;
  void Evicted(NodeId node) override;
  void Dropped(NodeId node) override;
  std::optional<NodeId> Victim() override;
  void Leaving(NodeId node, AnswerEnd answer) override;

 private:
  using LineageId = int32_t;
  static constexpr LineageId kNone = -1;

  struct Turns {
    int32_t count = 0;
    int64_t interval = 0;  // running mean, 0: no turn yet
  };
  struct Lineage {
    int64_t since = 0;  // the request after which it was left, or abandoned; else that made it
    int32_t class_of = 0;
    AnswerEnd answer = AnswerEnd::kOther;
    std::array<Turns, kAnswerEnds> turns{};  // behind answers that ended so; kOther: behind all
    std::optional<ReuseStatistics::Watch> watch;  // none until its sequence has left
    int32_t refs = 0;                             // chunks and ghosts; free at 0
    NodeId end{-1};                               // its deepest chunk so far
    bool end_was_matched = false;                 // perhaps in part only
    NodeId idle{-1};                              // the chunk of it that became idle last
    bool abandoned = false;
    bool goes_on_later = false;  // of a request that joined: it is in joined_
    bool may_continue = false;   // of such a request, and has not continued another one yet
  };
  struct Chunk {
    uint64_t lineage_hash = 0;
    NodeId parent{-1};  // perhaps a root
    LineageId lineage = kNone;
    int32_t group = 0;       // while idle
    int64_t idle_since = 0;  // while idle: its lineage's `since`
    int32_t children = 0;    // different ones that it ever had
    uint8_t cost = 0;        // level
    ReuseClass reuse = ReuseClass::kPrompt;
    bool is_tail = false;
    bool is_idle = false;
  };
  // Roots are not told of. One goes after its last child, and another may get its id, so that it is
  // counted from the beginning when it has had none.
  struct RootChildren {
    int32_t ever = 0;  // as Chunk::children
    int32_t now = 0;
  };
  struct Ghost {
    LineageId lineage;
    int32_t children;
    bool is_tail;
    uint64_t number;
  };
  // Idle chunks of one group and age bucket have one rate.
  struct IdleKey {
    int32_t group;
    int64_t since;
    NodeId node;
    friend auto operator<=>(const IdleKey&, const IdleKey&) = default;
  };
  struct Candidate {
    double rate;
    IdleKey key;
    bool operator<(const Candidate& other) const {  // the least rate is on top, then the oldest
      return std::tie(other.rate, other.key.since, other.key) < std::tie(rate, key.since, key);
    }
  };

  Chunk& Get(NodeId node) { return chunks_[ToIndex(node)]; }
  bool Knows(NodeId node) const;
  LineageId NewLineage();
  void Assign(NodeId node, LineageId lineage);
  void Release(LineageId lineage);
  void FinishJoin();
  void TakeFromJoined(LineageId lineage);
  int32_t SiblingsOf(const Chunk& chunk) const;
  // Lineage `own` goes on where `lineage` ended, or parts from it.
  void Continue(LineageId own, LineageId lineage, bool tail_hit, ReuseClass reuse, int32_t ways);
  void WatchAs(LineageId lineage, int32_t class_of);
  void StopWatching(Lineage* lineage);
  static int32_t ClassOf(const Lineage& lineage);
  static void CountTurn(int64_t interval, Turns* turns);
  bool GoesOnAt(const Lineage& lineage, NodeId parent) const;
  LineageId LineageOfChild(NodeId parent);
  void CountChild(NodeId parent, int32_t by);
  bool TakeGhost(NodeId node);  // false: it never was there, as far as is remembered
  void LeaveGhost(const Chunk& chunk);
  void AddIdle(NodeId node);
  void RemoveIdle(NodeId node);
  void Forget(NodeId node);
  double Rate(const IdleKey& key) const;
  void PushCandidate(const IdleKey& key);
  void PushNextLike(const IdleKey& key);
  void CollectCandidates();

  const size_t max_ghosts_;
  ReuseStatistics statistics_;
  std::vector<Lineage> lineages_;
  std::vector<LineageId> free_lineages_;
  LineageId current_ = kNone;     // of the request that joined last
  std::deque<LineageId> joined_;  // of requests that have made no chunk yet: of several in one plan
  std::vector<NodeId> joining_;   // its hits, until it is clear that there are no more
  NodeId joining_in_part_{-1};    // behind them
  std::unordered_map<NodeId, RootChildren> root_children_;  // of roots that have some now
  std::vector<Chunk> chunks_;                               // [nodes]
  std::unordered_map<uint64_t, Ghost> ghosts_;              // by lineage hash
  std::deque<std::pair<uint64_t, uint64_t>> ghost_order_;   // number, lineage hash
  uint64_t ghosts_made_ = 0;
  std::set<IdleKey> idle_;
  // A heap: of each group and bucket the oldest, as of the current request.
  std::vector<Candidate> candidates_;
  bool candidates_current_ = false;
};

}  // namespace refrain::kvcache

#endif  // REFRAIN_KVCACHE_REUSE_RATE_POLICY_H_
