#include "engine/prompt_encoder.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "engine/chat_prompt.h"
#include "engine/context_length.h"
#include "engine/token_stream.h"
#include "engine/turn_splicer.h"

namespace refrain::engine {
namespace {

std::vector<TokenId> EndsOfGeneration(const Tokenizer& tokenizer) {
  std::vector<TokenId> ends;
  for (size_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const TokenId token{static_cast<int32_t>(id)};
    if (tokenizer.IsEndOfGeneration(token)) ends.push_back(token);
  }
  return ends;
}

// Whose prompts find one another's turns and stretches: also where keys share the KV cache, each
// its own only. Ids that were generated for one could be chosen (allowed_token_ids) to spell what
// others are answered in many more tokens; and texts are known here that never came into the cache.
std::string ScopeOf(const Request& request) {
  return TurnScope(request.tenant, request.cache_salt);
}

struct MemoOfScope {
  StretchMemo* memo = nullptr;
  std::string_view scope;
};

EncodeOptions OptionsFor(const PromptText& text, EncodePace* pace, const MemoOfScope& memo = {}) {
  return {.parse_special = text.parse_special,
          .add_bos = text.add_bos,
          .plain_spans = text.plain_spans,
          .pace = pace,
          .memo = memo.memo,
          .memo_scope = memo.scope};
}

// No limit of the front ends sees what is held until the best are known: 128 sequences as long as a
// large context, with their log-probabilities, are gigabytes.
absl::Status CheckHeldBytes(const Request& request, int64_t max_tokens) {
  if (!request.picks_best()) return absl::OkStatus();
  constexpr int64_t kAllocation = 16;
  constexpr int64_t kLogprob = sizeof(TokenLogprob);
  constexpr int64_t kMiB = int64_t{1} << 20;
  const int64_t top = request.logprobs.top.value_or(0);
  const int64_t token_bytes =
      static_cast<int64_t>(sizeof(TokenEvent)) + (top > 0 ? kAllocation + top * kLogprob : 0);
  const int64_t bytes = request.sequences() * max_tokens * token_bytes;
  if (bytes <= Request::kMaxHeldBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      request.best_of.has_value() ? "best_of" : "n", ": ", request.sequences(),
      " sequences of up to ", max_tokens, " tokens with ", top, " log-probabilities each are ",
      bytes / kMiB, " MiB, at most ", Request::kMaxHeldBytes / kMiB,
      " MiB are held until the best are known: ask for fewer, or a lower max_tokens"));
}

// Ids come in vectors that grew by doubling, or were a thousand times as long before they were
// truncated; and the request may wait for long with them.
void FreeUnused(std::vector<TokenId>* ids) {
  if (ids->capacity() - ids->size() > ids->size() / 5) ids->shrink_to_fit();
}

// Nothing is generated of the others.
bool WantsConstraint(const EncodedRequest& request) {
  return request.request.format != nullptr && request.constraint == nullptr &&
         !request.only_tokenize && request.request.stop.max_tokens > 0;
}

absl::Status OfPrompt(const absl::Status& status) {
  if (!absl::IsInvalidArgument(status)) return status;
  return absl::Status(status.code(), absl::StrCat("the prompt cannot be tokenized: ",
                                                  std::string(status.message())));
}

}  // namespace

PromptEncoder::PromptEncoder(const Tokenizer* tokenizer, const ChatTemplate* chat_template,
                             const EncodeLimits& limits, TurnMemory* turns,
                             OutputConstrainer* constrainer)
    : tokenizer_(tokenizer),
      chat_template_(chat_template),
      limits_(limits),
      turns_(turns),
      constrainer_(constrainer),
      ends_(EndsOfGeneration(*tokenizer)),
      bad_words_(tokenizer),
      thought_closer_(std::make_shared<ThoughtCloser>(tokenizer)),
      stop_rules_({ends_.begin(), ends_.end()}) {}

OutputPlace PromptEncoder::PlaceOf(const std::optional<PromptText>& text) const {
  return {.reasoning = text.has_value() ? text->reasoning : ReasoningStart::kBehind,
          .tools = chat_template_ == nullptr ? ToolFormat::kNone : chat_template_->tool_format()};
}

bool PromptEncoder::FindConstraint(const std::optional<PromptText>& text,
                                   EncodedRequest* request) const {
  if (!WantsConstraint(*request) || constrainer_ == nullptr) return true;
  std::optional<OutputConstrainer::Made> made =
      constrainer_->FindOrNone(*request->request.format, PlaceOf(text));
  if (!made.has_value()) return false;
  SetConstraint(*std::move(made), request);
  return true;
}

absl::Status PromptEncoder::Constrain(const std::optional<PromptText>& text,
                                      EncodedRequest* request, EncodePace* pace) const {
  if (!WantsConstraint(*request)) return absl::OkStatus();
  const Request& in = request->request;
  if (constrainer_ == nullptr) {
    return absl::UnimplementedError(absl::StrCat(in.format->field, " is not supported"));
  }
  absl::StatusOr<OutputConstrainer::Made> made =
      constrainer_->Make(*in.format, PlaceOf(text), in.tenant, pace);
  if (!made.ok()) return made.status();
  SetConstraint(*std::move(made), request);
  return absl::OkStatus();
}

void PromptEncoder::SetConstraint(OutputConstrainer::Made made, EncodedRequest* request) const {
  auto constraint = std::make_shared<OutputConstraint>();
  const TokenTrie& trie = made.masks->trie();
  const StopParams& stop = request->request.stop;
  // Where they are no ends they would be text.
  std::vector<TokenId> ends;
  if (!stop.ignore_eos) ends.assign(ends_.begin(), ends_.end());
  for (const TokenId id : stop.stop_token_ids) {
    if (trie.BytesOf(id).empty()) ends.push_back(id);
  }
  constraint->grammar = std::move(made.grammar);
  constraint->masks = std::move(made.masks);
  constraint->ends = std::move(ends);
  request->constraint = std::move(constraint);
}

// Who asks for it says that the model thinks: it counts whether or not anybody tells thoughts
// apart. But a form knows of those alone that are told apart, and has none elsewhere.
absl::Status PromptEncoder::LimitThought(const std::optional<PromptText>& text,
                                         EncodedRequest* request) const {
  SamplingParams& sampling = request->request.sampling;
  if (!sampling.thinking_budget_tokens.has_value()) return absl::OkStatus();
  ReasoningStart start = PlaceOf(text).reasoning;
  if (request->request.format == nullptr) {
    start = text.has_value() ? text->by_tags : ReasoningStartOf(SpelledEnd(request->prompt), 0);
  }
  if (start == ReasoningStart::kBehind) return absl::OkStatus();
  if (!thought_closer_->can_close()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "thinking_token_budget is ", *sampling.thinking_budget_tokens,
        ", must be absent: the model's vocabulary has no tokens for ", std::string(kThinkClose)));
  }
  sampling.thinking_limit = std::make_shared<ThinkingLimit>(
      ThinkingLimit{.closer = thought_closer_,
                    .start = start,
                    .budget_tokens = *sampling.thinking_budget_tokens});
  return absl::OkStatus();
}

std::string PromptEncoder::SpelledEnd(std::span<const TokenId> ids) const {
  const auto most = static_cast<size_t>(limits_.max_context_tokens);
  std::string text;
  for (const TokenId id : ids.last(std::min(ids.size(), most))) {
    text.append(tokenizer_->TokenBytes(id));
  }
  return text;
}

bool PromptEncoder::IsLongToRender(const Request& request) {
  constexpr size_t kMany = 1024;  // some 6 us each
  const auto* chat = std::get_if<ChatPrompt>(&request.prompt);
  if (chat == nullptr) return false;
  size_t items = 0;
  for (const jinja::Value* list : {&chat->input.messages, &chat->input.tools}) {
    if (list->is_list()) items += list->AsList().size();
  }
  return items > kMany;
}

absl::StatusOr<std::optional<PromptText>> PromptEncoder::Render(EncodedRequest* request,
                                                                EncodePace* pace) const {
  Request& in = request->request;
  if (std::holds_alternative<TokenPrompt>(in.prompt)) return std::nullopt;
  if (const auto* chat = std::get_if<ChatPrompt>(&in.prompt)) {
    request->answers = {.is_turn = true,
                        .calls = chat->may_call_tools && chat_template_ != nullptr
                                     ? chat_template_->tool_format()
                                     : ToolFormat::kNone};
  }
  absl::StatusOr<PromptText> text = RenderText(&in, pace);
  if (!text.ok()) return text.status();
  request->answers.reasoning = text->reasoning;
  if (request->stream != nullptr) request->stream->SetReasoningStart(text->reasoning);
  if (!request->only_tokenize && !in.keep_prompt_tokens.has_value()) {
    if (absl::Status status = CheckText(*text); !status.ok()) return status;
  }
  return *std::move(text);
}

absl::StatusOr<PromptText> PromptEncoder::RenderText(Request* request, EncodePace* pace) const {
  if (auto* text = std::get_if<TextPrompt>(&request->prompt)) {
    // Whoever sends raw text applies the template himself: control tokens count.
    PromptText prompt{.text = std::move(text->text),
                      .parse_special = true,
                      .plain_spans = std::move(text->plain_spans)};
    if (!text->add_special_tokens) prompt.add_bos = false;
    if (request->sampling.thinking_budget_tokens.has_value()) {
      prompt.by_tags = ReasoningStartOf(prompt.text, 0);
    }
    return prompt;
  }
  ChatPrompt& chat = std::get<ChatPrompt>(request->prompt);
  if (chat_template_ == nullptr) {
    return absl::FailedPreconditionError(
        "the model has no chat template: use completions with a text prompt");
  }
  absl::StatusOr<RenderedChat> rendered =
      RenderChatPrompt(*chat_template_, std::exchange(chat, {}), pace);
  if (!rendered.ok()) return rendered.status();
  const EncodeOptions options = SafeEncodeOptions(*rendered);
  PromptText prompt{.parse_special = options.parse_special, .add_bos = options.add_bos};
  prompt.plain_spans.assign(options.plain_spans.begin(), options.plain_spans.end());
  prompt.reasoning = rendered->reasoning;
  prompt.by_tags = rendered->by_tags;
  prompt.text = std::move(rendered->text);
  return prompt;
}

absl::Status PromptEncoder::Tokenize(const std::optional<PromptText>& text, EncodedRequest* request,
                                     EncodePace* pace) const {
  Request& in = request->request;
  if (absl::Status status = Constrain(text, request, pace); !status.ok()) return status;
  if (text.has_value()) {
    if (absl::Status status = EncodeText(*text, pace, request); !status.ok()) return status;
  } else {
    request->prompt = std::move(std::get<TokenPrompt>(in.prompt).ids);
  }
  in.prompt = TokenPrompt{};
  if (absl::Status status = LimitThought(text, request); !status.ok()) return status;
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
  FreeUnused(&request->prompt);
  request->stop_rules =
      stop_rules_.Make(in.stop, static_cast<int32_t>(std::min<int64_t>(in.stop.max_tokens, left)));
  return absl::OkStatus();
}

size_t PromptEncoder::BytesToTokenize(const PromptText& text, const EncodedRequest& request) const {
  if (request.only_tokenize) return text.text.size();
  const std::string scope = ScopeOf(request.request);
  return tokenizer_->BytesToEncode(text.text, OptionsFor(text, nullptr, {&stretches_, scope}));
}

absl::StatusOr<std::vector<TokenId>> PromptEncoder::TokenizeText(const PromptText& text,
                                                                 EncodePace* pace) const {
  auto ids = tokenizer_->Encode(text.text, OptionsFor(text, pace));
  if (!ids.ok()) return OfPrompt(ids.status());
  return ids;
}

// A bos that the tokenizer put before the text stays, and counts, as with Hugging Face's
// tokenizers: models that always saw one need it. What is left is no turn of its conversation any
// more.
void PromptEncoder::Truncate(EncodedRequest* request) {
  const auto& kept = request->request.keep_prompt_tokens;
  std::vector<TokenId>& prompt = request->prompt;
  if (!kept.has_value() || prompt.size() <= static_cast<size_t>(*kept)) return;
  const int32_t in_front = request->added_bos ? 1 : 0;
  prompt.erase(prompt.begin() + in_front, prompt.end() - (*kept - in_front));
  request->truncated = true;
  // No turn of its conversation any more: the next one will begin otherwise.
  request->turn.reset();
  request->answers = {};
}

absl::Status PromptEncoder::EncodeText(const PromptText& text, EncodePace* pace,
                                       EncodedRequest* request) const {
  const Request& in = request->request;
  const std::string scope = ScopeOf(in);
  const EncodeOptions options = OptionsFor(text, pace, {&stretches_, scope});
  if (turns_ == nullptr || !std::holds_alternative<ChatPrompt>(in.prompt)) {
    absl::StatusOr<std::vector<TokenId>> ids = tokenizer_->Encode(text.text, options);
    if (!ids.ok()) return OfPrompt(ids.status());
    request->prompt = *std::move(ids);
    const bool wants_bos = text.add_bos.value_or(tokenizer_->adds_bos());
    request->added_bos = wants_bos && tokenizer_->bos().has_value();
    return absl::OkStatus();
  }
  absl::StatusOr<SplicedPrompt> spliced =
      TurnSplicer(tokenizer_, turns_).Encode(text.text, options, scope);
  if (!spliced.ok()) return OfPrompt(spliced.status());
  request->prompt = std::move(spliced->ids);
  request->turn = std::move(spliced->key);
  request->turn->tenant = in.tenant;
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
                              prompt_tokens == context
                                  ? absl::StrCat(", which leave none for an answer", kTooLong)
                                  : kTooLong);
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
  return CheckHeldBytes(request, longest - static_cast<int64_t>(prompt_tokens));
}

}  // namespace refrain::engine
