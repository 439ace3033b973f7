#ifndef REFRAIN_KVCACHE_CACHE_VIEW_H_
#define REFRAIN_KVCACHE_CACHE_VIEW_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvcache/stats.h"
#include "kvcache/types.h"

namespace refrain::kvcache {

// How much of the cache to describe.
struct CacheViewLimits {
  int32_t max_nodes = 1000;       // and namespaces
  int32_t max_depth = INT32_MAX;  // chunks below the root; 1 = first chunks only
};

// Where a chunk's bytes are.
enum class Residency : uint8_t { kDevice };

// A chunk of the prefix tree, at one moment.
struct CacheViewNode {
  NodeId id{};
  std::optional<NodeId> parent;  // none: the first chunk of its lineage
  int32_t name_space = 0;        // index into CacheView::namespaces
  ChunkId chunk{};
  int32_t depth = 1;         // chunks from the root, itself included
  int32_t num_tokens = 0;    // that it holds
  int32_t num_children = 0;  // described or not
  int32_t sharers = 0;       // running sequences that attend to it
  int64_t hits = 0;          // requests that found it
  int64_t age_requests = 0;  // requests that joined since one last used it
  Residency residency = Residency::kDevice;
  bool pinned = false;
  std::optional<SequenceId> writer;  // the running sequence that may still write into it
};

// The salt stays a secret: whoever knows it may look for other people's prompts by their timing.
struct CacheViewNamespace {
  std::string tenant;
  bool salted = false;
  int32_t first_chunks = 0;  // different beginnings
};

// What somebody may come back to: a leaf of the prefix tree with all before it (DESIGN section 1).
struct CacheSession {
  NodeId leaf{};  // as CacheViewNode::id
  std::string tenant;
  bool salted = false;
  int32_t num_tokens = 0;    // from the root on
  int32_t num_chunks = 0;    // that hold them
  int32_t own_chunks = 0;    // of these, those that no other session goes through
  int32_t sharers = 0;       // running sequences that attend to its last chunk
  int64_t hits = 0;          // requests that found its last chunk
  int64_t age_requests = 0;  // requests that joined since one last used it
  bool pinned = false;       // its last whole chunk
};

struct SessionList {
  int32_t total_sessions = 0;          // listed or not
  std::vector<CacheSession> sessions;  // the last used first
};

// A copy of what the cache holds, for people to look at.
struct CacheView {
  CacheStats stats;
  int32_t total_nodes = 0;           // whether described or not
  std::vector<CacheViewNode> nodes;  // first chunks first; parents stand before children
  int32_t total_namespaces = 0;
  // By their roots, of which each request has its own where there is no prefix cache.
  std::vector<CacheViewNamespace> namespaces;
};

}  // namespace refrain::kvcache

#endif  // REFRAIN_KVCACHE_CACHE_VIEW_H_
