#include "server/openai/response_format.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "engine/text/utf8.h"
#include "server/concat.h"
#include "server/json.h"

namespace refrain::server::openai {
namespace {

// JSON has no infinities; OpenAI clients know this value for "as good as impossible".
constexpr float kLeastLogprob = -9999.0f;

void AppendLogprob(float logprob, std::string* out) {
  AppendJsonNumber(std::isfinite(logprob) ? std::max(logprob, kLeastLogprob) : kLeastLogprob, out);
}

void AppendFinish(std::optional<engine::FinishReason> finish, std::string* out) {
  out->append(",\"finish_reason\":");
  if (finish.has_value()) {
    AppendJsonString(FinishReasonName(*finish), out);
  } else {
    out->append("null");
  }
}

}  // namespace

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

std::string TokenText(std::string_view bytes) {
  if (engine::IsValidUtf8(bytes)) return std::string(bytes);
  std::string text = "bytes:";
  for (const unsigned char byte : bytes) {
    char escaped[8];
    text.append(escaped, std::snprintf(escaped, sizeof(escaped), "\\x%02x", byte));
  }
  return text;
}

ResponseFormat::ResponseFormat(Answer answer, int32_t num_choices,
                               const engine::Tokenizer* tokenizer)
    : answer_(std::move(answer)), tokenizer_(tokenizer), text_offsets_(num_choices, 0) {
  event_head_ = "data: ";
  AppendHead(/*chunk=*/true, &event_head_);
}

void ResponseFormat::AppendHead(bool chunk, std::string* out) const {
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

void ResponseFormat::AppendUsage(const engine::Usage& usage, std::string* out) const {
  ConcatTo(out, ",\"usage\":{\"prompt_tokens\":", usage.prompt_tokens,
           ",\"completion_tokens\":", usage.completion_tokens,
           ",\"total_tokens\":", usage.prompt_tokens + usage.completion_tokens,
           ",\"prompt_tokens_details\":{\"cached_tokens\":", usage.cached_tokens, "}}");
}

void ResponseFormat::AppendEvent(int32_t choice, const TextPiece& piece,
                                 const std::optional<engine::Usage>& usage, std::string* out) {
  constexpr size_t kMostMembersBytes = 200;  // without log-probabilities
  const size_t bytes = event_head_.size() + piece.text.size() + kMostMembersBytes;
  if (out->capacity() - out->size() < bytes) {
    out->reserve(std::max(out->size() + bytes, 2 * out->capacity()));
  }
  out->append(event_head_);
  ConcatTo(out, "{\"index\":", choice);
  if (answer_.endpoint == Endpoint::kCompletions) {
    out->append(",\"text\":");
    AppendJsonString(piece.text, out);
  } else if (piece.first) {
    out->append(",\"delta\":{\"role\":\"assistant\",\"content\":");
    AppendJsonString(piece.text, out);
    out->append("}");
  } else if (piece.text.empty()) {
    out->append(",\"delta\":{}");
  } else {
    out->append(",\"delta\":{\"content\":");
    AppendJsonString(piece.text, out);
    out->append("}");
  }
  AppendLogprobs(choice, piece.tokens, out);
  AppendFinish(piece.finish, out);
  out->append("}]");
  if (usage.has_value()) {
    AppendUsage(*usage, out);
  } else if (answer_.null_usage) {
    out->append(",\"usage\":null");
  }
  out->append("}\n\n");
}

void ResponseFormat::AppendUsageEvent(const engine::Usage& usage, std::string* out) const {
  out->append(event_head_).append("]");
  AppendUsage(usage, out);
  out->append("}\n\n");
}

std::string ResponseFormat::ErrorEvent(std::string_view error_body) {
  return Concat("data: ", error_body, "\n\n");
}

std::string ResponseFormat::WholeBody(const std::vector<WholeChoice>& choices,
                                      const engine::Usage& usage) {
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
      AppendJsonString(choice.text, &body);
      body.append(",\"refusal\":null}");
    }
    AppendLogprobs(static_cast<int32_t>(i), choice.tokens, &body);
    AppendFinish(choice.finish, &body);
    body.append("}");
  }
  body.append("]");
  AppendUsage(usage, &body);
  body.append("}");
  return body;
}

void ResponseFormat::AppendLogprobs(int32_t choice, const std::vector<TokenDetails>& tokens,
                                    std::string* out) {
  out->append(",\"logprobs\":");
  if (!answer_.logprobs || tokens.empty()) {
    out->append("null");
  } else if (answer_.endpoint == Endpoint::kCompletions) {
    AppendCompletionLogprobs(choice, tokens, out);
  } else {
    AppendChatLogprobs(tokens, out);
  }
}

void ResponseFormat::AppendCompletionLogprobs(int32_t choice,
                                              const std::vector<TokenDetails>& tokens,
                                              std::string* out) {
  std::string texts, logprobs, tops, offsets;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const TokenDetails& details = tokens[i];
    const std::string_view comma = i == 0 ? "" : ",";
    const std::string_view bytes = tokenizer_->TokenBytes(details.token);
    texts.append(comma);
    AppendJsonString(TokenText(bytes), &texts);
    ConcatTo(&offsets, comma, text_offsets_[choice]);
    // Characters are counted where they begin, as a token may hold a part of one.
    if (!tokenizer_->IsControl(details.token)) {
      text_offsets_[choice] += static_cast<int64_t>(engine::CountUtf8Characters(bytes));
    }
    logprobs.append(comma);
    tops.append(comma);
    if (!details.logprob.has_value()) {
      logprobs.append("null");
      tops.append("null");
      continue;
    }
    AppendLogprob(*details.logprob, &logprobs);
    tops.append("{");
    bool has_own = false;
    for (size_t j = 0; j < details.top.size(); ++j) {
      if (j > 0) tops.append(",");
      has_own = has_own || details.top[j].token == details.token;
      AppendJsonString(TokenText(tokenizer_->TokenBytes(details.top[j].token)), &tops);
      tops.append(":");
      AppendLogprob(details.top[j].logprob, &tops);
    }
    if (!has_own) {
      if (!details.top.empty()) tops.append(",");
      AppendJsonString(TokenText(bytes), &tops);
      tops.append(":");
      AppendLogprob(*details.logprob, &tops);
    }
    tops.append("}");
  }
  ConcatTo(out, "{\"tokens\":[", texts, "],\"token_logprobs\":[", logprobs, "],\"top_logprobs\":[",
           tops, "],\"text_offset\":[", offsets, "]}");
}

void ResponseFormat::AppendChatToken(engine::TokenId token, float logprob, std::string* out) const {
  const std::string_view bytes = tokenizer_->TokenBytes(token);
  out->append("{\"token\":");
  AppendJsonString(TokenText(bytes), out);
  out->append(",\"logprob\":");
  AppendLogprob(logprob, out);
  out->append(",\"bytes\":[");
  for (size_t i = 0; i < bytes.size(); ++i) {
    ConcatTo(out, i == 0 ? "" : ",", static_cast<int>(static_cast<unsigned char>(bytes[i])));
  }
  out->append("]");
}

void ResponseFormat::AppendChatLogprobs(const std::vector<TokenDetails>& tokens,
                                        std::string* out) const {
  out->append("{\"content\":[");
  bool first = true;
  for (const TokenDetails& details : tokens) {
    if (!first) out->append(",");
    first = false;
    AppendChatToken(details.token, details.logprob.value_or(kLeastLogprob), out);
    out->append(",\"top_logprobs\":[");
    for (size_t i = 0; i < details.top.size(); ++i) {
      if (i > 0) out->append(",");
      AppendChatToken(details.top[i].token, details.top[i].logprob, out);
      out->append("}");
    }
    out->append("]}");
  }
  out->append("],\"refusal\":null}");
}

}  // namespace refrain::server::openai
