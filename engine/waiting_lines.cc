#include "engine/waiting_lines.h"

#include <algorithm>
#include <cassert>
#include <cstddef>

namespace refrain::engine {

int64_t WaitingLines::Line::TurnOf(int64_t rank, SequenceId sequence) const {
  if (places_.empty()) return shares_->ServedAfter(tenant_, 0);
  const auto place = std::lower_bound(places_.begin(), places_.end(), Place(rank, sequence));
  const int64_t ahead = place - places_.begin();
  return shares_->ServedAfter(tenant_, ahead * tokens_ / static_cast<int64_t>(places_.size()));
}

void WaitingLines::Line::Add(int64_t rank, SequenceId sequence, int32_t tokens) {
  const Place place(rank, sequence);
  places_.insert(std::upper_bound(places_.begin(), places_.end(), place), place);
  tokens_ += tokens;
}

void WaitingLines::Line::Remove(std::span<const Place> places, int64_t tokens) {
  tokens_ -= tokens;
  while (!places.empty()) {
    const auto first = std::lower_bound(places_.begin(), places_.end(), places.front());
    const auto [rest, last] = std::mismatch(places.begin(), places.end(), first, places_.end());
    assert(rest != places.begin());
    places = places.subspan(static_cast<size_t>(rest - places.begin()));
    places_.erase(first, last);
  }
}

kvcache::WaitingPlace WaitingLines::Place(SequenceId id, int32_t tenant, int64_t rank,
                                          int32_t tokens) {
  const auto index = static_cast<size_t>(tenant);
  if (index >= lines_.size()) lines_.resize(index + 1);
  std::unique_ptr<Line>& line = lines_[index];
  if (line == nullptr) line = std::make_unique<Line>(shares_, tenant);
  const auto [found, is_new] = standing_.try_emplace(id, Standing{tenant, rank, tokens});
  if (is_new) {
    line->Add(rank, id, tokens);
  } else if (found->second.rank != rank) {
    const Line::Place before(std::exchange(found->second.rank, rank), id);
    line->Remove({&before, 1}, found->second.tokens);
    line->Add(rank, id, found->second.tokens);
  }
  return {.rank = rank, .line = line.get()};
}

void WaitingLines::Remove(std::span<const SequenceId> ids) {
  std::vector<Line::Place> places;
  Line* line = nullptr;
  int64_t sum_tokens = 0;
  for (const SequenceId id : ids) {
    const auto found = standing_.find(id);
    if (found == standing_.end()) continue;
    const auto [tenant, rank, tokens] = found->second;
    standing_.erase(found);
    assert(line == nullptr || line == lines_[static_cast<size_t>(tenant)].get());
    line = lines_[static_cast<size_t>(tenant)].get();
    places.emplace_back(rank, id);
    sum_tokens += tokens;
  }
  if (line == nullptr) return;
  std::sort(places.begin(), places.end());
  line->Remove(places, sum_tokens);
}

}  // namespace refrain::engine
