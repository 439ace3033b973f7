#ifndef REFRAIN_KVCACHE_REUSE_STATISTICS_H_
#define REFRAIN_KVCACHE_REUSE_STATISTICS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "kvcache/types.h"

namespace refrain::kvcache {

// When lineages of a class are continued, learned from the stream of requests.
//
// Age is counted in requests, in buckets: one request wide below 8, then two to the octave. For
// each class and bucket it counts how many lineages reached that age without being continued, and
// how many were continued at it; the quotient is the hazard. Few observations are drawn towards
// those of all classes with the same `answer` and `turns`, these towards those with the same
// `answer`, these towards those of all classes, these towards a hazard that is the same in every
// bucket, which is what LRU assumes: the older, the less likely.
// Observations fade with the requests that come after them.
//
// Rate(class, age) is the most hits per request of waiting that keeping a lineage of that age can
// bring: the greatest over all horizons of P(continued until then) / E(waited until then or until
// it is continued). Keeping what has the greatest rate is the best that can be done when nothing
// but class and age is known (the index of Gittins, 1979). Unlike recency it need not fall with
// age: who has not come back after a second may still be reading.
//
// Not thread-safe, cannot fail; asked by ReuseRatePolicy alone.
class ReuseStatistics {
 public:
  static constexpr int kBuckets = 32;
  static constexpr int kTurns = 6;       // 0, 1, 2, 3, 4 and 5, more
  static constexpr int kIntervals = 13;  // none, then by octaves
  static constexpr int kAbandoned = 3;   // classes of lineages that were left for another way
  static constexpr int kContinuedClasses = kAnswerEnds * kTurns * kIntervals;
  static constexpr int kClasses = kContinuedClasses + kAbandoned;

  // Lineages of one class that are waited for since one request. What is kept of it grows with the
  // requests, not with the lineages: a beam search begins thousands in one.
  using Watch = uint64_t;

  // `turns`: how often it was continued behind such an answer; `interval`: at what ages, 0 when
  // never.
  static int ContinuedClass(AnswerEnd answer, int32_t turns, int64_t interval);
  // `ways`: into how many children it had parted before.
  static int AbandonedClass(int32_t ways);
  static int Bucket(int64_t age);
  // The least age of the bucket.
  static int64_t BucketBegin(int bucket);

  ReuseStatistics();

  int64_t now() const { return now_; }
  void RequestJoined();

  // One lineage more.
  Watch Begin(int class_of);
  // One of them was continued, or its class is no longer known to be this; once for each Begin.
  void Continued(Watch watch, int class_of, int64_t since);
  void Forget(Watch watch);
  // It should not have been watched for as one of this class: what it counted there is taken back.
  void Withdraw(Watch watch, int class_of, int64_t since);
  size_t num_watches() const { return watched_.size(); }

  double Rate(int class_of, int bucket) const {
    return rates_[static_cast<size_t>(class_of)][static_cast<size_t>(bucket)];
  }
  // Of the lineages that were continued, the share whose very last chunk was hit, too.
  double TailShare(bool generated) const;
  void TailSeen(bool generated, bool hit);

 private:
  using PerBucket = std::array<double, kBuckets>;
  struct Watched {
    int64_t since;
    int32_t class_of;
    int32_t open;  // lineages
  };

  void Age();
  void UpdateRates();
  void UpdateRates(int begin, int end, int part, const PerBucket& prior);
  // The hazards of classes [begin, end) taken together, drawn towards `prior`.
  PerBucket Hazards(int begin, int end, const PerBucket& prior) const;
  static PerBucket RatesOf(PerBucket hazards);
  bool IsUnseen(int class_of) const;

  int64_t now_ = 0;
  std::deque<Watched> watched_;                         // by time
  Watch first_watch_ = 0;                               // the number of watched_[0]
  std::array<Watch, kBuckets> next_to_reach_{};         // the bucket
  std::vector<PerBucket> reached_, continued_, rates_;  // [kClasses]
  std::array<double, 2> tails_{}, tail_hits_{};         // [generated]
};

}  // namespace refrain::kvcache

#endif  // REFRAIN_KVCACHE_REUSE_STATISTICS_H_
