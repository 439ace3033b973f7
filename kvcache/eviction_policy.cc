#include "kvcache/eviction_policy.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "kvcache/lru_policy.h"

namespace refrain::kvcache {

absl::StatusOr<std::unique_ptr<EvictionPolicy>> MakeEvictionPolicy(std::string_view name,
                                                                   int32_t capacity_chunks) {
  if (name == "lru") return std::make_unique<LruPolicy>();
  return absl::InvalidArgumentError(
      absl::StrCat("kv_cache.eviction is \"", std::string(name), "\", must be one of: lru"));
}

}  // namespace refrain::kvcache
