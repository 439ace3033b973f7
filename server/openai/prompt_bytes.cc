#include "server/openai/prompt_bytes.h"

namespace refrain::server::openai {

std::string_view PromptBytes::Next(engine::TokenId token, bool added_bos) {
  if (added_bos) return {};
  std::string_view bytes = tokenizer_->TokenBytes(token);
  if (tokenizer_->adds_space_after_specials() && tokenizer_->FindSpecial(bytes) == token) {
    begins_text_ = true;
    return bytes;
  }
  if (begins_text_ && bytes.starts_with(' ') && !tokenizer_->IsControl(token)) {
    bytes.remove_prefix(1);
  }
  begins_text_ = false;
  return bytes;
}

}  // namespace refrain::server::openai
