#ifndef REFRAIN_ENGINE_BAD_WORD_ENCODER_H_
#define REFRAIN_ENGINE_BAD_WORD_ENCODER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/recent_results.h"
#include "engine/shared_list.h"
#include "engine/text/tokenizer.h"

namespace refrain::engine {

// Makes the token sequences to ban of the words to ban (SamplingParams::bad_words). Every prompt of
// a call asks for the same list, so the sequences of the last few lists are kept. Any thread.
// Failure: the tokenizer's.
class BadWordEncoder {
 public:
  using Words = SharedList<std::string>;
  using Sequences = SharedList<std::vector<kvcache::TokenId>>;

  explicit BadWordEncoder(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {}

  // Of each word alone and behind a space; none of a word that is nothing but spaces. Calls with
  // copies of a list share one result.
  absl::StatusOr<Sequences> Encode(const Words& words) const;

 private:
  struct Key {
    Words words;
    friend bool operator==(const Key& a, const Key& b) { return a.words.IsCopyOf(b.words); }
  };

  absl::StatusOr<Sequences> EncodeAnew(const Words& words) const;

  const Tokenizer* tokenizer_;
  mutable RecentResults<Key, Sequences> kept_;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_BAD_WORD_ENCODER_H_
