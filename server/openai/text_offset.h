#ifndef REFRAIN_SERVER_OPENAI_TEXT_OFFSET_H_
#define REFRAIN_SERVER_OPENAI_TEXT_OFFSET_H_

#include <cstdint>

#include "engine/text/detokenizer.h"
#include "engine/text/tokenizer.h"
#include "engine/token_stream.h"

namespace refrain::server::openai {

// Where each token of one choice lies in the text that is shown, in characters (`text_offset`).
// Decodes the tokens once more: only the text as it is shown tells where ill-formed bytes have
// become U+FFFD. Knows nothing of stop strings. One consumer; the tokenizer outlives it.
class TextOffset {
 public:
  TextOffset(const engine::Tokenizer* tokenizer, engine::DetokenizerOptions options)
      : tokenizer_(tokenizer), detokenizer_(tokenizer, options) {}

  // Where the next token begins; one that goes on with a character lies where that begins.
  int64_t Add(engine::TokenId token);

 private:
  const engine::Tokenizer* tokenizer_;
  engine::Detokenizer detokenizer_;
  int64_t characters_ = 0;  // released by it
};

}  // namespace refrain::server::openai

#endif  // REFRAIN_SERVER_OPENAI_TEXT_OFFSET_H_
