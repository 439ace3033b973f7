#include "engine/waiting_lines.h"

#include <algorithm>
#include <cassert>
#include <cstddef>

namespace refrain::engine {

int64_t WaitingLines::Line::TurnOf(int32_t rank, SequenceId sequence) const {
  if (places_.empty()) return shares_->ServedAfter(tenant_, 0);
  const auto place = std::lower_bound(places_.begin(), places_.end(), std::pair(rank, sequence));
  const int64_t ahead = place - places_.begin();
  return shares_->ServedAfter(tenant_, ahead * tokens_ / static_cast<int64_t>(places_.size()));
}

void WaitingLines::Line::Add(int32_t rank, SequenceId sequence, int32_t tokens) {
  const std::pair place(rank, sequence);
  places_.insert(std::upper_bound(places_.begin(), places_.end(), place), place);
  tokens_ += tokens;
}

void WaitingLines::Line::Remove(int32_t rank, SequenceId sequence, int32_t tokens) {
  const std::pair place(rank, sequence);
  const auto found = std::lower_bound(places_.begin(), places_.end(), place);
  assert(found != places_.end() && *found == place);
  places_.erase(found);
  tokens_ -= tokens;
}

kvcache::WaitingPlace WaitingLines::Place(SequenceId id, int32_t tenant, int32_t rank,
                                          int32_t tokens) {
  const auto index = static_cast<size_t>(tenant);
  if (index >= lines_.size()) lines_.resize(index + 1);
  std::unique_ptr<Line>& line = lines_[index];
  if (line == nullptr) line = std::make_unique<Line>(shares_, tenant);
  const auto [found, is_new] = standing_.try_emplace(id, Standing{tenant, rank, tokens});
  if (is_new) {
    line->Add(rank, id, tokens);
  } else if (found->second.rank != rank) {
    line->Remove(std::exchange(found->second.rank, rank), id, found->second.tokens);
    line->Add(rank, id, found->second.tokens);
  }
  return {.rank = rank, .line = line.get()};
}

void WaitingLines::Remove(SequenceId id) {
  const auto found = standing_.find(id);
  if (found == standing_.end()) return;
  const auto [tenant, rank, tokens] = found->second;
  lines_[static_cast<size_t>(tenant)]->Remove(rank, id, tokens);
  standing_.erase(found);
}

}  // namespace refrain::engine
