#ifndef REFRAIN_ENGINE_CACHE_VIEW_H_
#define REFRAIN_ENGINE_CACHE_VIEW_H_

#include <future>

#include "absl/status/statusor.h"
#include "kvcache/cache_view.h"

namespace refrain::engine {

using kvcache::CacheView;
using kvcache::CacheViewLimits;
using kvcache::CacheViewNamespace;
using kvcache::CacheViewNode;

// Somebody's question what the cache holds, on its way to the engine thread, which alone may look.
struct CacheInspection {
  CacheViewLimits limits;
  std::promise<absl::StatusOr<CacheView>> answer;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_CACHE_VIEW_H_
