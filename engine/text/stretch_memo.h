#ifndef REFRAIN_ENGINE_TEXT_STRETCH_MEMO_H_
#define REFRAIN_ENGINE_TEXT_STRETCH_MEMO_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/annotated_mutex.h"
#include "engine/hash_map.h"
#include "kvcache/types.h"

namespace refrain::engine {

// Ids of stretches of text (between special tokens) that were tokenized before, by the text.
//
// A conversation comes back whole with each turn, a document with each question about it. Beside
// running sequences a megabyte takes seconds to tokenize (EncodePool); to find it here takes as
// long as hashing and comparing it.
//
// Texts are compared, so that none gets another's ids whatever its hash. Nothing is found across
// scopes (tenant, cache salt), so that nobody can tell by the time it takes what others have asked.
// Bounded in bytes: what was not used for longest is forgotten. For one tokenizer: another's ids
// would be wrong. Any thread; texts are compared and copied outside of the lock. Cannot fail.
class StretchMemo {
 public:
  // Shorter ones are tokenized as quickly.
  static constexpr size_t kLeastBytes = 1024;
  static constexpr size_t kMostBytes = size_t{32} << 20;

  struct Key {
    std::string_view scope;
    int place;  // what the tokenizer distinguishes beside the text
    std::string_view text;
  };
  using Ids = std::vector<kvcache::TokenId>;

  explicit StretchMemo(size_t most_bytes = kMostBytes) : most_bytes_(most_bytes) {}

  // Lives as long as it is held; null: not known.
  std::shared_ptr<const Ids> Find(const Key& key);
  // Not those that would take more than an eighth of the room, or are short.
  void Remember(const Key& key, std::span<const kvcache::TokenId> ids);

  size_t num_bytes() const;

 private:
  struct Entry {
    std::string scope;
    int place;
    std::string text;
    Ids ids;
    bool Is(const Key& key) const {
      return place == key.place && scope == key.scope && text == key.text;
    }
    size_t bytes() const;
  };
  struct Kept {
    uint64_t hash;
    std::shared_ptr<const Entry> entry;
  };

  static uint64_t HashOf(const Key& key);
  // Moves what is kept to `forgotten`, which the caller destroys outside of the lock.
  void Forget(std::list<Kept>::iterator kept, std::list<Kept>& forgotten) REFRAIN_REQUIRES(mutex_);

  const size_t most_bytes_;
  mutable Mutex mutex_;
  size_t num_bytes_ REFRAIN_GUARDED_BY(mutex_) = 0;
  std::list<Kept> kept_ REFRAIN_GUARDED_BY(mutex_);  // used last first
  HashMap<uint64_t, std::list<Kept>::iterator> by_hash_ REFRAIN_GUARDED_BY(mutex_);
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TEXT_STRETCH_MEMO_H_
