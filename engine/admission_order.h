#ifndef REFRAIN_ENGINE_ADMISSION_ORDER_H_
#define REFRAIN_ENGINE_ADMISSION_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "engine/scheduler.h"

namespace refrain::engine {

// The order in which the waiting sequences, all or some of them, may be admitted:
//   first those that have waited too long to be overtaken, the oldest first;
//   then under kFcfs those among the next kGroupingWindow that share with running ones, as long as
//   slots and chunks are left for all they pass, too: without, these would wait until an answer
//   ends, however long that takes; then the others by age; under the other policies by rank, then
//   age.
//
// A part of Plan, and pure as that is: it decides who comes next, not who fits. Lives within one
// plan, on its thread. Cannot fail.
class AdmissionOrder {
 public:
  // The lower the sooner of one tenant's, and of equals the older, as of now: as Next names them,
  // but for those that share with running ones.
  static int64_t RankOf(const WaitingEntry& one, const SchedulerSnapshot& snapshot);

  // `some`: of snapshot.waiting, in its order; null = all. Both outlive it.
  AdmissionOrder(const SchedulerSnapshot& snapshot, const std::vector<const WaitingEntry*>* some)
      : s_(snapshot), some_(some), fcfs_(snapshot.limits.policy == Policy::kFcfs) {}

  // Null when all have been named.
  const WaitingEntry* Next();

 private:
  static constexpr size_t kGroupingWindow = 256;  // sequences looked at for those that share

  // A sequence's rank, then its position, which ascends with age: the least comes first.
  using Key = std::pair<int64_t, size_t>;
  static constexpr size_t kFirstBest = 64;  // kept of the first look at all; each later one, twice

  size_t size() const { return some_ != nullptr ? some_->size() : s_.waiting.size(); }
  const WaitingEntry& entry(size_t position) const {
    return some_ != nullptr ? *(*some_)[position] : s_.waiting[position];
  }

  const WaitingEntry* NextByAge();
  const WaitingEntry* NextThatShares();
  const WaitingEntry* NextByRank();
  Key KeyOf(const WaitingEntry& one, size_t position) const;
  // The best of those not yet named. Few of the many that wait are admitted, so that keeping the
  // best of one look at all costs less than ordering all.
  void FindBest();

  const SchedulerSnapshot& s_;
  const std::vector<const WaitingEntry*>* const some_;
  const bool fcfs_;
  bool aged_over_ = false;
  size_t begin_ = 0;              // the first one that has not aged
  size_t window_ = 0;             // kFcfs: end of those looked at for sharing
  size_t sharing_ = 0;            // kFcfs: next to be looked at for sharing
  bool passes_ = true;            // kFcfs: who shares may still pass others
  int64_t slots_ = 0;             // kFcfs: that those looked at and those named before will take
  int64_t chunks_ = 0;            // kFcfs: the same
  size_t others_ = 0;             // kFcfs: next by age
  std::vector<Key> best_;         // other policies: those to be named next, the best last
  size_t num_best_ = kFirstBest;  // other policies: how many the next look keeps
  // Other policies: all below have been named.
  Key next_key_{std::numeric_limits<int64_t>::min(), 0};
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_ADMISSION_ORDER_H_
