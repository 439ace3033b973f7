#ifndef REFRAIN_ENGINE_CACHE_VIEW_H_
#define REFRAIN_ENGINE_CACHE_VIEW_H_

#include "kvcache/cache_view.h"

namespace refrain::engine {

using kvcache::CacheSession;
using kvcache::CacheView;
using kvcache::CacheViewLimits;
using kvcache::CacheViewNamespace;
using kvcache::CacheViewNode;
using kvcache::SessionList;

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_CACHE_VIEW_H_
