#include "server/openai/shown_text.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace refrain::server::openai {

ShownText::ShownText(const engine::Tokenizer* tokenizer, const Options& options)
    : tokenizer_(tokenizer),
      skip_special_(options.skip_special),
      reasoning_format_(options.reasoning),
      include_reasoning_(options.include_reasoning),
      detokenizer_(tokenizer, {.skip_special = options.skip_special}),
      prompt_bytes_(tokenizer) {
  using engine::ToolFormat;
  if (options.tools != ToolFormat::kHermes && options.tools != ToolFormat::kLlama3) return;
  parser_.emplace(options.tools,
                  ToolCallParser::Options{.max_calls = options.parallel_tool_calls ? SIZE_MAX : 1,
                                          .streams = options.stream_tool_calls});
}

void ShownText::SetReasoningStart(engine::ReasoningStart start) {
  const bool may_think = reasoning_format_ != engine::ReasoningFormat::kNone;
  if (may_think && start != engine::ReasoningStart::kBehind) reasoning_.emplace(start);
  amid_thought_ = start.place == engine::ReasoningStart::kAmid;
}

ShownText::Output ShownText::Add(const engine::TokenEvent& event) {
  if (!event.from_prompt) CountTokens(1);
  return AddText(event);
}

void ShownText::CountTokens(size_t tokens) {
  if (!reasoning_.has_value() || reasoning_->is_behind()) return;
  tokens_in_front_ += static_cast<int32_t>(tokens);
}

int32_t ShownText::reasoning_tokens() const {
  return reasoning_.has_value() && reasoning_->has_thought() ? tokens_in_front_ : 0;
}

bool ShownText::thinks() const {
  return reasoning_.has_value() && reasoning_->has_thought() && !reasoning_->is_behind();
}

ShownText::Output ShownText::AddText(const engine::TokenEvent& event) {
  if (event.from_prompt) return Show(AddPrompt(event));
  const std::string_view bytes = tokenizer_->TokenBytes(event.token);
  // Of a control token that is not shown no part is, wherever a stop string begins or ends.
  if (event.shown_bytes.has_value() && Hides(event.token)) return Show(detokenizer_.Flush());
  if (event.shown_bytes.has_value()) {
    return Show(detokenizer_.AppendBytes(
        bytes.substr(0, static_cast<size_t>(std::max(0, *event.shown_bytes)))));
  }
  if ((parser_.has_value() || reasoning_.has_value()) && tokenizer_->IsControl(event.token)) {
    const bool is_tag = reasoning_.has_value() && reasoning_->IsTag(bytes);
    const bool is_marker = parser_.has_value() && ToolCallParser::IsMarker(bytes);
    if (is_tag || is_marker) return Show(detokenizer_.Flush() + std::string(bytes));
  }
  return Show(detokenizer_.Append(event.token));
}

std::string ShownText::AddPrompt(const engine::TokenEvent& event) {
  const std::string_view bytes = prompt_bytes_.Next(event.token, event.added_bos);
  if (!tokenizer_->IsControl(event.token)) return detokenizer_.AppendBytes(bytes);
  return detokenizer_.Flush().append(bytes);
}

ShownText::Output ShownText::ShowPrefix(std::string_view prefix) const {
  Output output;
  if (reasoning_format_ == engine::ReasoningFormat::kNone) {
    output.text = prefix;
    return output;
  }
  using engine::ReasoningStart;
  // Its own tag is not needed where the template has opened the thought.
  ReasoningParser parser(amid_thought_ ? ReasoningStart::kInside : ReasoningStart::kBefore);
  ReasoningParser::Output begun = parser.Add(std::string(prefix));
  const ReasoningParser::Output rest = parser.Finish();
  if (include_reasoning_) output.reasoning = begun.reasoning.append(rest.reasoning);
  output.text = begun.answer.append(rest.answer);
  return output;
}

ShownText::Output ShownText::End() {
  Output output = Show(detokenizer_.Flush());
  if (reasoning_.has_value()) Tell(reasoning_->Finish(), &output);
  if (!parser_.has_value()) return output;
  output.Append(parser_->Finish());
  return output;
}

ShownText::Output ShownText::Show(std::string text) {
  Output output;
  if (reasoning_.has_value()) {
    Tell(reasoning_->Add(std::move(text)), &output);
  } else {
    TellAnswer(std::move(text), &output);
  }
  return output;
}

void ShownText::Tell(ReasoningParser::Output parsed, Output* output) {
  if (include_reasoning_) output->reasoning += parsed.reasoning;
  TellAnswer(std::move(parsed.answer), output);
}

void ShownText::TellAnswer(std::string text, Output* output) {
  if (!parser_.has_value()) {
    output->text = output->text.empty() ? std::move(text) : output->text + text;
    return;
  }
  output->Append(parser_->Add(text));
}

}  // namespace refrain::server::openai
