#include "engine/grammar/token_trie.h"

#include <algorithm>
#include <array>

#include "engine/grammar/grammar.h"

namespace refrain::engine {
namespace {

using kvcache::TokenId;

size_t CommonBytes(std::string_view a, std::string_view b) {
  const auto [end, other] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<size_t>(end - a.begin());
}

}  // namespace

TokenTrie::TokenTrie(const Tokenizer& tokenizer, size_t vocab_size,
                     std::span<const TokenId> spelled)
    : vocab_size_(vocab_size), spellings_(vocab_size) {
  const size_t num_ids = std::min(vocab_size, tokenizer.vocab_size());
  for (size_t i = 0; i < num_ids; ++i) {
    const TokenId id{static_cast<int32_t>(i)};
    const bool is_text = !tokenizer.IsControl(id) && !tokenizer.IsEndOfGeneration(id);
    if (!is_text && std::find(spelled.begin(), spelled.end(), id) == spelled.end()) continue;
    const std::string_view bytes = tokenizer.TokenBytes(id);
    // No text has it, but vocabularies have tokens of each byte.
    if (is_text && bytes.find(kControlMark) != std::string_view::npos) continue;
    const size_t size = bytes.size() + (is_text ? 0 : 1);
    if (bytes.empty() || size > Grammar::kTwinBytes) continue;
    spellings_[i] = {static_cast<uint32_t>(bytes_.size()), static_cast<uint32_t>(size)};
    if (!is_text) bytes_.push_back(kControlMark);
    bytes_ += bytes;
    tokens_.push_back(id);
  }
  std::sort(tokens_.begin(), tokens_.end(), [this](TokenId a, TokenId b) {
    const int order = BytesOf(a).compare(BytesOf(b));  // as unsigned bytes
    return order != 0 ? order < 0 : a < b;
  });
  AddNodes();
}

void TokenTrie::AddNodes() {
  std::array<uint32_t, Grammar::kTwinBytes + 1>
      path{};  // the node at each depth, of the last token
  nodes_.push_back({});
  std::string_view last;
  for (size_t t = 0; t < tokens_.size(); ++t) {
    const std::string_view bytes = BytesOf(tokens_[t]);
    const size_t common = CommonBytes(last, bytes);
    const auto num_nodes = static_cast<uint32_t>(nodes_.size());
    for (size_t depth = common + 1; depth <= last.size(); ++depth) {
      nodes_[path[depth]].end = num_nodes;
    }
    for (size_t depth = common + 1; depth <= bytes.size(); ++depth) {
      path[depth] = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back({.tokens_begin = static_cast<uint32_t>(t),
                        .byte = static_cast<uint8_t>(bytes[depth - 1]),
                        .depth = static_cast<uint8_t>(depth)});
    }
    last = bytes;
  }
  for (size_t depth = 0; depth <= last.size(); ++depth) {
    nodes_[path[depth]].end = static_cast<uint32_t>(nodes_.size());
  }
  nodes_.push_back({.tokens_begin = static_cast<uint32_t>(tokens_.size())});
}

std::string_view TokenTrie::BytesOf(TokenId token) const {
  const size_t i = kvcache::ToIndex(token);
  if (i >= spellings_.size()) return {};
  return std::string_view(bytes_).substr(spellings_[i].begin, spellings_[i].size);
}

}  // namespace refrain::engine
