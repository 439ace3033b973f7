#ifndef REFRAIN_KVCACHE_SESSION_SCAN_H_
#define REFRAIN_KVCACHE_SESSION_SCAN_H_

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kvcache/cache_manager.h"
#include "kvcache/cache_view.h"

namespace refrain::kvcache {

// Lists the sessions that were used last, in steps between which others may use the cache: to look
// at a million nodes at once takes tens of milliseconds.
//
//   SessionScan scan(max_sessions);
//   while (scan.FindSome(cache)) {}
//   scan.Choose();
//   while (scan.DescribeSome(cache)) {}
//   SessionList list = scan.Take();
//
// What changes meanwhile is seen as of some moment: a session is chosen and counted by what it was
// when it was found, described as it is later, and left out if it has gone on or gone by then.
// Knows no thread: FindSome and DescribeSome are called where the cache may be read, Choose, which
// takes the longest, anywhere. Cannot fail.
class SessionScan {
 public:
  // A step takes about as long as this many nodes do that lie beside each other, or a quarter of
  // them along the ways to the root, and in that case the way of one session: under a millisecond.
  static constexpr int32_t kStepNodes = 16'384;

  explicit SessionScan(int32_t max_sessions) : max_sessions_(max_sessions) {}

  // False when all have been found.
  bool FindSome(const CacheManager& cache);
  // Which are listed.
  void Choose();
  // False when all that were chosen have been described.
  bool DescribeSome(const CacheManager& cache);
  SessionList Take() { return std::move(list_); }

 private:
  struct Leaf {
    NodeId id{};
    int64_t last_use = 0;
    int32_t end_tokens = 0;
  };
  // Holds as long as the node does: then its stamp is the same.
  struct KnownRoot {
    uint64_t stamp = 0;
    NodeId root{};
  };

  // Goes no way twice: thousands of sessions may share a long beginning.
  NodeId RootOf(const PrefixTree& tree, NodeId id);
  void Describe(const CacheManager& cache, NodeId id);

  const int32_t max_sessions_;
  int32_t next_id_ = 0;  // to be looked at
  std::vector<Leaf> leaves_;
  size_t next_leaf_ = 0;      // to be described
  int64_t walked_nodes_ = 0;  // on the ways to the root
  std::unordered_map<NodeId, KnownRoot> known_roots_;
  SessionList list_;
};

}  // namespace refrain::kvcache

#endif  // REFRAIN_KVCACHE_SESSION_SCAN_H_
