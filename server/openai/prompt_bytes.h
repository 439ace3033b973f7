#ifndef REFRAIN_SERVER_OPENAI_PROMPT_BYTES_H_
#define REFRAIN_SERVER_OPENAI_PROMPT_BYTES_H_

#include <string_view>

#include "engine/text/tokenizer.h"
#include "engine/token_stream.h"

namespace refrain::server::openai {

// What the tokens of an echoed prompt show: the text as it was sent, its control tokens too,
// without what the tokenizer put there, a bos and the spaces before texts. One per choice, the
// prompt's tokens in order; one thread; the tokenizer outlives it. Cannot fail.
class PromptBytes {
 public:
  explicit PromptBytes(const engine::Tokenizer* tokenizer)
      : tokenizer_(tokenizer), begins_text_(tokenizer->adds_space_prefix()) {}

  // Possibly a part of a character. `added_bos`: engine::TokenEvent's.
  std::string_view Next(engine::TokenId token, bool added_bos);

 private:
  const engine::Tokenizer* tokenizer_;
  bool begins_text_;  // the tokenizer put a space before what comes next
};

}  // namespace refrain::server::openai

#endif  // REFRAIN_SERVER_OPENAI_PROMPT_BYTES_H_
