#include "server/openai/shown_text.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace refrain::server::openai {

ShownText::ShownText(const engine::Tokenizer* tokenizer, const Options& options)
    : tokenizer_(tokenizer),
      skip_special_(options.skip_special),
      detokenizer_(tokenizer, {.skip_special = options.skip_special}),
      prompt_bytes_(tokenizer) {
  using engine::ToolFormat;
  if (options.tools != ToolFormat::kHermes && options.tools != ToolFormat::kLlama3) return;
  parser_.emplace(options.tools,
                  ToolCallParser::Options{.max_calls = options.parallel_tool_calls ? SIZE_MAX : 1,
                                          .streams = options.stream_tool_calls});
}

ToolCallParser::Output ShownText::Add(const engine::TokenEvent& event) {
  if (event.from_prompt) return Show(AddPrompt(event));
  const std::string_view bytes = tokenizer_->TokenBytes(event.token);
  // Of a control token that is not shown no part is, wherever a stop string begins or ends.
  if (event.shown_bytes.has_value() && Hides(event.token)) return Show(detokenizer_.Flush());
  if (event.shown_bytes.has_value()) {
    return Show(detokenizer_.AppendBytes(
        bytes.substr(0, static_cast<size_t>(std::max(0, *event.shown_bytes)))));
  }
  if (parser_.has_value() && tokenizer_->IsControl(event.token) &&
      ToolCallParser::IsMarker(bytes)) {
    return Show(detokenizer_.Flush() + std::string(bytes));
  }
  return Show(detokenizer_.Append(event.token));
}

std::string ShownText::AddPrompt(const engine::TokenEvent& event) {
  const std::string_view bytes = prompt_bytes_.Next(event.token, event.added_bos);
  if (!tokenizer_->IsControl(event.token)) return detokenizer_.AppendBytes(bytes);
  return detokenizer_.Flush().append(bytes);
}

ToolCallParser::Output ShownText::End() {
  ToolCallParser::Output output = Show(detokenizer_.Flush());
  if (!parser_.has_value()) return output;
  ToolCallParser::Output rest = parser_->Finish();
  output.text += rest.text;
  output.calls.insert(output.calls.end(), rest.calls.begin(), rest.calls.end());
  return output;
}

ToolCallParser::Output ShownText::Show(std::string text) {
  if (parser_.has_value()) return parser_->Add(text);
  return {.text = std::move(text), .calls = {}};
}

}  // namespace refrain::server::openai
