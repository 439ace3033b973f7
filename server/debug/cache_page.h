#ifndef REFRAIN_SERVER_DEBUG_CACHE_PAGE_H_
#define REFRAIN_SERVER_DEBUG_CACHE_PAGE_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/cache_view.h"
#include "engine/engine.h"

namespace refrain::server::debug {

// Reads "limit=1000&depth=3", both optional. INVALID_ARGUMENT names what is unknown or out of
// range.
absl::StatusOr<engine::CacheViewLimits> ParseCacheQuery(std::string_view query);

// The view as one JSON object: totals, namespaces, nodes; and what the engine did so far.
std::string CachePage(const engine::CacheView& view, const engine::EngineStats& engine);

}  // namespace refrain::server::debug

#endif  // REFRAIN_SERVER_DEBUG_CACHE_PAGE_H_
