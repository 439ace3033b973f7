#ifndef REFRAIN_ENGINE_ADMISSION_ORDER_H_
#define REFRAIN_ENGINE_ADMISSION_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "engine/hash_map.h"
#include "engine/scheduler.h"

namespace refrain::engine {

// Slots, chunks and rows for those that share with running sequences and all whom they pass. Who is
// passed has a slot and chunks also if it is admitted only when it can be passed no more: else it
// would wait until an answer ends, however long that takes.
//
// Rows are those that who passes decodes, one in every step, while those that it passes prefill.
// Where d of b rows are for decoding when all run, the W rows of those passed take
//   W / (b - d) - W / b = W * d / (b * (b - d))
// steps more than if nobody decoded: grouping_delay_steps / kDecodeDelayPart at most.
class PassingRoom {
 public:
  PassingRoom() = default;  // none: nobody is passed
  // What this plan leaves free, less what `running` sequences will take for their prefills and the
  // margin that they are to be left.
  PassingRoom(const SchedulerLimits& limits, int32_t running, int64_t free_chunks);
  // For one that is passed, or passes; false where there is none left.
  bool Take(const WaitingEntry& one);

 private:
  static constexpr int64_t kDecodeDelayPart = 4;  // a fourth

  bool DecodesInTime() const;

  int32_t chunk_tokens_ = 1;
  int64_t budget_tokens_ = 0;
  int64_t delay_steps_ = 0;
  int64_t decoding_ = 0;       // when all of them run
  int64_t passed_rows_ = 0;    // that those take who do not share
  int64_t growth_chunks_ = 0;  // that one sequence takes until nobody may be passed any more
  int64_t slots_ = 0;
  int64_t chunks_ = 0;
  int32_t taken_ = 0;
};

// The order in which the waiting sequences, all or some of them, may be admitted:
//   first those that have waited too long to be overtaken, the oldest first;
//   then under kFcfs those among the next kGroupingWindow that share with running ones, as long as
//   there is PassingRoom; then the others by age; under the other policies by rank, then age, and
//   of those that lack the same chunk only the first.
//
// A part of Plan, and pure as that is: it decides who comes next, not who fits. Lives within one
// plan, on its thread. Cannot fail.
class AdmissionOrder {
 public:
  // The lower the sooner of one tenant's, and of equals the older, as of now: as Next names them,
  // but for those that share with running ones.
  static int64_t RankOf(const WaitingEntry& one, const SchedulerSnapshot& snapshot);

  // `some`: of snapshot.waiting, in its order; null = all. `claimed`: keys of chunks for which none
  // is to be admitted any more; may grow, and those who lack them may be named or not; null = none.
  // All outlive it.
  AdmissionOrder(const SchedulerSnapshot& snapshot, const std::vector<const WaitingEntry*>* some,
                 const HashSet<uint64_t>* claimed = nullptr)
      : s_(snapshot),
        some_(some),
        claimed_(claimed),
        fcfs_(snapshot.limits.policy == Policy::kFcfs) {}

  // Before Next, and less what those named so far have; else nobody is passed.
  void set_passing_room(const PassingRoom& room) {
    room_ = room;
    passes_ = true;
  }
  // Before Next: what that would name, if it has waited too long to be overtaken and is older than
  // `other`; else null.
  const WaitingEntry* NextAgedBefore(SequenceId other);
  // Null when all have been named.
  const WaitingEntry* Next();

 private:
  static constexpr size_t kGroupingWindow = 256;  // sequences looked at for those that share

  // A sequence's rank, then its position, which ascends with age: the least comes first.
  using Key = std::pair<int64_t, size_t>;
  // Kept of the first look at all; of each later one, four times as many.
  static constexpr size_t kFirstBest = 16;

  size_t size() const { return some_ != nullptr ? some_->size() : s_.waiting.size(); }
  const WaitingEntry& entry(size_t position) const {
    return some_ != nullptr ? *(*some_)[position] : s_.waiting[position];
  }

  bool NextHasAged() const;
  const WaitingEntry* NextAged();
  const WaitingEntry* NextByAge();
  const WaitingEntry* NextThatShares();
  const WaitingEntry* NextByRank();
  Key KeyOf(const WaitingEntry& one, size_t position) const;
  // The best of those not yet named. Few of the many that wait are admitted, so that keeping the
  // best of one look at all costs less than ordering all.
  void FindBest();

  const SchedulerSnapshot& s_;
  const std::vector<const WaitingEntry*>* const some_;
  const HashSet<uint64_t>* const claimed_;
  const bool fcfs_;
  bool aged_over_ = false;
  size_t begin_ = 0;              // the first one that has not aged
  size_t window_ = 0;             // kFcfs: end of those looked at for sharing
  size_t sharing_ = 0;            // kFcfs: next to be looked at for sharing
  PassingRoom room_;              // kFcfs: less that of those looked at and those named before
  bool passes_ = true;            // kFcfs: there is some left
  size_t others_ = 0;             // kFcfs: next by age
  std::vector<Key> best_;         // other policies: those to be named next, the best last
  size_t num_best_ = kFirstBest;  // other policies: how many the next look keeps
  // Other policies: all below have been named.
  Key next_key_{std::numeric_limits<int64_t>::min(), 0};
  bool kept_all_ = false;  // other policies: the last look found no more than it kept
  HashMap<uint64_t, Key> first_lacking_;  // by next_chunk_key, of those kept once
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_ADMISSION_ORDER_H_
