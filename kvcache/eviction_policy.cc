#include "kvcache/eviction_policy.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kvcache/awaiting_policy.h"
#include "kvcache/lru_policy.h"
#include "kvcache/retaining_policy.h"
#include "kvcache/reuse_rate_policy.h"
#include "kvcache/s3fifo_policy.h"

namespace refrain::kvcache {

absl::StatusOr<std::unique_ptr<EvictionPolicy>> MakeEvictionPolicy(std::string_view name,
                                                                   int32_t capacity_chunks) {
  std::unique_ptr<EvictionPolicy> policy;
  if (name == "lru") policy = std::make_unique<LruPolicy>();
  if (name == "s3fifo") policy = std::make_unique<S3FifoPolicy>(capacity_chunks);
  if (name == "reuse_rate") policy = std::make_unique<ReuseRatePolicy>(capacity_chunks);
  if (policy != nullptr) {
    policy = std::make_unique<RetainingPolicy>(std::move(policy), capacity_chunks / 4);
    return std::make_unique<AwaitingPolicy>(std::move(policy),
                                            capacity_chunks - capacity_chunks / 4);
  }
  return absl::InvalidArgumentError(absl::StrCat("kv_cache.eviction is \"", std::string(name),
                                                 "\", must be one of: lru, s3fifo, reuse_rate"));
}

}  // namespace refrain::kvcache
