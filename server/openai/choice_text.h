#ifndef REFRAIN_SERVER_OPENAI_CHOICE_TEXT_H_
#define REFRAIN_SERVER_OPENAI_CHOICE_TEXT_H_

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/text/detokenizer.h"
#include "engine/token_stream.h"

namespace refrain::server::openai {

// What a client is told about one token.
struct TokenDetails {
  engine::TokenId token{};
  std::optional<float> logprob;  // none: the first token of a prompt
  std::vector<engine::TokenLogprob> top;
};

// A piece of a choice's output that can be shown. `text` may be empty in the last piece only,
// unless log-probabilities are asked for.
struct TextPiece {
  std::string text;
  std::vector<TokenDetails> tokens;  // empty unless log-probabilities are asked for
  std::optional<engine::FinishReason> finish;
  bool first = false;  // of its choice
};

// Turns the token events of one choice into pieces of text, one per token where the token ends a
// character; tokens that show nothing yet join the next piece. The prompt's tokens (echo) that
// arrive together are one piece. One consumer; the tokenizer outlives it.
class ChoiceText {
 public:
  ChoiceText(const engine::Tokenizer* tokenizer, bool wants_tokens);

  void Add(const engine::TokenEvent& event);
  // The end travels with the last token, but for an end token, which is a piece of its own.
  void End(const engine::ChoiceEnd& end);

  // What has become ready, in order, until it is cleared; the pieces may be moved from.
  std::span<TextPiece> ready() { return ready_; }
  void ClearReady() { ready_.clear(); }

 private:
  void Emit();

  engine::Detokenizer detokenizer_;
  const engine::Tokenizer* tokenizer_;
  const bool wants_tokens_;
  bool first_ = true;
  bool last_was_prompt_ = false;
  TextPiece open_;  // shows nothing yet
  std::vector<TextPiece> ready_;
};

}  // namespace refrain::server::openai

#endif  // REFRAIN_SERVER_OPENAI_CHOICE_TEXT_H_
