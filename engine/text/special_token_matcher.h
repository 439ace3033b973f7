#ifndef REFRAIN_ENGINE_TEXT_SPECIAL_TOKEN_MATCHER_H_
#define REFRAIN_ENGINE_TEXT_SPECIAL_TOKEN_MATCHER_H_

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer.h"
#include "kvcache/types.h"

namespace refrain::engine {

// Finds tokens that stand for themselves in text, leftmost first, the longest at each place.
//
// A byte trie whose nodes list their children: the time per place is the length of the longest
// token that begins there, times the bytes that tokens go on with at each of its prefixes (one or
// two, in vocabularies as they are; 256 at most), however many tokens share a prefix. Filled once
// by a tokenizer, then only read, by any thread. Cannot fail.
class SpecialTokenMatcher {
 public:
  enum class Scope {
    kAlways,             // user-defined tokens
    kOutsidePlainSpans,  // those of them that look like control tokens
    kWhenRequested,      // control tokens: need parse_special and no plain span
  };
  struct Match {
    size_t begin_byte;
    size_t end_byte;
    kvcache::TokenId id;
  };

  SpecialTokenMatcher();

  // An empty text is never found.
  void Add(std::string_view text, kvcache::TokenId id, Scope scope);

  // The first match at or after `from_byte`.
  std::optional<Match> FindNext(std::string_view text, size_t from_byte, bool parse_special,
                                std::span<const TextSpan> plain_spans) const;

  std::optional<kvcache::TokenId> FindExact(std::string_view text) const;

 private:
  struct Node {
    int32_t first_child = -1;
    int32_t next_sibling = -1;
    int32_t token = -1;
    uint8_t byte = 0;
    Scope scope = Scope::kAlways;
  };

  int32_t FindChild(int32_t node, uint8_t byte) const;

  std::vector<Node> nodes_;                 // [0] is the root
  std::array<int32_t, 256> root_children_;  // -1: no token begins with this byte
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TEXT_SPECIAL_TOKEN_MATCHER_H_
