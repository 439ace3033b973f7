#include "kvcache/kv_layout.h"

#include "absl/strings/str_cat.h"

namespace refrain::kvcache {
namespace {

absl::Status Check(bool holds, const char* name, int32_t value, const char* limit) {
  if (holds) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("KV layout: ", name, " is ", value, ", must be ", limit));
}

}  // namespace

absl::StatusOr<KvLayout> KvLayout::Create(const KvDimensions& d) {
  for (const absl::Status& status : {
           Check(d.num_layers >= 1 && d.num_layers <= 1024, "num_layers", d.num_layers,
                 "from 1 to 1024"),
           Check(d.num_kv_heads >= 1 && d.num_kv_heads <= 1024, "num_kv_heads", d.num_kv_heads,
                 "from 1 to 1024"),
           Check(d.head_dim >= 8 && d.head_dim <= 256 && d.head_dim % 2 == 0, "head_dim",
                 d.head_dim, "even and from 8 to 256"),
           Check(d.chunk_tokens >= 16 && d.chunk_tokens <= 1024 && d.chunk_tokens % 16 == 0,
                 "chunk_tokens", d.chunk_tokens, "a multiple of 16 from 16 to 1024"),
       }) {
    if (!status.ok()) return status;
  }
  return KvLayout(d);
}

KvLayout::KvLayout(const KvDimensions& dimensions)
    : dimensions_(dimensions),
      head_bytes_(static_cast<size_t>(dimensions.chunk_tokens) *
                  static_cast<size_t>(dimensions.head_dim) * ElementBytes(dimensions.element)) {
  const size_t used = 2 * num_heads() * head_bytes_;
  layer_bytes_ = (used + kLayerAlignmentBytes - 1) / kLayerAlignmentBytes * kLayerAlignmentBytes;
}

}  // namespace refrain::kvcache
