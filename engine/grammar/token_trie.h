#ifndef REFRAIN_ENGINE_GRAMMAR_TOKEN_TRIE_H_
#define REFRAIN_ENGINE_GRAMMAR_TOKEN_TRIE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer.h"
#include "kvcache/types.h"

namespace refrain::engine {

// The vocabulary by its bytes: what a grammar may choose from. Tokens that are text, shown as they
// are written; control tokens and those that end a generation are left out but for those of
// `spelled` (the tags of thoughts), which stand behind kControlMark, and so are tokens of no
// bytes, those with the mark's byte, and those of more than Grammar::kTwinBytes, which a twin could
// not tell. Ids from the tokenizer's
// vocabulary up to `vocab_size` fill a model's last layer up and are no tokens.
//
// Nodes lie in depth-first order, so that a subtree is a range of nodes, and its tokens are a range
// of tokens. Immutable, and the tokenizer is not needed later: any threads. Cannot fail.
class TokenTrie {
 public:
  struct Node {
    uint32_t end = 0;           // behind the last node of the subtree
    uint32_t tokens_begin = 0;  // of tokens(): the subtree's, those that end here first
    uint8_t byte = 0;           // that leads here
    uint8_t depth = 0;          // bytes from the root, at most Grammar::kTwinBytes
  };

  TokenTrie(const Tokenizer& tokenizer, size_t vocab_size,
            std::span<const kvcache::TokenId> spelled);

  // [0] is the root. The tokens of nodes [a, b) are tokens [tokens_begin(a), tokens_begin(b)).
  std::span<const Node> nodes() const { return {nodes_.data(), nodes_.size() - 1}; }
  uint32_t tokens_begin(uint32_t node) const { return nodes_[node].tokens_begin; }
  std::span<const kvcache::TokenId> tokens() const { return tokens_; }  // by bytes, then by id

  // Those that end at a node (several ids may have the same bytes), and those of its subtree.
  std::span<const kvcache::TokenId> TokensAt(uint32_t node) const { return Tokens(node, node + 1); }
  std::span<const kvcache::TokenId> TokensBelow(uint32_t node) const {
    return Tokens(node, nodes_[node].end);
  }
  size_t vocab_size() const { return vocab_size_; }
  // The bytes of a token of the trie; empty for others.
  std::string_view BytesOf(kvcache::TokenId token) const;

 private:
  struct Spelling {
    uint32_t begin = 0;  // of bytes_
    uint32_t size = 0;   // 0: not of the trie
  };

  void AddNodes();
  std::span<const kvcache::TokenId> Tokens(uint32_t begin_node, uint32_t end_node) const {
    const uint32_t begin = tokens_begin(begin_node);
    return std::span(tokens_).subspan(begin, tokens_begin(end_node) - begin);
  }

  size_t vocab_size_;
  std::vector<Node> nodes_;  // and one more, for where its tokens begin
  std::vector<kvcache::TokenId> tokens_;
  std::string bytes_;                // of all of them
  std::vector<Spelling> spellings_;  // [vocab_size]
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_TOKEN_TRIE_H_
