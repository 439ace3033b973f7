#ifndef REFRAIN_ENGINE_PREFIX_PINS_H_
#define REFRAIN_ENGINE_PREFIX_PINS_H_

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/pinned_prefix.h"
#include "kvcache/cache_manager.h"

namespace refrain::engine {

// The pins that operators have set, by id. Pins what is cached, computes nothing. At least
// `spare_tokens` of the pool stay unpinned, so that the longest request can always run.
//
// Used by the engine thread alone, by errands. Failure changes nothing: FAILED_PRECONDITION when
// there is no prefix cache, too little would be left, or there are kMaxPins; NOT_FOUND when no
// whole chunk of the prompt is cached, and for an id that is none.
class PrefixPins {
 public:
  static constexpr size_t kMaxPins = 4096;

  explicit PrefixPins(int32_t spare_tokens) : spare_tokens_(spare_tokens) {}

  absl::StatusOr<PinnedPrefix> Pin(const kvcache::Namespace& name_space,
                                   std::vector<kvcache::TokenId> prompt,
                                   kvcache::CacheManager* cache);
  absl::Status Unpin(PinId id, kvcache::CacheManager* cache);
  PinList List() const;

 private:
  struct Entry {
    kvcache::Namespace name_space;
    std::vector<kvcache::TokenId> pinned;  // its tokens
    PinnedPrefix shown;
  };

  const int32_t spare_tokens_;
  std::map<PinId, Entry> pins_;
  int32_t pinned_chunks_ = 0;
  uint64_t next_id_ = 1;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_PREFIX_PINS_H_
