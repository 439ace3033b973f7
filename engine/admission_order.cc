#include "engine/admission_order.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

namespace refrain::engine {
namespace {

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

PassingRoom::PassingRoom(const SchedulerLimits& limits, int32_t running, int64_t free_chunks)
    : chunk_tokens_(limits.chunk_tokens),
      budget_tokens_(limits.step_token_budget),
      delay_steps_(limits.grouping_delay_steps),
      decoding_(running),
      growth_chunks_((limits.grouping_delay_steps + chunk_tokens_ - 1) / chunk_tokens_),
      slots_(limits.max_sequences - running),
      chunks_(free_chunks - running * growth_chunks_) {}

bool PassingRoom::Take(const WaitingEntry& one) {
  // As a plan wants it: a margin of a chunk for every four that run.
  const int64_t margin_chunks = taken_++ % 4 == 0 ? 1 : 0;
  chunks_ -= one.ChunksToAdmit(chunk_tokens_) + growth_chunks_ + margin_chunks;
  ++decoding_;
  if (!one.shares_running) passed_rows_ += one.RowsToAdmit();
  return --slots_ >= 0 && chunks_ >= 0 && DecodesInTime();
}

bool PassingRoom::DecodesInTime() const {
  const int64_t left = budget_tokens_ - decoding_;
  return left > 0 &&
         kDecodeDelayPart * passed_rows_ * decoding_ <= delay_steps_ * budget_tokens_ * left;
}

bool AdmissionOrder::NextHasAged() const {
  const int64_t longest_wait = fcfs_ ? s_.limits.grouping_delay_steps : s_.limits.ageing_steps;
  return begin_ < size() && s_.step - entry(begin_).since_step >= longest_wait;
}

const WaitingEntry* AdmissionOrder::NextAged() {
  const WaitingEntry& aged = entry(begin_++);
  if (fcfs_ && !aged.held) passes_ = room_.Take(aged) && passes_;
  return &aged;
}

const WaitingEntry* AdmissionOrder::NextAgedBefore(SequenceId other) {
  return NextHasAged() && entry(begin_).sequence < other ? NextAged() : nullptr;
}

const WaitingEntry* AdmissionOrder::Next() {
  if (!aged_over_) {
    if (NextHasAged()) return NextAged();
    aged_over_ = true;
    sharing_ = others_ = begin_;
    window_ = std::min(size(), begin_ + kGroupingWindow);
  }
  return fcfs_ ? NextByAge() : NextByRank();
}

const WaitingEntry* AdmissionOrder::NextThatShares() {
  while (passes_ && sharing_ < window_) {
    const WaitingEntry& one = entry(sharing_);
    passes_ = one.held || room_.Take(one);
    if (!passes_) break;
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
  if (std::exchange(kept_all_, true)) return;
  const auto look_at = [this](const WaitingEntry& one, size_t position) {
    if (one.held) return;
    const Key key = KeyOf(one, position);
    if (key < next_key_) return;
    if (best_.size() == num_best_ && key > best_.front()) {
      kept_all_ = false;
      return;
    }
    if (one.next_chunk_key != 0) {
      if (claimed_ != nullptr && claimed_->contains(one.next_chunk_key)) return;
      Key& first = first_lacking_.try_emplace(one.next_chunk_key, key).first->second;
      if (first < key) return;
      first = key;
    }
    if (best_.size() == num_best_) {
      kept_all_ = false;
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
  num_best_ *= 4;
  std::sort(best_.begin(), best_.end(), std::greater<Key>());
}

const WaitingEntry* AdmissionOrder::NextByRank() {
  for (;;) {
    if (best_.empty()) FindBest();
    if (best_.empty()) return nullptr;
    const Key key = best_.back();
    best_.pop_back();
    next_key_ = {key.first, key.second + 1};
    const WaitingEntry& one = entry(key.second);
    // One that was kept until a better one was found that lacks the same chunk.
    if (one.next_chunk_key == 0 || first_lacking_.at(one.next_chunk_key) == key) return &one;
  }
}

const WaitingEntry* FirstToStart(const SchedulerSnapshot& snapshot, int32_t tenant) {
  std::vector<const WaitingEntry*> waiting;
  for (const WaitingEntry& entry : snapshot.waiting) {
    if (entry.tenant == tenant && !entry.held) waiting.push_back(&entry);
  }
  return AdmissionOrder(snapshot, &waiting).Next();
}

}  // namespace refrain::engine
