#ifndef REFRAIN_ENGINE_GRAMMAR_TOKEN_SET_H_
#define REFRAIN_ENGINE_GRAMMAR_TOKEN_SET_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kvcache/types.h"

namespace refrain::engine {

// A set of tokens of one vocabulary, a bit each. A value. Cannot fail.
class TokenSet {
 public:
  explicit TokenSet(size_t vocab_size) : vocab_size_(vocab_size), words_((vocab_size + 63) / 64) {}

  size_t vocab_size() const { return vocab_size_; }
  bool Has(kvcache::TokenId token) const {
    const auto i = kvcache::ToIndex(token);
    return i < vocab_size_ && (words_[i / 64] >> (i % 64) & 1) != 0;
  }
  void Add(kvcache::TokenId token) {  // of the vocabulary
    const auto i = kvcache::ToIndex(token);
    words_[i / 64] |= uint64_t{1} << (i % 64);
  }
  void AddAll(const TokenSet& other) {  // of the same vocabulary
    for (size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
  }
  void Clear() { words_.assign(words_.size(), 0); }
  size_t Count() const;
  // In ascending order.
  template <typename Visitor>
  void ForEach(const Visitor& visit) const {
    for (size_t i = 0; i < words_.size(); ++i) {
      for (uint64_t left = words_[i]; left != 0; left &= left - 1) {
        const auto bit = static_cast<size_t>(std::countr_zero(left));
        visit(kvcache::TokenId{static_cast<int32_t>(i * 64 + bit)});
      }
    }
  }
  std::span<const uint64_t> words() const { return words_; }  // bit i%64 of word i/64 is token i
  friend bool operator==(const TokenSet&, const TokenSet&) = default;

 private:
  size_t vocab_size_;
  std::vector<uint64_t> words_;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_TOKEN_SET_H_
