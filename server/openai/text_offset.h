#ifndef REFRAIN_SERVER_OPENAI_TEXT_OFFSET_H_
#define REFRAIN_SERVER_OPENAI_TEXT_OFFSET_H_

#include <cstdint>
#include <string_view>

#include "engine/text/detokenizer.h"
#include "engine/text/tokenizer.h"
#include "engine/token_stream.h"
#include "server/openai/prompt_bytes.h"

namespace refrain::server::openai {

// Where each token of one choice lies in the text that is shown, in characters (`text_offset`).
// Decodes the tokens once more: only the text as it is shown tells where ill-formed bytes have
// become U+FFFD. Knows nothing of stop strings. One consumer; the tokenizer outlives it.
class TextOffset {
 public:
  TextOffset(const engine::Tokenizer* tokenizer, bool skip_special)
      : tokenizer_(tokenizer),
        skip_special_(skip_special),
        detokenizer_(tokenizer),
        prompt_bytes_(tokenizer) {}

  // Where the next token begins; one that goes on with a character lies where that begins.
  int64_t Add(engine::TokenId token);
  // The same of an echoed prompt's; `added_bos`: engine::TokenEvent's.
  int64_t AddPrompt(engine::TokenId token, bool added_bos);

 private:
  int64_t AddControl(std::string_view shown);
  int64_t AddText(std::string_view bytes);

  const engine::Tokenizer* tokenizer_;
  bool skip_special_;
  engine::Detokenizer detokenizer_;
  PromptBytes prompt_bytes_;
  int64_t characters_ = 0;  // released by it
};

}  // namespace refrain::server::openai

#endif  // REFRAIN_SERVER_OPENAI_TEXT_OFFSET_H_
