#include "engine/kv_size.h"

#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace refrain::engine {

absl::StatusOr<int32_t> KvChunksFor(const KvBudget& budget) {
  const int64_t asked = budget.memory_bytes;
  const int64_t free_bytes = std::max<int64_t>(budget.available_bytes - budget.step_bytes, 0);
  int64_t chunks = (asked > 0 ? asked : free_bytes / 2) / budget.chunk_bytes;
  if (chunks < 1 && asked > 0) {
    return absl::InvalidArgumentError(absl::StrCat("kv_cache.memory_bytes of ", asked,
                                                   " bytes does not hold one chunk of ",
                                                   budget.chunk_bytes, " bytes"));
  }
  if (chunks < 1) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "no room for the KV cache: one chunk needs ", budget.chunk_bytes,
        " bytes, and half of the ", free_bytes, " bytes that are free ",
        budget.step_bytes > 0 ? absl::StrCat("beside ", budget.step_bytes, " for steps ") : "",
        "may be used"));
  }
  if (asked == 0) {
    // A share of memory may be far more than every slot at full context could fill.
    const int64_t per_sequence =
        (budget.context_tokens + budget.chunk_tokens - 1) / budget.chunk_tokens;
    chunks = std::min(chunks, std::max<int64_t>(per_sequence * budget.max_sequences * 2, 1));
  }
  chunks = std::min<int64_t>(chunks, std::numeric_limits<int32_t>::max() / budget.chunk_tokens);
  chunks = std::min<int64_t>(chunks, budget.most_chunks);
  if (asked > 0 && chunks > budget.total_bytes / budget.chunk_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("kv_cache.memory_bytes of ", asked,
                                                   " bytes is more than all memory there is, ",
                                                   budget.total_bytes, " bytes"));
  }
  if (chunks * budget.chunk_tokens < budget.asked_context_tokens) {
    const std::string sizes =
        absl::StrCat("engine.max_context_tokens is ", budget.asked_context_tokens,
                     ", the KV cache holds ", chunks * budget.chunk_tokens, " tokens in ",
                     asked > 0 ? "kv_cache.memory_bytes of " : "half of the free memory, ",
                     asked > 0 ? asked : chunks * budget.chunk_bytes, " bytes");
    return asked > 0 ? absl::InvalidArgumentError(sizes) : absl::ResourceExhaustedError(sizes);
  }
  return static_cast<int32_t>(chunks);
}

}  // namespace refrain::engine
