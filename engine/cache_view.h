#ifndef REFRAIN_ENGINE_CACHE_VIEW_H_
#define REFRAIN_ENGINE_CACHE_VIEW_H_

#include "kvcache/cache_view.h"

namespace refrain::engine {

using kvcache::CacheView;
using kvcache::CacheViewLimits;
using kvcache::CacheViewNamespace;
using kvcache::CacheViewNode;

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_CACHE_VIEW_H_
