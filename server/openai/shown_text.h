#ifndef REFRAIN_SERVER_OPENAI_SHOWN_TEXT_H_
#define REFRAIN_SERVER_OPENAI_SHOWN_TEXT_H_

#include <optional>
#include <string>

#include "engine/text/detokenizer.h"
#include "engine/text/tool_format.h"
#include "engine/token_stream.h"
#include "server/openai/prompt_bytes.h"
#include "server/openai/tool_call_parser.h"

namespace refrain::server::openai {

// What is shown of the tokens of one choice: text in whole characters, and the tool calls that are
// taken out of it. How it is cut into messages is the caller's business. One thread; the tokenizer
// outlives it. Cannot fail.
class ShownText {
 public:
  struct Options {
    bool skip_special = true;  // control tokens are no text, but for those of a prompt
    // Calls in this format are taken out of the text.
    engine::ToolFormat tools = engine::ToolFormat::kNone;
    bool parallel_tool_calls = true;  // false: the first one only
    bool stream_tool_calls = false;   // ToolCallParser::Options::streams
  };

  ShownText(const engine::Tokenizer* tokenizer, const Options& options);

  // What can be shown now; possibly nothing. Of a prompt (echo) it is what was sent.
  ToolCallParser::Output Add(const engine::TokenEvent& event);
  // Whether no part of a generated token is shown.
  bool Hides(engine::TokenId token) const { return skip_special_ && tokenizer_->IsControl(token); }
  // No token comes any more: what was held back.
  ToolCallParser::Output End();
  // Whether the model has called tools, and the last call has all of its arguments: one that was
  // cut in them is not to be run.
  bool called() const { return parser_.has_value() && parser_->told_whole_calls(); }

 private:
  ToolCallParser::Output Show(std::string text);
  std::string AddPrompt(const engine::TokenEvent& event);

  const engine::Tokenizer* tokenizer_;
  bool skip_special_;
  engine::Detokenizer detokenizer_;
  PromptBytes prompt_bytes_;
  std::optional<ToolCallParser> parser_;
};

}  // namespace refrain::server::openai

#endif  // REFRAIN_SERVER_OPENAI_SHOWN_TEXT_H_
