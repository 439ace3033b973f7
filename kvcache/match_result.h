#ifndef REFRAIN_KVCACHE_MATCH_RESULT_H_
#define REFRAIN_KVCACHE_MATCH_RESULT_H_

#include <cstdint>

#include "kvcache/prefix_tree.h"
#include "kvcache/types.h"

namespace refrain::kvcache {

// How much of a prompt is in the cache. A value; it can be joined with, and matching again finds no
// more, as long as CacheManager::IsCurrent says so.
struct MatchResult {
  int32_t num_tokens = 0;
  // Of the chunks that hold them, those that could be evicted when they were counted: who joins
  // takes them out of CacheStats::available_chunks. A chunk that will be copied counts, too.
  int32_t idle_chunks = 0;
  int32_t unused_chunks = 0;  // of the chunks, those of no running sequence: idle or pinned
  NodeId node = kNoNode;      // where the match ended: a root or a chunk; or the namespace is new
  PrefixTree::MatchEnd end = PrefixTree::MatchEnd::kNode;
  uint64_t stamp = 0;       // PrefixTree::MatchStamp; 0: out of date, joins with nothing
  uint64_t node_stamp = 0;  // PrefixTree::NodeStamp
  uint64_t use_stamp = 0;   // ChunkCache::use_stamp when these were counted
};

}  // namespace refrain::kvcache

#endif  // REFRAIN_KVCACHE_MATCH_RESULT_H_
