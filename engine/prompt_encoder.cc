#include "engine/prompt_encoder.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "engine/context_length.h"
#include "engine/turn_splicer.h"

namespace refrain::engine {
namespace {

std::string_view WithoutSpaceBehind(std::string_view text) {
  return text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
}

// The last message's content, if it is text.
std::optional<std::string_view> FinalContent(const ChatPrompt& chat) {
  const jinja::Value& messages = chat.input.messages;
  if (!messages.is_list() || messages.AsList().empty()) return std::nullopt;
  const jinja::Value& last = messages.AsList().back();
  if (!last.is_map()) return std::nullopt;
  const jinja::Value* content = last.AsMap().FindOrNull("content");
  if (content == nullptr || !content->is_string()) return std::nullopt;
  return content->AsString();
}

// Stands behind a text that says nothing, of which no template shows the place.
constexpr std::string_view kPlaceOfText = "<place of the text>";

void MarkPlaceOfText(std::string spaces, ChatPrompt* chat) {
  jinja::Value::List messages = chat->input.messages.AsList();
  jinja::Map last = messages.back().AsMap();
  last.Set("content", jinja::Value::String(spaces.append(kPlaceOfText)));
  messages.back() = jinja::Value::MakeMap(std::move(last));
  chat->input.messages = jinja::Value::MakeList(std::move(messages));
}

// What the template puts behind the last message's content would end the message.
absl::Status CutBehindFinalMessage(std::string_view content, RenderedChat* rendered) {
  if (!rendered->content_spans.empty()) {
    const TextSpan& last = rendered->content_spans.back();
    // A template may trim the content, or show the end of it only.
    const std::string_view text = std::string_view(rendered->text).substr(0, last.end_byte);
    const std::string_view shown = WithoutSpaceBehind(text.substr(last.begin_byte));
    if (WithoutSpaceBehind(text).ends_with(content) ||
        (!shown.empty() && content.ends_with(shown))) {
      rendered->text.resize(last.end_byte);
      return absl::OkStatus();
    }
  }
  return absl::InvalidArgumentError(
      "continue_final_message: the chat template does not end with the last message's text");
}

// The same where that stands for a text that says nothing.
absl::Status CutAtPlaceOfText(RenderedChat* rendered) {
  absl::Status status = CutBehindFinalMessage(kPlaceOfText, rendered);
  if (!status.ok()) return status;
  if (!rendered->text.ends_with(kPlaceOfText)) {
    return absl::InvalidArgumentError(
        "continue_final_message: the chat template does not show where the last message's text is");
  }
  rendered->text.resize(rendered->text.size() - kPlaceOfText.size());
  TextSpan& last = rendered->content_spans.back();
  last.end_byte = rendered->text.size();
  if (last.begin_byte >= last.end_byte) rendered->content_spans.pop_back();
  return absl::OkStatus();
}

std::vector<TokenId> EndsOfGeneration(const Tokenizer& tokenizer) {
  std::vector<TokenId> ends;
  for (size_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const TokenId token{static_cast<int32_t>(id)};
    if (tokenizer.IsEndOfGeneration(token)) ends.push_back(token);
  }
  return ends;
}

absl::Status OfPrompt(const absl::Status& status) {
  if (!absl::IsInvalidArgument(status)) return status;
  return absl::Status(status.code(), absl::StrCat("the prompt cannot be tokenized: ",
                                                  std::string(status.message())));
}

}  // namespace

PromptEncoder::PromptEncoder(const Tokenizer* tokenizer, const ChatTemplate* chat_template,
                             const EncodeLimits& limits, TurnMemory* turns)
    : tokenizer_(tokenizer),
      chat_template_(chat_template),
      limits_(limits),
      turns_(turns),
      bad_words_(tokenizer),
      stop_rules_(EndsOfGeneration(*tokenizer)) {}

absl::StatusOr<std::optional<PromptText>> PromptEncoder::Render(EncodedRequest* request) const {
  Request& in = request->request;
  if (std::holds_alternative<TokenPrompt>(in.prompt)) return std::nullopt;
  absl::StatusOr<PromptText> text = RenderText(&in);
  if (!text.ok()) return text.status();
  if (!request->only_tokenize && !in.keep_prompt_tokens.has_value()) {
    if (absl::Status status = CheckText(*text); !status.ok()) return status;
  }
  return *std::move(text);
}

absl::StatusOr<PromptText> PromptEncoder::RenderText(Request* request) const {
  if (auto* text = std::get_if<TextPrompt>(&request->prompt)) {
    // Whoever sends raw text applies the template himself: control tokens count.
    PromptText prompt{.text = std::move(text->text), .parse_special = true};
    if (!text->add_special_tokens) prompt.add_bos = false;
    return prompt;
  }
  ChatPrompt& chat = std::get<ChatPrompt>(request->prompt);
  if (chat_template_ == nullptr) {
    return absl::FailedPreconditionError(
        "the model has no chat template: use completions with a text prompt");
  }
  std::string continued;
  if (chat.continue_final_message) {
    const std::optional<std::string_view> content = FinalContent(chat);
    if (!content.has_value()) {
      return absl::InvalidArgumentError(
          "continue_final_message: the last message has no text that could be continued");
    }
    continued = WithoutSpaceBehind(*content);
    if (continued.empty()) MarkPlaceOfText(std::string(*content), &chat);
  }
  absl::StatusOr<RenderedChat> rendered = chat_template_->Render(chat.input);
  if (!rendered.ok()) return rendered.status();
  if (chat.continue_final_message) {
    absl::Status status = continued.empty() ? CutAtPlaceOfText(&*rendered)
                                            : CutBehindFinalMessage(continued, &*rendered);
    if (!status.ok()) return status;
  }
  const EncodeOptions options = SafeEncodeOptions(*rendered);
  PromptText prompt{.parse_special = options.parse_special, .add_bos = options.add_bos};
  prompt.plain_spans.assign(options.plain_spans.begin(), options.plain_spans.end());
  prompt.text = std::move(rendered->text);
  chat.input = {};
  return prompt;
}

absl::Status PromptEncoder::Tokenize(const std::optional<PromptText>& text, EncodedRequest* request,
                                     EncodePace* pace) const {
  Request& in = request->request;
  if (text.has_value()) {
    if (absl::Status status = EncodeText(*text, pace, request); !status.ok()) return status;
  } else {
    request->prompt = std::move(std::get<TokenPrompt>(in.prompt).ids);
  }
  in.prompt = TokenPrompt{};
  Truncate(request);
  auto banned = bad_words_.Encode(in.sampling.bad_words);
  if (!banned.ok()) return banned.status();
  if (!banned->empty()) in.sampling.banned_sequences = *std::move(banned);
  const int64_t vocab_size =
      limits_.vocab_size > 0 ? limits_.vocab_size : static_cast<int64_t>(tokenizer_->vocab_size());
  for (const TokenId id : request->prompt) {
    if (static_cast<int64_t>(id) < 0 || static_cast<int64_t>(id) >= vocab_size) {
      return absl::InvalidArgumentError(absl::StrCat(
          "prompt has token id ", static_cast<int32_t>(id), ", the vocabulary has ", vocab_size));
    }
  }
  if (absl::Status status = CheckSizes(in, request->prompt.size()); !status.ok()) return status;
  const int64_t left = limits_.max_context_tokens - static_cast<int64_t>(request->prompt.size());
  request->stop_rules =
      stop_rules_.Make(in.stop, static_cast<int32_t>(std::min<int64_t>(in.stop.max_tokens, left)));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TokenId>> PromptEncoder::TokenizeText(const PromptText& text,
                                                                 EncodePace* pace) const {
  auto ids = tokenizer_->Encode(text.text, {.parse_special = text.parse_special,
                                            .add_bos = text.add_bos,
                                            .plain_spans = text.plain_spans,
                                            .pace = pace});
  if (!ids.ok()) return OfPrompt(ids.status());
  return ids;
}

// What is left is no turn of its conversation any more.
void PromptEncoder::Truncate(EncodedRequest* request) {
  const auto& kept = request->request.keep_prompt_tokens;
  std::vector<TokenId>& prompt = request->prompt;
  if (!kept.has_value() || prompt.size() <= static_cast<size_t>(*kept)) return;
  prompt.erase(prompt.begin(), prompt.end() - *kept);
  request->truncated = true;
  request->turn.reset();
}

absl::Status PromptEncoder::EncodeText(const PromptText& text, EncodePace* pace,
                                       EncodedRequest* request) const {
  const Request& in = request->request;
  if (turns_ == nullptr || !std::holds_alternative<ChatPrompt>(in.prompt)) {
    absl::StatusOr<std::vector<TokenId>> ids = TokenizeText(text, pace);
    if (!ids.ok()) return ids.status();
    request->prompt = *std::move(ids);
    return absl::OkStatus();
  }
  const EncodeOptions options{.parse_special = text.parse_special,
                              .add_bos = text.add_bos,
                              .plain_spans = text.plain_spans,
                              .pace = pace};
  absl::StatusOr<SplicedPrompt> spliced =
      TurnSplicer(tokenizer_, turns_)
          .Encode(text.text, options, TurnScope(in.tenant, in.cache_salt));
  if (!spliced.ok()) return OfPrompt(spliced.status());
  request->prompt = std::move(spliced->ids);
  request->turn = std::move(spliced->key);
  return absl::OkStatus();
}

absl::Status PromptEncoder::CheckText(const PromptText& text) const {
  const size_t fewest_tokens = tokenizer_->FewestTokens(text.text);
  if (fewest_tokens <= static_cast<size_t>(limits_.max_context_tokens)) return absl::OkStatus();
  return ContextLengthError(absl::StrCat("at least ", fewest_tokens), limits_.max_context_tokens);
}

absl::Status PromptEncoder::CheckSizes(const Request& request, size_t prompt_tokens) const {
  if (prompt_tokens == 0) return absl::InvalidArgumentError("the prompt is empty: 0 tokens");
  // Not an answer without a token: clients drop old turns when they are refused.
  const auto context = static_cast<size_t>(limits_.max_context_tokens);
  if (prompt_tokens > context || (prompt_tokens == context && request.stop.max_tokens > 0)) {
    return ContextLengthError(std::to_string(prompt_tokens), limits_.max_context_tokens,
                              prompt_tokens == context ? ", which leave none for an answer" : "");
  }
  if (prompt_tokens + static_cast<size_t>(std::max(request.stop.min_tokens, 0)) > context) {
    return ContextLengthError(
        std::to_string(prompt_tokens), limits_.max_context_tokens,
        absl::StrCat(", which leave no room for min_tokens, ", request.stop.min_tokens));
  }
  const int64_t echoed = static_cast<int64_t>(prompt_tokens) * request.n;
  if (request.echo && request.n > 1 && echoed > Request::kMaxEchoedTokens) {
    return absl::InvalidArgumentError(absl::StrCat(
        "echo: the prompt's ", prompt_tokens, " tokens in each of n = ", request.n, " choices are ",
        echoed, ", at most ", Request::kMaxEchoedTokens, " are repeated"));
  }
  const int64_t longest = std::min<int64_t>(
      static_cast<int64_t>(prompt_tokens) + request.stop.max_tokens, limits_.max_context_tokens);
  if (longest > limits_.kv_capacity_tokens) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the prompt's ", prompt_tokens, " tokens and max_tokens ", request.stop.max_tokens,
        " make up to ", longest, " tokens, the KV cache holds ", limits_.kv_capacity_tokens));
  }
  return absl::OkStatus();
}

}  // namespace refrain::engine
