#ifndef REFRAIN_ENGINE_TEXT_DETOKENIZER_H_
#define REFRAIN_ENGINE_TEXT_DETOKENIZER_H_

#include <string>
#include <string_view>

#include "engine/text/tokenizer.h"
#include "kvcache/types.h"

namespace refrain::engine {

struct DetokenizerOptions {
  bool skip_special = true;  // control tokens produce no text
  // Drop one space at the very start: undoes the space prefix of a SentencePiece tokenizer when a
  // whole text, not a continuation, is decoded.
  bool drop_leading_space = false;
};

// Token ids of one stream to UTF-8 text, a piece per token.
//
// Releases complete characters only; the bytes of an unfinished one are held back. An ill-formed
// part becomes U+FFFD (one per maximal subpart) as soon as it is known to be ill-formed; a control
// token ends a character. The concatenation of all pieces and of `Flush` is the decoded text.
// Does not look for stop strings. One object per stream, used by one thread at a time; the
// tokenizer outlives it. Cannot fail: an id outside of the vocabulary has no text.
class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer* tokenizer, DetokenizerOptions options = {});

  // Text that may be released after this token.
  std::string Append(kvcache::TokenId id);

  // The same for bytes that are not a token (a stop string's cut token).
  std::string AppendBytes(std::string_view bytes);

  // The held back bytes, as U+FFFD. The detokenizer is then as new, except for the leading space.
  std::string Flush();

  // Whether bytes are held back.
  bool holds_bytes() const { return !held_.empty(); }

 private:
  void Release(std::string_view bytes, std::string* out);

  // Two of the three bytes of an encoded surrogate: ill-formed already, but held until the third
  // has come, as Python's incremental decoder does, so that all of it is released in one piece.
  static bool BeginsSurrogate(std::string_view bytes);

  const Tokenizer* tokenizer_;
  DetokenizerOptions options_;
  bool at_start_ = true;
  std::string held_;  // an unfinished character, at most 3 bytes
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TEXT_DETOKENIZER_H_
