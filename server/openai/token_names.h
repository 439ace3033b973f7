#ifndef REFRAIN_SERVER_OPENAI_TOKEN_NAMES_H_
#define REFRAIN_SERVER_OPENAI_TOKEN_NAMES_H_

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "engine/text/tokenizer.h"
#include "server/openai/choice_text.h"

namespace refrain::server::openai {

// A token's bytes as a JSON string: as text where they are well-formed UTF-8, else
// "bytes:\xe2\x82", as OpenAI writes them.
std::string TokenText(std::string_view bytes);

// A log-probability as a number of JSON, which has no infinities.
void AppendLogprob(float logprob, std::string* out);

// Writes the log-probabilities of chats and responses: objects with the token's name and bytes. A
// value; the tokenizer outlives it.
class TokenNames {
 public:
  // `as_ids`: names are "token_id:5".
  TokenNames(const engine::Tokenizer* tokenizer, bool as_ids)
      : tokenizer_(tokenizer), as_ids_(as_ids) {}

  std::string NameOf(engine::TokenId token) const;
  // One object for each of the tokens that the text shows, with commas between: of `tokens`, and
  // of `end_token` if it is shown; nothing if there is none.
  void AppendList(std::span<const TokenDetails> tokens,
                  const std::optional<TokenDetails>& end_token, std::string* out) const;

 private:
  // Left open behind its bytes.
  void AppendToken(engine::TokenId token, float logprob, std::string* out) const;

  const engine::Tokenizer* tokenizer_;
  bool as_ids_;
};

}  // namespace refrain::server::openai

#endif  // REFRAIN_SERVER_OPENAI_TOKEN_NAMES_H_
