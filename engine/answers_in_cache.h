#ifndef REFRAIN_ENGINE_ANSWERS_IN_CACHE_H_
#define REFRAIN_ENGINE_ANSWERS_IN_CACHE_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/running_request.h"
#include "kvcache/cache_manager.h"

namespace refrain::engine {

// Tells the cache which answers of one request are to stay, and which are not, once their sequences
// have left. There may be a hundred behind a prompt of 100,000 tokens: that is copied and looked
// for once. Made where a request or some of its sequences end, for as long as that takes. Engine
// thread only; cannot fail.
class AnswersInCache {
 public:
  // Request and cache outlive it.
  AnswersInCache(const RunningRequest* request, kvcache::Namespace name_space,
                 kvcache::CacheManager* cache)
      : request_(request), name_space_(std::move(name_space)), cache_(cache) {}

  // CacheManager::Keep and Forget of the prompt and `generated` behind it.
  void Keep(std::span<const TokenId> generated, kvcache::AnswerEnd answer);
  void Forget(std::span<const TokenId> generated, int32_t kept_tokens);

 private:
  // Until it is called again.
  kvcache::TokenSpan Known(std::span<const TokenId> generated);

  const RunningRequest* const request_;
  const kvcache::Namespace name_space_;
  kvcache::CacheManager* const cache_;
  std::vector<TokenId> ids_;     // the prompt, then what was generated
  kvcache::MatchResult prompt_;  // of its whole chunks
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_ANSWERS_IN_CACHE_H_
