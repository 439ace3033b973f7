#include "server/openai/text_offset.h"

#include <string_view>

#include "engine/text/utf8.h"

namespace refrain::server::openai {
namespace {

int64_t Characters(std::string_view text) {
  return static_cast<int64_t>(engine::CountUtf8Characters(text));
}

}  // namespace

int64_t TextOffset::Add(engine::TokenId token) {
  const std::string_view bytes = tokenizer_->TokenBytes(token);
  if (!tokenizer_->IsControl(token)) return AddText(bytes);
  return AddControl(skip_special_ ? std::string_view() : bytes);
}

int64_t TextOffset::AddPrompt(engine::TokenId token, bool added_bos) {
  const std::string_view bytes = prompt_bytes_.Next(token, added_bos);
  return tokenizer_->IsControl(token) ? AddControl(bytes) : AddText(bytes);
}

int64_t TextOffset::AddControl(std::string_view shown) {
  characters_ += Characters(detokenizer_.Flush());
  const int64_t begin = characters_;
  characters_ += Characters(shown);
  return begin;
}

int64_t TextOffset::AddText(std::string_view bytes) {
  if (bytes.empty()) return characters_;
  // By itself the first byte shows whether it goes on with what is held back or ends that.
  const int64_t released = Characters(detokenizer_.AppendBytes(bytes.substr(0, 1)));
  characters_ += released;
  const bool is_in_last = released > 0 && !detokenizer_.holds_bytes();
  const int64_t begin = characters_ - (is_in_last ? 1 : 0);
  characters_ += Characters(detokenizer_.AppendBytes(bytes.substr(1)));
  return begin;
}

}  // namespace refrain::server::openai
