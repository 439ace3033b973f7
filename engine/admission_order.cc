#include "engine/admission_order.h"

#include <algorithm>
#include <functional>

namespace refrain::engine {

const WaitingEntry* AdmissionOrder::Next() {
  if (!aged_over_) {
    const int64_t longest_wait = fcfs_ ? s_.limits.grouping_delay_steps : s_.limits.ageing_steps;
    if (begin_ < size() && s_.step - entry(begin_).since_step >= longest_wait) {
      return &entry(begin_++);
    }
    aged_over_ = true;
    sharing_ = others_ = begin_;
    window_ = std::min(size(), begin_ + kGroupingWindow);
  }
  return fcfs_ ? NextByAge() : NextByRank();
}

const WaitingEntry* AdmissionOrder::NextByAge() {
  while (sharing_ < window_) {
    const size_t position = sharing_++;
    if (entry(position).shares_running) return &entry(position);
  }
  while (others_ < size()) {
    const size_t position = others_++;
    if (position >= window_ || !entry(position).shares_running) return &entry(position);
  }
  return nullptr;
}

AdmissionOrder::Key AdmissionOrder::KeyOf(const WaitingEntry& one, size_t position) const {
  const int32_t rank = s_.limits.policy == Policy::kPriority ? one.priority : -one.shared_tokens;
  return uint64_t{static_cast<uint32_t>(rank) ^ (uint32_t{1} << 31)} << 32 | position;
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
  next_key_ = key + 1;
  return &entry(static_cast<uint32_t>(key));
}

}  // namespace refrain::engine
