#ifndef REFRAIN_SERVER_OPENAI_SHOWN_TEXT_H_
#define REFRAIN_SERVER_OPENAI_SHOWN_TEXT_H_

#include <optional>
#include <string>
#include <string_view>

#include "engine/text/detokenizer.h"
#include "engine/text/reasoning_format.h"
#include "engine/text/tool_format.h"
#include "engine/token_stream.h"
#include "server/openai/prompt_bytes.h"
#include "server/openai/reasoning_parser.h"
#include "server/openai/tool_call_parser.h"

namespace refrain::server::openai {

// What is shown of the tokens of one choice: text in whole characters, what the model thought in
// front of it, and the tool calls that are taken out of it, behind the thought. How it is cut into
// messages is the caller's business. One thread; the tokenizer outlives it. Cannot fail.
class ShownText {
 public:
  struct Options {
    bool skip_special = true;  // control tokens are no text, but for those of a prompt
    // Calls in this format are taken out of the text.
    engine::ToolFormat tools = engine::ToolFormat::kNone;
    bool parallel_tool_calls = true;  // false: the first one only
    bool stream_tool_calls = false;   // ToolCallParser::Options::streams
    // A thought in this format is told apart from the text.
    engine::ReasoningFormat reasoning = engine::ReasoningFormat::kNone;
    bool include_reasoning = true;  // false: it is left out
  };
  struct Output : ToolCallParser::Output {
    std::string reasoning;  // in front of all of it
  };

  ShownText(const engine::Tokenizer* tokenizer, const Options& options);

  // Where the prompt left the model; at most once, before the first token. Else nothing is a
  // thought.
  void SetReasoningStart(engine::ReasoningStart start);

  // What can be shown now; possibly nothing. Of a prompt (echo) it is what was sent.
  Output Add(const engine::TokenEvent& event);
  // The same of an end token that is shown, which is not counted.
  Output AddEnd(engine::TokenId token) { return AddText({.token = token}); }
  // Of a text that stands in front of all tokens: the beginning of the message that they continue.
  Output ShowPrefix(std::string_view prefix) const;
  // Whether no part of a generated token is shown.
  bool Hides(engine::TokenId token) const { return skip_special_ && tokenizer_->IsControl(token); }
  // No token comes any more: what was held back.
  Output End();
  // Whether the model has called tools, and the last call has all of its arguments: one that was
  // cut in them is not to be run.
  bool called() const { return parser_.has_value() && parser_->told_whole_calls(); }
  // What comes next is of a thought, which has not ended.
  bool thinks() const;
  // The same, and that is left out.
  bool hides_thought() const { return !include_reasoning_ && thinks(); }
  // So many were generated that are not added: a stop string hides them.
  void CountTokens(size_t tokens);
  // Those of the thought, with its tags.
  int32_t reasoning_tokens() const;

 private:
  Output AddText(const engine::TokenEvent& event);
  Output Show(std::string text);
  void Tell(ReasoningParser::Output parsed, Output* output);
  void TellAnswer(std::string text, Output* output);
  std::string AddPrompt(const engine::TokenEvent& event);

  const engine::Tokenizer* tokenizer_;
  bool skip_special_;
  engine::ReasoningFormat reasoning_format_;
  bool include_reasoning_;
  engine::Detokenizer detokenizer_;
  PromptBytes prompt_bytes_;
  std::optional<ReasoningParser> reasoning_;
  bool amid_thought_ = false;    // the prompt ends with words of it
  int32_t tokens_in_front_ = 0;  // up to the end of the thought, if there is one
  std::optional<ToolCallParser> parser_;
};

}  // namespace refrain::server::openai

#endif  // REFRAIN_SERVER_OPENAI_SHOWN_TEXT_H_
