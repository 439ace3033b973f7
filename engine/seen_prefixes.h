#ifndef REFRAIN_ENGINE_SEEN_PREFIXES_H_
#define REFRAIN_ENGINE_SEEN_PREFIXES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "absl/container/flat_hash_set.h"
#include "engine/token_stream.h"

namespace refrain::engine {

// Remembers which prefixes have been computed, also when the cache has them no more, so that a miss
// can be explained. Keys are PrefixKeyMaker's: those of two namespaces never meet, so nothing is
// learned of another's prompts.
//
// Holds at least the last kMaxKeys / 2 keys that were added, at most kMaxKeys: 9 bytes each at a
// load of a half or more, 2.5 MB in all, for 8 million tokens in chunks of 64. Engine thread only;
// cannot fail.
class SeenPrefixes {
 public:
  static constexpr size_t kMaxKeys = size_t{1} << 17;

  explicit SeenPrefixes(size_t max_keys = kMaxKeys) : max_keys_(max_keys) {}

  void Add(std::span<const uint64_t> keys);
  // How many of the first chunks that `keys` name were computed at some time.
  size_t SeenChunks(std::span<const uint64_t> keys) const;

 private:
  // Two generations: the older one is dropped as a whole when the younger one is half of all.
  const size_t max_keys_;
  absl::flat_hash_set<uint64_t> young_, old_;
};

// What became of a prompt in the cache.
struct PromptLookup {
  std::span<const uint64_t> keys;  // of its whole chunks
  int32_t chunk_tokens = 0;
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;
  bool goes_on = false;       // there is more behind these in the cache: the prompt parts from it
  bool truncated = false;     // its beginning was cut off
  bool prefix_cache = false;  // there is one
};

// Why not all of it was found; nothing when it was (the last token is always computed).
std::optional<CacheMiss> ExplainMiss(const SeenPrefixes& seen, const PromptLookup& prompt);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_SEEN_PREFIXES_H_
