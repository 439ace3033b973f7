#include "kvcache/reuse_statistics.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>

namespace refrain::kvcache {
namespace {

// Observations that count as much as what they are drawn towards.
constexpr double kPriorWeight = 10;
// Of a lineage that nothing is known about to be continued in any one bucket; a tenth of that when
// the conversation went another way.
constexpr double kPriorHazard = 0.02;
constexpr double kAbandonedShare = 0.1;
constexpr double kMaxHazard = 0.95;
// Rates change slowly.
constexpr int64_t kRequestsPerUpdate = 16;
// After so many requests an observation counts half: what is asked of a server changes.
constexpr double kHalfLife = 8192;
const double kKeptPerUpdate = std::exp2(-kRequestsPerUpdate / kHalfLife);

using Bounds = std::array<int64_t, ReuseStatistics::kBuckets + 1>;

Bounds MakeBounds() {
  Bounds begin{};
  for (int b = 0; b <= ReuseStatistics::kBuckets; ++b) {
    begin[static_cast<size_t>(b)] =
        b < 8 ? b : static_cast<int64_t>(8 * std::pow(2.0, (b - 8) / 2.0) + 1e-6);
  }
  return begin;
}

const Bounds& Begins() {
  static const Bounds begins = MakeBounds();
  return begins;
}

}  // namespace

int ReuseStatistics::ContinuedClass(AnswerEnd answer, int32_t turns, int64_t interval) {
  const int turn = turns >= 6 ? 5 : turns >= 4 ? 4 : turns;
  const int octave =
      interval == 0 ? 0 : std::min<int>(std::bit_width(static_cast<uint64_t>(interval)), 12);
  return (static_cast<int>(answer) * kTurns + turn) * kIntervals + octave;
}

int ReuseStatistics::AbandonedClass(int32_t ways) {
  return kContinuedClasses + (ways > 1 ? 1 : 0) + (ways > 3 ? 1 : 0);
}

int64_t ReuseStatistics::BucketBegin(int bucket) { return Begins()[static_cast<size_t>(bucket)]; }

int ReuseStatistics::Bucket(int64_t age) {
  if (age < 8) return static_cast<int>(age);
  const int octave = std::bit_width(static_cast<uint64_t>(age)) - 4;  // 0: from 8 on
  const int even = 8 + 2 * octave;
  if (even >= kBuckets) return kBuckets - 1;
  return age >= BucketBegin(even + 1) ? even + 1 : even;
}

ReuseStatistics::ReuseStatistics() : reached_(kClasses), continued_(kClasses), rates_(kClasses) {
  UpdateRates();
}

void ReuseStatistics::RequestJoined() {
  ++now_;
  for (size_t b = 1; b < kBuckets; ++b) {
    Watch& next = next_to_reach_[b];
    for (; next - first_watch_ < watched_.size(); ++next) {
      const Watched& reaches = watched_[next - first_watch_];
      if (now_ - reaches.since < Begins()[b]) break;
      reached_[static_cast<size_t>(reaches.class_of)][b] += reaches.open;
    }
  }
  while (first_watch_ < next_to_reach_[kBuckets - 1]) {
    watched_.pop_front();
    ++first_watch_;
  }
  if (now_ % kRequestsPerUpdate != 0) return;
  Age();
  UpdateRates();
}

void ReuseStatistics::Age() {
  for (std::vector<PerBucket>* table : {&reached_, &continued_}) {
    for (PerBucket& buckets : *table) {
      for (double& count : buckets) count *= kKeptPerUpdate;
    }
  }
  for (std::array<double, 2>* counts : {&tails_, &tail_hits_}) {
    for (double& count : *counts) count *= kKeptPerUpdate;
  }
}

ReuseStatistics::Watch ReuseStatistics::Begin(int class_of) {
  // One class each: few.
  for (size_t i = watched_.size(); i-- > 0 && watched_[i].since == now_;) {
    if (watched_[i].class_of != class_of) continue;
    ++watched_[i].open;
    return first_watch_ + i;
  }
  watched_.push_back({now_, class_of, 1});
  return first_watch_ + watched_.size() - 1;
}

void ReuseStatistics::Forget(Watch watch) {
  if (watch < first_watch_) return;
  Watched& watched = watched_[watch - first_watch_];
  assert(watched.open > 0);
  --watched.open;
}

void ReuseStatistics::Withdraw(Watch watch, int class_of, int64_t since) {
  assert(watch < first_watch_ || watched_[watch - first_watch_].class_of == class_of);
  Forget(watch);
  PerBucket& reached = reached_[static_cast<size_t>(class_of)];
  for (int b = Bucket(now_ - since); b > 0; --b) {
    double& count = reached[static_cast<size_t>(b)];
    count = std::max(count - 1, 0.0);  // it has faded a little
  }
}

void ReuseStatistics::Continued(Watch watch, int class_of, int64_t since) {
  assert(watch < first_watch_ || watched_[watch - first_watch_].class_of == class_of);
  Forget(watch);
  const int bucket = Bucket(now_ - since);
  if (bucket > 0) ++continued_[static_cast<size_t>(class_of)][static_cast<size_t>(bucket)];
}

double ReuseStatistics::TailShare(bool generated) const {
  return (tail_hits_[generated] + 2) / (tails_[generated] + 4);
}

void ReuseStatistics::TailSeen(bool generated, bool hit) {
  ++tails_[generated];
  tail_hits_[generated] += hit ? 1 : 0;
}

ReuseStatistics::PerBucket ReuseStatistics::Hazards(int begin, int end,
                                                    const PerBucket& prior) const {
  PerBucket reached{}, continued{}, hazards{};
  for (int c = begin; c < end; ++c) {
    for (size_t b = 0; b < kBuckets; ++b) {
      reached[b] += reached_[static_cast<size_t>(c)][b];
      continued[b] += continued_[static_cast<size_t>(c)][b];
    }
  }
  for (size_t b = 0; b < kBuckets; ++b) {
    hazards[b] = (continued[b] + kPriorWeight * prior[b]) / (reached[b] + kPriorWeight);
  }
  return hazards;
}

ReuseStatistics::PerBucket ReuseStatistics::RatesOf(PerBucket hazards) {
  PerBucket chance{};                        // to be continued in the bucket
  std::array<double, kBuckets + 1> waiting;  // share not continued before it
  waiting[0] = 1;
  for (size_t b = 0; b < kBuckets; ++b) {
    const double before = hazards[b == 0 ? 0 : b - 1];
    const double after = hazards[std::min<size_t>(b + 1, kBuckets - 1)];
    chance[b] = waiting[b] * std::min((before + 2 * hazards[b] + after) / 4, kMaxHazard);
    waiting[b + 1] = waiting[b] - chance[b];
  }
  PerBucket rates{};
  for (size_t b = 0; b + 1 < kBuckets; ++b) {
    double hits = 0, waited = 0;
    for (size_t k = b; k + 1 < kBuckets; ++k) {
      hits += chance[k];
      waited +=
          static_cast<double>(Begins()[k + 1] - Begins()[k]) * (waiting[k] + waiting[k + 1]) / 2;
      rates[b] = std::max(rates[b], hits / waited);
    }
  }
  rates[kBuckets - 1] = 0;
  return rates;
}

// Nothing of the class was seen, or it has faded to next to nothing.
bool ReuseStatistics::IsUnseen(int class_of) const {
  // Whatever is continued, or gets older, was one request old before.
  return reached_[static_cast<size_t>(class_of)][1] < 0.1;
}

// Of classes [begin, end): those of each `part` of them are drawn towards what the part has in
// common, that towards what all of them have, that towards `prior`.
void ReuseStatistics::UpdateRates(int begin, int end, int part, const PerBucket& prior) {
  bool unseen = true;
  for (int c = begin; c < end; ++c) unseen = unseen && IsUnseen(c);
  if (unseen) {
    std::fill(rates_.begin() + begin, rates_.begin() + end, RatesOf(prior));
    return;
  }
  const PerBucket common = Hazards(begin, end, prior);
  if (end - begin == 1) {
    rates_[static_cast<size_t>(begin)] = RatesOf(common);
    return;
  }
  for (int c = begin; c < end; c += part) UpdateRates(c, c + part, 1, common);
}

void ReuseStatistics::UpdateRates() {
  PerBucket prior;
  prior.fill(kPriorHazard);
  constexpr int kOfAnswer = kTurns * kIntervals;
  const PerBucket all = Hazards(0, kContinuedClasses, prior);
  for (int first = 0; first < kContinuedClasses; first += kOfAnswer) {
    UpdateRates(first, first + kOfAnswer, kIntervals, all);
  }
  PerBucket abandoned = all;
  for (double& hazard : abandoned) hazard *= kAbandonedShare;
  for (int c = kContinuedClasses; c < kClasses; ++c) {
    rates_[static_cast<size_t>(c)] = RatesOf(Hazards(c, c + 1, abandoned));
  }
}

}  // namespace refrain::kvcache
