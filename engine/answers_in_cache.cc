#include "engine/answers_in_cache.h"

namespace refrain::engine {

kvcache::TokenSpan AnswersInCache::Known(std::span<const TokenId> generated) {
  const size_t prompt_tokens = request_->prompt().size();
  if (ids_.size() < prompt_tokens) ids_ = request_->prompt();
  ids_.resize(prompt_tokens);
  if (!cache_->IsCurrent(prompt_)) {
    const size_t rest = prompt_tokens % static_cast<size_t>(cache_->options().chunk_tokens);
    prompt_ =
        cache_->MatchAgain(prompt_, name_space_,
                           {.ids = std::span(ids_).first(prompt_tokens - rest), .positions = {}});
  }
  ids_.insert(ids_.end(), generated.begin(), generated.end());
  return {.ids = ids_, .positions = {}};
}

void AnswersInCache::Keep(std::span<const TokenId> generated, kvcache::AnswerEnd answer) {
  const kvcache::TokenSpan known = Known(generated);
  cache_->Keep(prompt_, name_space_, known, answer);
}

void AnswersInCache::Forget(std::span<const TokenId> generated, int32_t kept_tokens) {
  const kvcache::TokenSpan known = Known(generated);
  cache_->Forget(prompt_, name_space_, known, kept_tokens);
}

}  // namespace refrain::engine
