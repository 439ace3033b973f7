#ifndef REFRAIN_ENGINE_PREFIX_KEYS_H_
#define REFRAIN_ENGINE_PREFIX_KEYS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/sip_hash.h"
#include "kvcache/prefix_tree.h"
#include "kvcache/types.h"

namespace refrain::engine {

// Names the tokens of a prompt from its start to the end of each of its whole chunks, namespace
// included: equal prefixes have equal keys.
using PrefixKeys = std::vector<uint64_t>;

// Names what can be shared of a request's prompt: all but its last token, which is computed again.
struct PromptKeys {
  PrefixKeys all;  // of its whole chunks; then, if there is more, of all that can be shared
  size_t whole_chunks = 0;  // so many of these are of such

  std::span<const uint64_t> whole() const { return std::span(all).first(whole_chunks); }
  bool has_tail() const { return all.size() > whole_chunks; }
};

// Makes the keys under which PendingPrefixes and SeenPrefixes know prefixes.
//
// Keys of all namespaces lie in the same tables, and compare without their tokens. So the keys of a
// namespace begin with its hash under a secret: whatever salt and tokens a client chooses, its keys
// meet another namespace's by chance alone, one pair in 2^64. Secrets differ from maker to maker;
// keys mean nothing beyond it.
//
// Used by the engine loop. Any thread. Cannot fail.
class PrefixKeyMaker {
 public:
  // With a secret of its own, from the system.
  explicit PrefixKeyMaker(int32_t chunk_tokens);

  PrefixKeys OfPrompt(const kvcache::Namespace& name_space,
                      std::span<const kvcache::TokenId> prompt) const;
  PromptKeys OfRequest(const kvcache::Namespace& name_space,
                       std::span<const kvcache::TokenId> prompt) const;
  // Names the chunks of a prompt and its answer behind those of the prompt alone, which
  // `prompt_keys` are; takes time for these, not for the prompt.
  PrefixKeys OfAnswer(const kvcache::Namespace& name_space, std::span<const uint64_t> prompt_keys,
                      std::span<const kvcache::TokenId> prompt,
                      std::span<const kvcache::TokenId> answer) const;

 private:
  uint64_t Seed(const kvcache::Namespace& name_space) const;
  PrefixKeys Chain(uint64_t seed, std::span<const kvcache::TokenId> tokens) const;

  const size_t chunk_tokens_;
  const SipKey secret_;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_PREFIX_KEYS_H_
