#include "engine/grammar/mask_store.h"

#include <iterator>
#include <utility>

#include "engine/grammar/place_walk.h"

namespace refrain::engine {
namespace {

constexpr size_t kBytesPerEntry = 256;  // of list, map, and what allocation adds
// Bits take less time than ids, and ids less memory, where tokens are more and fewer than one in so
// many.
constexpr size_t kFew = 256;

size_t NodesBelow(std::span<const uint32_t> ends, const TokenTrie& trie) {
  size_t nodes = 0;
  uint32_t behind = 0;  // the last subtree: some lie in others
  for (const uint32_t node : ends) {
    if (node < behind) continue;
    behind = trie.nodes()[node].end;
    nodes += behind - node;
  }
  return nodes;
}

StateMask MakeMask(const Grammar& grammar, StateId state, std::optional<StateId> back,
                   const TokenTrie& trie) {
  StateMask mask;
  TokenSet allowed(trie.vocab_size());
  PlaceWalk walk(&grammar, &trie, nullptr);
  if (back.has_value()) {
    walk.StartFromCalled(state, *back);
  } else {
    walk.StartFromState(state);
  }
  walk.AddAllowed(0, &allowed, &mask.ends);
  mask.ends.shrink_to_fit();
  mask.nodes_below_ends = NodesBelow(mask.ends, trie);
  mask.work = walk.work();
  const size_t count = allowed.Count();
  if (count > trie.vocab_size() / kFew) {
    mask.many = std::move(allowed);
    return mask;
  }
  mask.few.reserve(count);
  allowed.ForEach([&](kvcache::TokenId token) { mask.few.push_back(token); });
  return mask;
}

}  // namespace

void StateMask::AddTo(TokenSet* allowed) const {
  if (many.has_value()) allowed->AddAll(*many);
  for (const kvcache::TokenId token : few) allowed->Add(token);
}

size_t StateMask::memory_bytes() const {
  return kBytesPerEntry + (many.has_value() ? many->words().size_bytes() : 0) +
         few.capacity() * sizeof(few[0]) + ends.capacity() * sizeof(ends[0]);
}

std::shared_ptr<const StateMask> MaskStore::Find(const Grammar& grammar, StateId state,
                                                 std::optional<StateId> back) {
  const StateId twin = grammar.twin(state);
  Key key{grammar.digest(twin), {}};
  if (back.has_value()) {
    back = grammar.twin(*back);
    key.back = grammar.digest(*back);
  }
  {
    MutexLock lock(mutex_);
    if (const auto found = by_key_.find(key); found != by_key_.end()) {
      kept_.splice(kept_.begin(), kept_, found->second);
      return found->second->mask;
    }
  }
  return Keep(key, std::make_shared<const StateMask>(MakeMask(grammar, twin, back, trie_)));
}

std::shared_ptr<const StateMask> MaskStore::Keep(const Key& key,
                                                 std::shared_ptr<const StateMask> mask) {
  std::list<Kept> added;  // what finds no memory is not half kept
  added.push_front({key, mask});
  std::list<Kept> forgotten;  // freed outside of the lock
  MutexLock lock(mutex_);
  if (const auto found = by_key_.find(key); found != by_key_.end()) {
    return found->second->mask;
  }
  by_key_.emplace(key, added.begin());
  kept_.splice(kept_.begin(), added);
  num_bytes_ += mask->memory_bytes();
  while (num_bytes_ > most_bytes_) {
    const auto last = std::prev(kept_.end());
    num_bytes_ -= last->mask->memory_bytes();
    by_key_.erase(last->key);
    forgotten.splice(forgotten.begin(), kept_, last);
  }
  return mask;
}

size_t MaskStore::memory_bytes() const {
  MutexLock lock(mutex_);
  return num_bytes_;
}

}  // namespace refrain::engine
