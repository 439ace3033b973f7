#include "engine/prefix_keys.h"

#include <random>

#include <xxhash.h>
#include "absl/strings/str_cat.h"

namespace refrain::engine {
namespace {

uint64_t Random64(std::random_device& device) { return uint64_t{device()} << 32 | device(); }

SipKey RandomKey() {
  std::random_device device;
  return {.low = Random64(device), .high = Random64(device)};
}

}  // namespace

PrefixKeyMaker::PrefixKeyMaker(int32_t chunk_tokens)
    : chunk_tokens_(static_cast<size_t>(chunk_tokens)), secret_(RandomKey()) {}

PrefixKeys PrefixKeyMaker::OfPrompt(const kvcache::Namespace& name_space,
                                    std::span<const kvcache::TokenId> prompt) const {
  return Chain(Seed(name_space), prompt);
}

PromptKeys PrefixKeyMaker::OfRequest(const kvcache::Namespace& name_space,
                                     std::span<const kvcache::TokenId> prompt) const {
  PromptKeys keys{.all = OfPrompt(name_space, prompt)};
  keys.whole_chunks = keys.all.size();
  const size_t whole_tokens = keys.whole_chunks * chunk_tokens_;
  if (prompt.size() < whole_tokens + 2) return keys;
  // Another length than a chunk's: it meets none of these.
  const auto tail = prompt.subspan(whole_tokens, prompt.size() - 1 - whole_tokens);
  const uint64_t seed = keys.all.empty() ? Seed(name_space) : keys.all.back();
  keys.all.push_back(XXH3_64bits_withSeed(tail.data(), tail.size_bytes(), seed));
  return keys;
}

PrefixKeys PrefixKeyMaker::OfAnswer(const kvcache::Namespace& name_space,
                                    std::span<const uint64_t> prompt_keys,
                                    std::span<const kvcache::TokenId> prompt,
                                    std::span<const kvcache::TokenId> answer) const {
  const auto rest = prompt.subspan(prompt_keys.size() * chunk_tokens_);
  std::vector<kvcache::TokenId> tokens(rest.begin(), rest.end());
  tokens.insert(tokens.end(), answer.begin(), answer.end());
  return Chain(prompt_keys.empty() ? Seed(name_space) : prompt_keys.back(), tokens);
}

uint64_t PrefixKeyMaker::Seed(const kvcache::Namespace& name_space) const {
  // The size keeps two pairs with equal concatenations apart.
  return SipHash(secret_, absl::StrCat(name_space.tenant.size(), ":", name_space.tenant,
                                       name_space.cache_salt));
}

PrefixKeys PrefixKeyMaker::Chain(uint64_t seed, std::span<const kvcache::TokenId> tokens) const {
  PrefixKeys keys;
  keys.reserve(tokens.size() / chunk_tokens_);
  for (size_t begin = 0; begin + chunk_tokens_ <= tokens.size(); begin += chunk_tokens_) {
    seed = XXH3_64bits_withSeed(tokens.data() + begin, chunk_tokens_ * sizeof(tokens[0]), seed);
    keys.push_back(seed);
  }
  return keys;
}

}  // namespace refrain::engine
