#ifndef REFRAIN_TESTS_KVCACHE_LINEAGES_H_
#define REFRAIN_TESTS_KVCACHE_LINEAGES_H_

#include <algorithm>
#include <compare>
#include <cstdint>
#include <iterator>
#include <set>
#include <string>

#include "tests/kvcache/cache_harness.h"

namespace refrain::testing {

// Tokens of a namespace, from the first one on.
struct Lineage {
  std::string salt;
  Cells cells;
  friend auto operator<=>(const Lineage&, const Lineage&) = default;
};

// So many first ones are equal.
inline int32_t Common(const Cells& a, const Cells& b) {
  const auto end = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first;
  return static_cast<int32_t>(end - a.begin());
}

// Those that are no prefix of another one: in order, it would be of the next.
inline std::set<Lineage> LongestOf(const std::set<Lineage>& lineages) {
  std::set<Lineage> longest;
  for (auto at = lineages.begin(); at != lineages.end(); ++at) {
    const auto next = std::next(at);
    const bool begins_next = next != lineages.end() && next->salt == at->salt &&
                             Common(at->cells, next->cells) == std::ssize(at->cells);
    if (!begins_next && !at->cells.empty()) longest.insert(*at);
  }
  return longest;
}

// Chunks that they need: each rounded up, whole chunks that some have in common counted once.
inline int32_t ChunksOf(const std::set<Lineage>& lineages, int32_t chunk_tokens) {
  int32_t chunks = 0;
  const Lineage* before = nullptr;
  const std::set<Lineage> longest = LongestOf(lineages);
  for (const Lineage& lineage : longest) {
    chunks += (static_cast<int32_t>(lineage.cells.size()) + chunk_tokens - 1) / chunk_tokens;
    if (before != nullptr && before->salt == lineage.salt) {
      chunks -= Common(before->cells, lineage.cells) / chunk_tokens;
    }
    before = &lineage;
  }
  return chunks;
}

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_KVCACHE_LINEAGES_H_
