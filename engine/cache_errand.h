#ifndef REFRAIN_ENGINE_CACHE_ERRAND_H_
#define REFRAIN_ENGINE_CACHE_ERRAND_H_

#include <functional>

#include "absl/status/statusor.h"
#include "kvcache/cache_manager.h"

namespace refrain::engine {

// Somebody's question to the cache, or change of it, on its way to the engine thread, which alone
// may touch it. Called once: there, between two steps, or with the reason why it will not be.
// Must be quick.
using CacheErrand = std::function<void(absl::StatusOr<kvcache::CacheManager*> cache)>;

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_CACHE_ERRAND_H_
