#ifndef REFRAIN_SERVER_OPENAI_CHOICE_TEXT_H_
#define REFRAIN_SERVER_OPENAI_CHOICE_TEXT_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/token_stream.h"
#include "server/openai/shown_text.h"
#include "server/openai/tool_call_parser.h"

namespace refrain::server::openai {

// What a client is told about one token.
struct TokenDetails {
  engine::TokenId token{};
  std::optional<float> logprob;  // none: the first token of a prompt
  std::vector<engine::TokenLogprob> top;
  int32_t rank = 0;  // with `logprob`: 1 = the most probable
  bool from_prompt = false;
  bool added_bos = false;  // engine::TokenEvent's
  bool shown = true;       // false: an end token of which the text shows nothing
};

TokenDetails DetailsOf(const engine::TokenEvent& event);

// A piece of a choice's output that can be shown. It says something, but for the last one, and
// where tokens are asked for.
struct TextPiece {
  std::string reasoning;  // what the model thought; in front of `text`
  std::string text;
  std::optional<ToolCallDelta> call;  // behind `text`
  std::vector<TokenDetails> tokens;   // empty unless asked for
  size_t thought_tokens = 0;          // so many of `tokens`, the first ones, are of the thought
  std::optional<engine::FinishReason> finish;
  bool called = false;                         // with `finish`: ShownText::called()
  bool thinks = false;                         // with `finish`: ShownText::thinks()
  std::optional<TokenDetails> end_token;       // that ended it
  std::optional<std::string> stop_string;      // that ended it
  std::vector<engine::TokenId> hidden_tokens;  // engine::ChoiceEnd's
  bool first = false;                          // of its choice
};

// Turns the token events of one choice into pieces of text, one per token where the token ends a
// character; tokens that show nothing yet (or may begin a tool call) join the next piece, up to 64
// where they are asked for. A token that tells of several calls, or of text behind one, is several
// pieces and a token of the last one. The prompt's tokens (echo) that arrive together are one
// piece. One consumer; the tokenizer outlives it.
class ChoiceText {
 public:
  struct Options {
    bool wants_tokens = false;     // TextPiece::tokens
    bool shows_end_token = false;  // as text, unless it is a control token that is not
    std::string_view prefix;       // a piece of its own, before the first one; outlives it
    ShownText::Options shown;
  };

  ChoiceText(const engine::Tokenizer* tokenizer, const Options& options);

  void Add(const engine::TokenEvent& event);
  // The end travels with the last token, but for an end token, which is a piece of its own.
  void End(const engine::ChoiceEnd& end);

  // ShownText's.
  void SetReasoningStart(engine::ReasoningStart start) { shown_.SetReasoningStart(start); }
  int32_t reasoning_tokens() const { return shown_.reasoning_tokens(); }
  bool thinks() const { return shown_.thinks(); }

  bool begun() const { return !first_; }
  // What has become ready, in order, until it is cleared; the pieces may be moved from.
  std::span<TextPiece> ready() { return ready_; }
  void ClearReady() { ready_.clear(); }

 private:
  void Take(ShownText::Output output);
  void Emit();

  ShownText shown_;
  const bool wants_tokens_;
  const bool shows_end_token_;
  const std::string_view prefix_;
  bool first_ = true;
  bool last_was_prompt_ = false;
  TextPiece open_;             // shows nothing yet
  int64_t listed_tokens_ = 0;  // those of pieces
  std::vector<TextPiece> ready_;
};

}  // namespace refrain::server::openai

#endif  // REFRAIN_SERVER_OPENAI_CHOICE_TEXT_H_
