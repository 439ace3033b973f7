#include "server/openai/answer_format.h"

#include "server/concat.h"

namespace refrain::server::openai {
namespace {

std::string_view ReasonName(engine::CacheMissReason reason) {
  switch (reason) {
    case engine::CacheMissReason::kNeverSeen:
      return "never_seen";
    case engine::CacheMissReason::kDiverged:
      return "diverged";
    case engine::CacheMissReason::kEvicted:
      return "evicted";
    case engine::CacheMissReason::kTruncated:
      return "truncated";
    case engine::CacheMissReason::kDisabled:
      break;
  }
  return "disabled";
}

}  // namespace

void AnswerFormat::AppendCacheUsage(const engine::Usage& usage, std::string* out) const {
  ConcatTo(out, "\"cached_tokens\":", usage.cached_tokens,
           ",\"cache_write_tokens\":", usage.written_tokens);
  if (misses_.empty()) return;
  out->append(",\"cache_misses\":[");
  for (size_t i = 0; i < misses_.size(); ++i) {
    const std::optional<engine::CacheMiss>& miss = misses_[i];
    if (i > 0) out->append(",");
    if (!miss.has_value()) {
      out->append("null");
      continue;
    }
    ConcatTo(out, "{\"reason\":\"", ReasonName(miss->reason), "\",\"at_token\":", miss->at_token,
             ",\"evicted_tokens\":", miss->evicted_tokens, "}");
  }
  out->append("]");
}

}  // namespace refrain::server::openai
