#include "server/openai/text_offset.h"

#include <string>
#include <string_view>

#include "engine/text/utf8.h"

namespace refrain::server::openai {
namespace {

int64_t Characters(const std::string& text) {
  return static_cast<int64_t>(engine::CountUtf8Characters(text));
}

}  // namespace

int64_t TextOffset::Add(engine::TokenId token) {
  if (tokenizer_->IsControl(token)) {
    characters_ += Characters(detokenizer_.Flush());
    const int64_t begin = characters_;
    characters_ += Characters(detokenizer_.Append(token));
    return begin;
  }
  const std::string_view bytes = tokenizer_->TokenBytes(token);
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
