#ifndef REFRAIN_ENGINE_BAD_WORD_ENCODER_H_
#define REFRAIN_ENGINE_BAD_WORD_ENCODER_H_

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/annotated_mutex.h"
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
  static constexpr size_t kKeptLists = 8;
  struct Encoded {
    Words words;  // held, so that no other list comes to lie at its address
    Sequences sequences;
  };

  absl::StatusOr<Sequences> EncodeAnew(const Words& words) const;

  const Tokenizer* tokenizer_;
  mutable Mutex mutex_;
  mutable std::array<Encoded, kKeptLists> kept_ REFRAIN_GUARDED_BY(mutex_);
  mutable size_t next_ REFRAIN_GUARDED_BY(mutex_) = 0;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_BAD_WORD_ENCODER_H_
