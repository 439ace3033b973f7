#include "server/openai/choices_format.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "server/concat.h"
#include "server/json.h"
#include "server/request_id.h"

namespace refrain::server::openai {

std::string_view FinishReasonName(engine::FinishReason reason) {
  switch (reason) {
    case engine::FinishReason::kStop:
      return "stop";
    case engine::FinishReason::kLength:
      return "length";
    case engine::FinishReason::kCancelled:
    case engine::FinishReason::kError:
      break;
  }
  return "error";
}

ChoicesFormat::ChoicesFormat(Answer answer, int32_t num_choices, const engine::Tokenizer* tokenizer)
    : answer_(std::move(answer)),
      tokenizer_(tokenizer),
      names_(tokenizer, answer_.output.tokens_as_ids),
      text_offsets_(num_choices, TextOffset(tokenizer, answer_.output.skip_special)) {
  event_head_ = "data: ";
  AppendHead(/*chunk=*/true, &event_head_);
}

void ChoicesFormat::AppendHead(bool chunk, std::string* out) const {
  const bool chat = answer_.endpoint == Endpoint::kChatCompletions;
  out->append("{\"id\":");
  AppendJsonString(answer_.id, out);
  // Events of /v1/completions have the same object name as whole answers.
  const std::string_view object = !chat   ? "text_completion"
                                  : chunk ? "chat.completion.chunk"
                                          : "chat.completion";
  ConcatTo(out, ",\"object\":\"", object, "\",\"created\":", answer_.created_unix_s, ",\"model\":");
  AppendJsonString(answer_.model, out);
  out->append(",\"choices\":[");
}

void ChoicesFormat::AppendUsage(const engine::Usage& usage, std::string* out) const {
  ConcatTo(out, ",\"usage\":{\"prompt_tokens\":", usage.prompt_tokens,
           ",\"completion_tokens\":", usage.completion_tokens,
           ",\"total_tokens\":", usage.prompt_tokens + usage.completion_tokens,
           ",\"prompt_tokens_details\":{");
  AppendCacheUsage(usage, out);
  out->append("}");
  if (reasoning_tokens().has_value()) {
    ConcatTo(out, ",\"completion_tokens_details\":{\"reasoning_tokens\":", *reasoning_tokens(),
             "}");
  }
  out->append("}");
}

void ChoicesFormat::AppendReasoning(std::string_view reasoning, std::string* out) {
  out->append("\"reasoning_content\":");
  AppendJsonString(reasoning, out);
}

void ChoicesFormat::AppendFinish(std::optional<engine::FinishReason> finish, bool called,
                                 std::string* out) {
  out->append(",\"finish_reason\":");
  if (!finish.has_value()) {
    out->append("null");
  } else if (finish == engine::FinishReason::kStop && called) {
    out->append("\"tool_calls\"");
  } else {
    AppendJsonString(FinishReasonName(*finish), out);
  }
}

// vLLM's: the stop string or the client's stop token that ended the choice, else null.
void ChoicesFormat::AppendStopReason(const std::optional<std::string>& stop_string,
                                     const std::optional<TokenDetails>& end_token,
                                     std::string* out) const {
  const std::vector<engine::TokenId>& named = answer_.named_ends;
  out->append(",\"stop_reason\":");
  if (stop_string.has_value()) {
    AppendJsonString(*stop_string, out);
  } else if (end_token.has_value() &&
             std::find(named.begin(), named.end(), end_token->token) != named.end()) {
    ConcatTo(out, static_cast<int32_t>(end_token->token));
  } else {
    out->append("null");
  }
}

void ChoicesFormat::AppendCallHead(std::string_view name, std::string* out) {
  // Not made of the answer's id: a client may send the same x-request-id with each turn of a
  // conversation, and the turns' calls must differ.
  ConcatTo(out, "\"id\":\"call_", MakeRequestId(), "\"");
  out->append(",\"type\":\"function\",\"function\":{\"name\":");
  AppendJsonString(name, out);
  out->append(",");
}

void ChoicesFormat::AppendToolCalls(const std::vector<ToolCall>& calls, std::string* out) {
  out->append("\"tool_calls\":[");
  for (size_t i = 0; i < calls.size(); ++i) {
    out->append(i == 0 ? "{" : ",{");
    AppendCallHead(calls[i].name, out);
    out->append("\"arguments\":");
    AppendJsonString(calls[i].arguments, out);
    out->append("}}");
  }
  out->append("]");
}

void ChoicesFormat::AppendToolCallDelta(const ToolCallDelta& delta, std::string* out) {
  ConcatTo(out, "\"tool_calls\":[{\"index\":", delta.index, ",");
  if (delta.name.has_value()) {
    AppendCallHead(*delta.name, out);
  } else {
    out->append("\"function\":{");
  }
  out->append("\"arguments\":");
  AppendJsonString(delta.arguments, out);
  out->append("}}]");
}

void ChoicesFormat::AppendDelta(const TextPiece& piece, std::string* out) {
  out->append(",\"delta\":{");
  std::string_view comma;
  if (piece.first) {
    out->append("\"role\":\"assistant\"");
    comma = ",";
  }
  if (!piece.reasoning.empty()) {
    out->append(comma);
    AppendReasoning(piece.reasoning, out);
    comma = ",";
  }
  const bool only_call = piece.text.empty() && piece.call.has_value();
  if (!piece.text.empty() || (piece.first && piece.reasoning.empty())) {
    ConcatTo(out, comma, "\"content\":");
    comma = ",";
    if (only_call) {
      out->append("null");
    } else {
      AppendJsonString(piece.text, out);
    }
  }
  if (piece.call.has_value()) {
    out->append(comma);
    AppendToolCallDelta(*piece.call, out);
  }
  out->append("}");
}

void ChoicesFormat::AppendEvents(int32_t choice, TextPiece& piece,
                                 const std::vector<engine::TokenId>& prompt_ids,
                                 const std::optional<engine::Usage>& usage, std::string* out) {
  const bool chat = answer_.endpoint == Endpoint::kChatCompletions;
  constexpr size_t kMostMembersBytes = 200;  // without log-probabilities
  const size_t bytes =
      event_head_.size() + piece.text.size() + piece.reasoning.size() + kMostMembersBytes;
  if (out->capacity() - out->size() < bytes) {
    out->reserve(std::max(out->size() + bytes, 2 * out->capacity()));
  }
  out->append(event_head_);
  ConcatTo(out, "{\"index\":", choice);
  if (!chat) {
    out->append(",\"text\":");
    AppendJsonString(piece.text, out);
  } else {
    AppendDelta(piece, out);
  }
  const bool lists_end = piece.end_token.has_value() && (!chat || piece.end_token->shown);
  if (piece.tokens.empty() && !lists_end) {
    out->append(",\"logprobs\":null");
  } else {
    AppendLogprobs(choice, piece.tokens, piece.end_token, out);
  }
  AppendFinish(piece.finish, piece.called, out);
  // As in vLLM's: events of a chat have it with their end.
  if (!chat || piece.finish.has_value()) {
    AppendStopReason(piece.stop_string, piece.end_token, out);
  }
  AppendTokenIds(piece.tokens, piece.hidden_tokens, piece.end_token, out);
  const bool shows_prompt = piece.first && answer_.output.token_ids;
  if (shows_prompt && !chat) AppendPromptIds(prompt_ids, out);
  out->append("}]");
  if (shows_prompt && chat) AppendPromptIds(prompt_ids, out);
  if (usage.has_value()) {
    AppendUsage(*usage, out);
  } else if (answer_.include_usage) {
    out->append(",\"usage\":null");
  }
  out->append("}\n\n");
}

void ChoicesFormat::AppendEnd(const engine::Usage& usage, std::string* out) {
  if (answer_.include_usage) {
    out->append(event_head_).append("]");
    AppendUsage(usage, out);
    out->append("}\n\n");
  }
  out->append("data: [DONE]\n\n");
}

void ChoicesFormat::AppendFailure(const ApiError& error, const engine::Usage& /*usage*/,
                                  std::string* out) {
  ConcatTo(out, "data: ", ErrorBody(error), "\n\n");
}

void ChoicesFormat::Keep(int32_t choice, TextPiece piece) {
  choices_.resize(text_offsets_.size());
  WholeChoice& whole = choices_[choice];
  whole.reasoning += piece.reasoning;
  whole.text += piece.text;
  if (piece.call.has_value()) AppendToCalls(*piece.call, &whole.calls);
  whole.tokens.insert(whole.tokens.end(), std::make_move_iterator(piece.tokens.begin()),
                      std::make_move_iterator(piece.tokens.end()));
  if (piece.finish.has_value()) {
    whole.finish = *piece.finish;
    whole.called = piece.called;
  }
  if (piece.end_token.has_value()) whole.end_token = std::move(piece.end_token);
  if (piece.stop_string.has_value()) whole.stop_string = std::move(piece.stop_string);
  if (!piece.hidden_tokens.empty()) whole.hidden_tokens = std::move(piece.hidden_tokens);
}

std::string ChoicesFormat::TakeWhole(const std::vector<PromptTokens>& prompts,
                                     const engine::Usage& usage) {
  std::vector<WholeChoice> choices = std::exchange(choices_, {});
  choices.resize(text_offsets_.size());
  const bool chat = answer_.endpoint == Endpoint::kChatCompletions;
  std::string body;
  AppendHead(/*chunk=*/false, &body);
  for (size_t i = 0; i < choices.size(); ++i) {
    const WholeChoice& choice = choices[i];
    ConcatTo(&body, i == 0 ? "" : ",", "{\"index\":", i);
    if (answer_.endpoint == Endpoint::kCompletions) {
      body.append(",\"text\":");
      AppendJsonString(choice.text, &body);
    } else {
      body.append(",\"message\":{\"role\":\"assistant\",\"content\":");
      if (choice.text.empty() && !choice.calls.empty()) {
        body.append("null");
      } else {
        AppendJsonString(choice.text, &body);
      }
      body.append(",\"refusal\":null");
      if (!choice.reasoning.empty()) {
        body.append(",");
        AppendReasoning(choice.reasoning, &body);
      }
      if (!choice.calls.empty()) {
        body.append(",");
        AppendToolCalls(choice.calls, &body);
      }
      body.append("}");
    }
    AppendLogprobs(static_cast<int32_t>(i), choice.tokens, choice.end_token, &body);
    AppendFinish(choice.finish, choice.called, &body);
    AppendStopReason(choice.stop_string, choice.end_token, &body);
    AppendTokenIds(choice.tokens, choice.hidden_tokens, choice.end_token, &body);
    if (!chat) {
      AppendPromptFields(prompts[i / static_cast<size_t>(answer_.choices_per_prompt)], &body);
    }
    body.append("}");
  }
  body.append("]");
  if (chat) AppendPromptFields(prompts.front(), &body);
  AppendUsage(usage, &body);
  body.append("}");
  return body;
}

void ChoicesFormat::AppendLogprobs(int32_t choice, const std::vector<TokenDetails>& tokens,
                                   const std::optional<TokenDetails>& end_token, std::string* out) {
  out->append(",\"logprobs\":");
  if (!answer_.output.logprobs.has_value()) {
    out->append("null");
  } else if (answer_.endpoint == Endpoint::kCompletions) {
    AppendCompletionLogprobs(choice, tokens, end_token, out);
  } else {
    out->append("{\"content\":[");
    names_.AppendList(tokens, end_token, out);
    out->append("],\"refusal\":null}");
  }
}

// The members of a prompt, where they were asked for: in a choice of a completion, beside the
// choices of a chat.
void ChoicesFormat::AppendPromptFields(const PromptTokens& prompt, std::string* out) const {
  if (answer_.output.prompt_logprobs.has_value()) AppendPromptLogprobs(prompt.logprobs, out);
  if (answer_.output.token_ids) AppendPromptIds(prompt.ids, out);
}

void ChoicesFormat::AppendPromptIds(const std::vector<engine::TokenId>& ids, std::string* out) {
  out->append(",\"prompt_token_ids\":[");
  for (size_t i = 0; i < ids.size(); ++i) {
    ConcatTo(out, i == 0 ? "" : ",", static_cast<int32_t>(ids[i]));
  }
  out->append("]");
}

void ChoicesFormat::AppendPromptLogprobs(const std::vector<TokenDetails>& prompt,
                                         std::string* out) const {
  const auto append = [&](engine::TokenId token, float logprob, int32_t rank) {
    ConcatTo(out, "\"", static_cast<int32_t>(token), "\":{\"logprob\":");
    AppendLogprob(logprob, out);
    ConcatTo(out, ",\"rank\":", rank, ",\"decoded_token\":");
    AppendJsonString(TokenText(tokenizer_->TokenBytes(token)), out);
    out->append("}");
  };
  out->append(",\"prompt_logprobs\":[");
  for (size_t i = 0; i < prompt.size(); ++i) {
    const TokenDetails& details = prompt[i];
    if (i > 0) out->append(",");
    if (!details.logprob.has_value()) {
      out->append("null");
      continue;
    }
    out->append("{");
    append(details.token, *details.logprob, details.rank);
    const auto shown = static_cast<size_t>(*answer_.output.prompt_logprobs);
    for (size_t j = 0; j < std::min(shown, details.top.size()); ++j) {
      if (details.top[j].token == details.token) continue;
      out->append(",");
      append(details.top[j].token, details.top[j].logprob, details.top[j].rank);
    }
    out->append("}");
  }
  out->append("]");
}

// Of the output alone: all that was generated, shown or not.
void ChoicesFormat::AppendTokenIds(const std::vector<TokenDetails>& tokens,
                                   const std::vector<engine::TokenId>& hidden_tokens,
                                   const std::optional<TokenDetails>& end_token,
                                   std::string* out) const {
  if (!answer_.output.token_ids) return;
  out->append(",\"token_ids\":[");
  std::string_view comma;
  const auto append = [&](engine::TokenId token) {
    ConcatTo(out, comma, static_cast<int32_t>(token));
    comma = ",";
  };
  for (const TokenDetails& details : tokens) {
    if (!details.from_prompt) append(details.token);
  }
  for (const engine::TokenId token : hidden_tokens) append(token);
  if (end_token.has_value()) append(end_token->token);
  out->append("]");
}

// An object by the tokens' texts. Of several tokens with one text (a byte's token and the letter's)
// the token of the answer is named, else the likeliest: a name appears once.
void ChoicesFormat::AppendTopLogprobs(const TokenDetails& details, std::string* out) const {
  const std::string own = names_.NameOf(details.token);
  std::vector<std::string> names = {own};
  bool has_own = false;
  out->append("{");
  std::string_view comma;
  const auto append = [&](const std::string& name, float logprob) {
    out->append(comma);
    AppendJsonString(name, out);
    out->append(":");
    AppendLogprob(logprob, out);
    comma = ",";
  };
  // A prompt's tokens may have more, for `prompt_logprobs`.
  const size_t shown = std::min(details.top.size(), static_cast<size_t>(*answer_.output.logprobs));
  for (size_t j = 0; j < shown; ++j) {
    if (details.top[j].token == details.token) {
      has_own = true;
      append(own, details.top[j].logprob);
      continue;
    }
    std::string name = names_.NameOf(details.top[j].token);
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    append(name, details.top[j].logprob);
    names.push_back(std::move(name));
  }
  if (!has_own) append(own, *details.logprob);
  out->append("}");
}

// The end token has its place, though the text does not show it: who scores a prompt (`echo`)
// finds the last generated token at the end and leaves it out.
void ChoicesFormat::AppendCompletionLogprobs(int32_t choice,
                                             const std::vector<TokenDetails>& tokens,
                                             const std::optional<TokenDetails>& end_token,
                                             std::string* out) {
  std::string texts, logprobs, tops, offsets;
  const size_t count = tokens.size() + (end_token.has_value() ? 1 : 0);
  for (size_t i = 0; i < count; ++i) {
    const TokenDetails& details = i < tokens.size() ? tokens[i] : *end_token;
    const std::string_view comma = i == 0 ? "" : ",";
    texts.append(comma);
    AppendJsonString(names_.NameOf(details.token), &texts);
    TextOffset& text_offset = text_offsets_[choice];
    ConcatTo(&offsets, comma,
             details.from_prompt ? text_offset.AddPrompt(details.token, details.added_bos)
                                 : text_offset.Add(details.token));
    logprobs.append(comma);
    tops.append(comma);
    if (!details.logprob.has_value()) {
      logprobs.append("null");
      tops.append("null");
      continue;
    }
    AppendLogprob(*details.logprob, &logprobs);
    AppendTopLogprobs(details, &tops);
  }
  ConcatTo(out, "{\"tokens\":[", texts, "],\"token_logprobs\":[", logprobs, "],\"top_logprobs\":[",
           tops, "],\"text_offset\":[", offsets, "]}");
}

}  // namespace refrain::server::openai
