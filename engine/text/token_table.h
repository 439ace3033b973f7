#ifndef REFRAIN_ENGINE_TEXT_TOKEN_TABLE_H_
#define REFRAIN_ENGINE_TEXT_TOKEN_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/seeded_hash.h"
#include "engine/text/vocabulary.h"
#include "kvcache/types.h"

namespace refrain::engine {

// The vocabulary by id: bytes and type of each token, and the id of a byte string.
//
// Filled by a tokenizer's factory in the order of ids, then read by any thread. Ids given to the
// accessors may be any number; what lies outside has no bytes.
class TokenTable {
 public:
  // The next id. Returns it.
  int32_t Add(std::string_view bytes, TokenType type);

  // Makes FindText work, for tokens of type kNormal. Call once, after the last Add.
  void IndexText();

  // The normal token with exactly these bytes, or -1.
  int32_t FindText(std::string_view bytes) const;

  std::string_view bytes(kvcache::TokenId id) const {
    return Contains(id) ? BytesOf(static_cast<int32_t>(id)) : std::string_view();
  }
  TokenType type(kvcache::TokenId id) const {
    return Contains(id) ? types_[kvcache::ToIndex(id)] : TokenType::kUnused;
  }
  bool Contains(kvcache::TokenId id) const {
    return static_cast<int32_t>(id) >= 0 && kvcache::ToIndex(id) < types_.size();
  }
  size_t size() const { return types_.size(); }
  // No token stands for more of a text. What is no UTF-8 of its own may be shown as U+FFFD, three
  // bytes for one.
  size_t most_text_bytes() const { return most_text_bytes_; }

 private:
  std::string_view BytesOf(int32_t id) const {
    return std::string_view(arena_).substr(offsets_[id], offsets_[id + 1] - offsets_[id]);
  }

  std::string arena_;  // the bytes of all tokens, one after the other
  size_t most_text_bytes_ = 1;
  std::vector<size_t> offsets_ = {0};  // [vocab_size + 1]
  std::vector<TokenType> types_;       // [vocab_size]
  SeededHash hash_;                    // of slots_
  std::vector<int32_t> slots_;         // open addressing: ids, -1 for empty; a power of two
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TEXT_TOKEN_TABLE_H_
