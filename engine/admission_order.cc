#include "engine/admission_order.h"

#include <algorithm>
#include <functional>
#include <limits>

namespace refrain::engine {
namespace {

// With one for its next tokens.
int64_t ChunksFor(const WaitingEntry& one, int32_t chunk_tokens) {
  const int32_t missing_tokens = one.prefill_tokens - one.shared_tokens;
  return one.idle_chunks + (missing_tokens + chunk_tokens - 1) / chunk_tokens + 1;
}

// Of those that have not aged: the lower the sooner.
int64_t RankUnder(Policy policy, const WaitingEntry& one) {
  switch (policy) {
    case Policy::kFcfs:
      return 0;
    case Policy::kLongestPrefix:
      return -one.shared_tokens;
    case Policy::kPriority:
      return one.priority;
  }
  return 0;
}

}  // namespace

const WaitingEntry* AdmissionOrder::Next() {
  if (!aged_over_) {
    const int64_t longest_wait = fcfs_ ? s_.limits.grouping_delay_steps : s_.limits.ageing_steps;
    if (begin_ < size() && s_.step - entry(begin_).since_step >= longest_wait) {
      const WaitingEntry& aged = entry(begin_++);
      if (!aged.held) {
        ++slots_;
        chunks_ += ChunksFor(aged, s_.limits.chunk_tokens);
      }
      return &aged;
    }
    aged_over_ = true;
    sharing_ = others_ = begin_;
    window_ = std::min(size(), begin_ + kGroupingWindow);
  }
  return fcfs_ ? NextByAge() : NextByRank();
}

const WaitingEntry* AdmissionOrder::NextThatShares() {
  const int64_t free_slots = s_.limits.max_sequences - static_cast<int64_t>(s_.running.size());
  while (passes_ && sharing_ < window_) {
    const WaitingEntry& one = entry(sharing_);
    if (!one.held) {
      ++slots_;
      chunks_ += ChunksFor(one, s_.limits.chunk_tokens);
      passes_ = slots_ <= free_slots && chunks_ <= s_.free_chunks;
      if (!passes_) break;
    }
    ++sharing_;
    if (one.shares_running) return &one;
  }
  return nullptr;
}

const WaitingEntry* AdmissionOrder::NextByAge() {
  if (const WaitingEntry* sharing = NextThatShares(); sharing != nullptr) return sharing;
  while (others_ < size()) {
    const size_t position = others_++;
    if (position >= sharing_ || !entry(position).shares_running) return &entry(position);
  }
  return nullptr;
}

int64_t AdmissionOrder::RankOf(const WaitingEntry& one, const SchedulerSnapshot& snapshot) {
  const SchedulerLimits& limits = snapshot.limits;
  const bool aged =
      limits.policy != Policy::kFcfs && snapshot.step - one.since_step >= limits.ageing_steps;
  return aged ? std::numeric_limits<int64_t>::min() : RankUnder(limits.policy, one);
}

AdmissionOrder::Key AdmissionOrder::KeyOf(const WaitingEntry& one, size_t position) const {
  return {RankUnder(s_.limits.policy, one), position};
}

void AdmissionOrder::FindBest() {
  const auto look_at = [this](const WaitingEntry& one, size_t position) {
    if (one.held) return;
    const Key key = KeyOf(one, position);
    if (key < next_key_ || (best_.size() == num_best_ && key > best_.front())) return;
    if (best_.size() == num_best_) {
      std::pop_heap(best_.begin(), best_.end());
      best_.pop_back();
    }
    best_.push_back(key);
    std::push_heap(best_.begin(), best_.end());
  };
  if (some_ == nullptr) {
    size_t position = begin_;
    for (auto one = s_.waiting.begin() + static_cast<ptrdiff_t>(begin_); one != s_.waiting.end();
         ++one) {
      look_at(*one, position++);
    }
  } else {
    for (size_t position = begin_; position < size(); ++position) {
      look_at(entry(position), position);
    }
  }
  num_best_ *= 2;
  std::sort(best_.begin(), best_.end(), std::greater<Key>());
}

const WaitingEntry* AdmissionOrder::NextByRank() {
  if (best_.empty()) FindBest();
  if (best_.empty()) return nullptr;
  const Key key = best_.back();
  best_.pop_back();
  next_key_ = {key.first, key.second + 1};
  return &entry(key.second);
}

const WaitingEntry* FirstToStart(const SchedulerSnapshot& snapshot, int32_t tenant) {
  std::vector<const WaitingEntry*> waiting;
  for (const WaitingEntry& entry : snapshot.waiting) {
    if (entry.tenant == tenant && !entry.held) waiting.push_back(&entry);
  }
  return AdmissionOrder(snapshot, &waiting).Next();
}

}  // namespace refrain::engine
