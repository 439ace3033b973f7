#include "engine/text/stretch_memo.h"

#include <xxhash.h>

#include <utility>

namespace refrain::engine {
namespace {

constexpr size_t kBytesPerEntry = 256;  // of list, map, and what allocation adds

}  // namespace

size_t StretchMemo::Entry::bytes() const {
  return kBytesPerEntry + scope.size() + text.size() + ids.size() * sizeof(kvcache::TokenId);
}

uint64_t StretchMemo::HashOf(const Key& key) {
  const uint64_t scope = XXH3_64bits(key.scope.data(), key.scope.size());
  return XXH3_64bits_withSeed(key.text.data(), key.text.size(),
                              scope + static_cast<uint64_t>(key.place));
}

std::shared_ptr<const StretchMemo::Ids> StretchMemo::Find(const Key& key) {
  if (key.text.size() < kLeastBytes) return nullptr;
  const uint64_t hash = HashOf(key);
  std::shared_ptr<const Entry> entry;
  {
    MutexLock lock(mutex_);
    const auto found = by_hash_.find(hash);
    if (found == by_hash_.end()) return nullptr;
    kept_.splice(kept_.begin(), kept_, found->second);
    entry = found->second->entry;
  }
  if (!entry->Is(key)) return nullptr;
  const Ids* const ids = &entry->ids;
  return {std::move(entry), ids};
}

void StretchMemo::Remember(const Key& key, std::span<const kvcache::TokenId> ids) {
  if (key.text.size() < kLeastBytes) return;
  const auto entry = std::make_shared<const Entry>(
      Entry{std::string(key.scope), key.place, std::string(key.text), Ids(ids.begin(), ids.end())});
  if (entry->bytes() > most_bytes_ / 8) return;
  const uint64_t hash = HashOf(key);
  std::list<Kept> added;  // what finds no memory is not half kept
  added.push_front({hash, entry});
  std::list<Kept> forgotten;  // freed outside of the lock
  MutexLock lock(mutex_);
  if (const auto same = by_hash_.find(hash); same != by_hash_.end()) {
    Forget(same->second, forgotten);
  }
  by_hash_.emplace(hash, added.begin());
  kept_.splice(kept_.begin(), added);
  num_bytes_ += entry->bytes();
  while (num_bytes_ > most_bytes_) Forget(std::prev(kept_.end()), forgotten);
}

void StretchMemo::Forget(std::list<Kept>::iterator kept, std::list<Kept>& forgotten) {
  num_bytes_ -= kept->entry->bytes();
  by_hash_.erase(kept->hash);
  forgotten.splice(forgotten.begin(), kept_, kept);
}

size_t StretchMemo::num_bytes() const {
  MutexLock lock(mutex_);
  return num_bytes_;
}

}  // namespace refrain::engine
