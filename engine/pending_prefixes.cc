#include "engine/pending_prefixes.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace refrain::engine {

bool PendingPrefixes::Wait(SequenceId id, std::span<const uint64_t> keys, size_t present) {
  Forget(id);
  Waiting& waiting = waiting_[id];
  waiting.keys = keys;
  waiting.present = present;
  if (present >= keys.size()) return false;  // lacks no whole chunk
  Hold(id, &waiting);
  if (!waiting.held_by_key.has_value()) lacking_[keys[present]].push_back(id);
  return waiting.held_by_key.has_value();
}

void PendingPrefixes::Hold(SequenceId id, Waiting* waiting) {
  const std::span<const uint64_t> keys = waiting->keys;
  const auto producer = producer_of_.find(keys[waiting->present]);
  if (producer == producer_of_.end()) return;
  size_t last = waiting->present;
  while (last + 1 < keys.size()) {
    const auto next = producer_of_.find(keys[last + 1]);
    if (next == producer_of_.end() || next->second != producer->second) break;
    ++last;
  }
  waiting->held_by_key = keys[last];
  waiting->producer = producer->second;
  held_[keys[last]].push_back(id);
  ++held_count_;
}

void PendingPrefixes::RemoveFrom(absl::flat_hash_map<uint64_t, std::vector<SequenceId>>* lists,
                                 uint64_t key, SequenceId id) {
  const auto list = lists->find(key);
  assert(list != lists->end());
  const auto entry = std::find(list->second.begin(), list->second.end(), id);
  assert(entry != list->second.end());
  *entry = list->second.back();
  list->second.pop_back();
  if (list->second.empty()) lists->erase(list);
}

void PendingPrefixes::Forget(SequenceId id) {
  const auto found = waiting_.find(id);
  if (found == waiting_.end()) return;
  const Waiting& waiting = found->second;
  if (waiting.held_by_key.has_value()) {
    RemoveFrom(&held_, *waiting.held_by_key, id);
    --held_count_;
  } else if (waiting.present < waiting.keys.size()) {
    RemoveFrom(&lacking_, waiting.keys[waiting.present], id);
  }
  waiting_.erase(found);
}

bool PendingPrefixes::Start(SequenceId id, std::span<const uint64_t> keys, size_t present,
                            std::vector<SequenceId>* held) {
  Forget(id);
  if (present >= keys.size()) return true;
  bool begins = false, all = true;
  for (const uint64_t key : keys.subspan(present)) {
    const auto [producer, is_new] = producer_of_.try_emplace(key, id);
    begins |= is_new;
    all &= producer->second == id;
  }
  if (!begins) return all;
  producing_[id] = {.keys = {keys.begin(), keys.end()}, .published = present};
  for (const uint64_t key : keys.subspan(present)) {
    const auto lacking = lacking_.find(key);
    if (lacking == lacking_.end()) continue;
    const std::vector<SequenceId> now_held = std::move(lacking->second);
    lacking_.erase(lacking);
    for (const SequenceId waiting : now_held) {
      Hold(waiting, &waiting_.at(waiting));
      held->push_back(waiting);
    }
  }
  return all;
}

void PendingPrefixes::ReleaseKey(SequenceId producer, uint64_t key, size_t published,
                                 std::vector<Released>* released) {
  const auto owner = producer_of_.find(key);
  if (owner == producer_of_.end() || owner->second != producer) return;
  producer_of_.erase(owner);
  const auto held = held_.find(key);
  if (held == held_.end()) return;
  for (const SequenceId id : held->second) {
    const auto waiting = waiting_.find(id);
    const size_t most = std::min(published, waiting->second.keys.size());
    released->push_back({id, std::max(waiting->second.present, most)});
    waiting_.erase(waiting);
    --held_count_;
  }
  held_.erase(held);
}

void PendingPrefixes::Published(SequenceId id, size_t chunks, std::vector<Released>* released) {
  const auto found = producing_.find(id);
  if (found == producing_.end()) return;
  Producing& producing = found->second;
  chunks = std::min(chunks, producing.keys.size());
  for (; producing.published < chunks; ++producing.published) {
    ReleaseKey(id, producing.keys[producing.published], producing.published + 1, released);
  }
  if (producing.published == producing.keys.size()) producing_.erase(found);
}

void PendingPrefixes::Stop(SequenceId id, std::vector<Released>* released) {
  const auto found = producing_.find(id);
  if (found == producing_.end()) return;
  const Producing producing = std::move(found->second);
  producing_.erase(found);
  for (size_t i = producing.published; i < producing.keys.size(); ++i) {
    ReleaseKey(id, producing.keys[i], producing.published, released);
  }
}

bool PendingPrefixes::held(SequenceId id) const { return ProducerOf(id).has_value(); }

std::optional<SequenceId> PendingPrefixes::ProducerOf(SequenceId id) const {
  const auto found = waiting_.find(id);
  if (found == waiting_.end() || !found->second.held_by_key.has_value()) return std::nullopt;
  return found->second.producer;
}

}  // namespace refrain::engine
