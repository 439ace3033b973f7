#include "engine/seen_prefixes.h"

#include <algorithm>
#include <utility>

namespace refrain::engine {

void SeenPrefixes::Add(std::span<const uint64_t> keys) {
  for (const uint64_t key : keys) {
    if (!young_.insert(key).second || young_.size() < max_keys_ / 2) continue;
    old_ = std::exchange(young_, {});
  }
}

size_t SeenPrefixes::SeenChunks(std::span<const uint64_t> keys) const {
  // From the end: a key names all before it, and the first ones may have been forgotten.
  for (size_t chunks = keys.size(); chunks > 0; --chunks) {
    if (young_.contains(keys[chunks - 1]) || old_.contains(keys[chunks - 1])) return chunks;
  }
  return 0;
}

std::optional<CacheMiss> ExplainMiss(const SeenPrefixes& seen, const PromptLookup& prompt) {
  if (prompt.cached_tokens >= prompt.prompt_tokens - 1) return std::nullopt;
  CacheMiss miss{.at_token = prompt.cached_tokens};
  if (!prompt.prefix_cache) {
    miss.reason = CacheMissReason::kDisabled;
    return miss;
  }
  const int64_t seen_tokens =
      std::min<int64_t>(static_cast<int64_t>(seen.SeenChunks(prompt.keys)) * prompt.chunk_tokens,
                        prompt.prompt_tokens - 1);
  if (seen_tokens > prompt.cached_tokens) {
    miss.reason = CacheMissReason::kEvicted;
    miss.evicted_tokens = static_cast<int32_t>(seen_tokens) - prompt.cached_tokens;
  } else if (prompt.truncated) {
    miss.reason = CacheMissReason::kTruncated;
  } else {
    miss.reason = prompt.cached_tokens > 0 && prompt.goes_on ? CacheMissReason::kDiverged
                                                             : CacheMissReason::kNeverSeen;
  }
  return miss;
}

}  // namespace refrain::engine
