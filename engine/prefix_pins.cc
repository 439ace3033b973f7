#include "engine/prefix_pins.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace refrain::engine {
namespace {

// Chunks of the first `num_tokens` tokens, whole chunks, that so many pins keep.
int32_t ChunksWithPins(const kvcache::CacheManager& cache, const kvcache::Namespace& name_space,
                       const std::vector<kvcache::TokenId>& tokens, int32_t pins) {
  int32_t chunks = 0;
  kvcache::NodeId id = cache.Match(name_space, {.ids = tokens, .positions = {}}).node;
  while (id != kvcache::kNoNode && !cache.tree().node(id).is_root()) {
    if (cache.tree().node(id).use.pins == pins) ++chunks;
    id = cache.tree().node(id).parent;
  }
  return chunks;
}

}  // namespace

absl::StatusOr<PinnedPrefix> PrefixPins::Pin(const kvcache::Namespace& name_space,
                                             std::vector<kvcache::TokenId> prompt,
                                             kvcache::CacheManager* cache) {
  if (!cache->options().prefix_cache) {
    return absl::FailedPreconditionError("nothing can be pinned: kv_cache.prefix_cache is off");
  }
  if (pins_.size() >= kMaxPins) {
    return absl::FailedPreconditionError(
        absl::StrCat("there are ", pins_.size(), " pins, as many as there may be"));
  }
  const int32_t chunk_tokens = cache->options().chunk_tokens;
  const size_t prompt_tokens = prompt.size();
  if (prompt_tokens < static_cast<size_t>(chunk_tokens)) {
    return absl::NotFoundError(absl::StrCat("the prompt's ", prompt_tokens,
                                            " tokens are less than a chunk of ", chunk_tokens,
                                            ": only whole chunks are pinned"));
  }
  const int32_t found = cache->Match(name_space, {.ids = prompt, .positions = {}}).num_tokens;
  prompt.resize(static_cast<size_t>(found - found % chunk_tokens));
  if (prompt.empty()) {
    return absl::NotFoundError(absl::StrCat("of the prompt's ", prompt_tokens, " tokens ", found,
                                            " are cached, not a whole chunk of ", chunk_tokens,
                                            ": warm it first"));
  }
  const int32_t added = ChunksWithPins(*cache, name_space, prompt, 0);
  const int64_t left = int64_t{cache->options().num_chunks - pinned_chunks_ - added} * chunk_tokens;
  if (left < spare_tokens_) {
    return absl::FailedPreconditionError(
        absl::StrCat("pinning ", added, " chunks of ", chunk_tokens, " tokens would leave ", left,
                     " tokens of KV cache unpinned; the longest request takes ", spare_tokens_,
                     ": engine.max_context_tokens decides"));
  }
  pinned_chunks_ += added;
  Entry entry;
  entry.shown.id = PinId{next_id_++};
  entry.shown.tenant = name_space.tenant;
  entry.shown.salted = !name_space.cache_salt.empty();
  entry.shown.prompt_tokens = static_cast<int32_t>(prompt_tokens);
  entry.shown.pinned_tokens = cache->Pin(name_space, {.ids = prompt, .positions = {}});
  entry.name_space = name_space;
  entry.pinned = std::move(prompt);
  return pins_.emplace(entry.shown.id, std::move(entry)).first->second.shown;
}

absl::Status PrefixPins::Unpin(PinId id, kvcache::CacheManager* cache) {
  const auto found = pins_.find(id);
  if (found == pins_.end()) {
    return absl::NotFoundError(absl::StrCat("there is no pin ", static_cast<uint64_t>(id)));
  }
  const Entry& entry = found->second;
  pinned_chunks_ -= ChunksWithPins(*cache, entry.name_space, entry.pinned, 1);
  cache->Unpin(entry.name_space, {.ids = entry.pinned, .positions = {}}, entry.shown.pinned_tokens);
  pins_.erase(found);
  return absl::OkStatus();
}

PinList PrefixPins::List() const {
  PinList list;
  list.pinned_chunks = pinned_chunks_;
  for (const auto& [id, entry] : pins_) list.pins.push_back(entry.shown);
  return list;
}

}  // namespace refrain::engine
